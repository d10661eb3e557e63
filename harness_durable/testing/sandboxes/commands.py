"""Checks of ``exec``, of files and of the environment."""

from __future__ import annotations

import hashlib
import os
from collections.abc import AsyncGenerator

from harness_durable.errors import BadInput
from harness_durable.sandbox import ExecResult
from harness_durable.testing.sandboxes.bench import PATH, Bench, broken, everything, expect

_SECRET = "ANTHROPIC_API_KEY"
_MANY = 100_000_000

ODD_NAMES = (
    "with space",
    "-dash",
    ".hidden",
    "new\nline",
    "quote'\"$`\\",
    "grüße/日本語/🦊",
    "deep/" * 20 + "leaf",
    "x" * 200,
)


async def _run(b: Bench, *argv: str, stdin: bytes = b"", timeout: float = 60.0) -> ExecResult:
    return await b.sandbox.exec(argv, cwd=b.inside, env={"PATH": PATH}, stdin=stdin, timeout=timeout)


async def exit_codes_and_signals(b: Bench) -> str:
    for script, code in (("exit 0", 0), ("exit 7", 7), ("kill -9 $$", -9), ("kill -15 $$", -15)):
        result = await _run(b, "sh", "-c", script)
        expect(result.returncode == code, f"{script!r} gave {result.returncode}, not {code}")
        expect(not result.timed_out, f"{script!r} was said to have timed out")
    missing = await _run(b, "no-such-program-here")
    expect(missing.returncode == 127, f"a missing program gave {missing.returncode}, not 127")
    both = await _run(b, "sh", "-c", "echo out; echo err >&2; pwd")
    expect(both.stdout == b"out\n%s\n" % os.fsencode(b.inside), f"stdout was {both.stdout!r}")
    expect(both.stderr == b"err\n", f"stderr was {both.stderr!r}")
    return "codes 0, 7, -9, -15 and 127; stdout, stderr and directory as they should be"


async def a_time_out_kills_children(b: Bench) -> str:
    watch = b.watch()
    script = 'exec 9>"$0"; echo x >&9; setsid sh -c "echo y >&9; exec sleep 1000" & sleep 1000'
    result = await _run(b, "sh", "-c", script, watch.path, timeout=1.0)
    expect(result.timed_out, "timed_out was false")
    expect(result.returncode < 0, f"the return code was {result.returncode}")
    await b.gone(watch)
    expect(set(b"xy") <= set(watch.seen), f"only {watch.seen!r} started before the time-out")
    return "command and setsid'd child were gone after it"


async def a_command_leaves_nothing(b: Bench) -> str:
    watch = b.watch()
    result = await _run(b, "sh", "-c", 'exec 9>"$0"; sleep 1000 & echo said', watch.path)
    expect(result.stdout == b"said\n", f"stdout was {result.stdout!r}")
    await b.gone(watch)
    return "a background child that held the output open neither delayed the end nor outlived it"


async def binary_streams(b: Bench) -> str:
    every = bytes(range(256)) * 4
    for data in (b"", b"\0", every, b"no newline", b"\r\n\0\xff\xfe"):
        result = await _run(b, "cat", stdin=data)
        expect(result.stdout == data, f"{data[:20]!r} came back as {result.stdout[:20]!r}")
    large = every * (_MANY // len(every))
    result = await _run(b, "cat", stdin=large, timeout=120.0)
    expect(len(result.stdout) == len(large), f"{len(large)} bytes came back as {len(result.stdout)}")
    expect(_hash(result.stdout) == _hash(large), "100 MB came back changed")
    return "0 bytes, NUL, all 256 values, and 100 MB both ways"


async def odd_file_names(b: Bench) -> str:
    files = {name: f"content of {name}\0\n".encode() for name in ODD_NAMES}
    script = 'cd "$HOME"; for f; do cat -- "$f" || exit 9; done'
    _, link = await b.start(b.spec("sh", "-c", script, "sh", *files, files=files))
    said = await everything(link)
    expect(said == b"".join(files.values()), f"read {said[:200]!r}, {(await link.errors())!r}")
    for bad in ("../outside", "/absolute", "a/../../b"):
        try:
            await b.start(b.spec("true", files={bad: b""}))
        except BadInput:
            continue
        broken(f"a file named {bad!r} was accepted")
    return f"{len(files)} odd names read back; names outside of home refused"


async def places_are_filled_in(b: Bench) -> str:
    spec = b.spec(
        "sh",
        "-c",
        'echo "$0 $P $(cat "$HOME/conf") $H"',
        "@PORT@",
        env={"P": "@PORT@", "H": "@HOME@"},
        files={"conf": b"@PORT@"},
    )
    _, link = await b.start(spec)
    ports = (await everything(link)).split()
    expect(len(ports) == 4, f"said {ports!r}")
    expect(ports[0].isdigit() and ports[0] == ports[1] == ports[2], f"ports were {ports!r}")
    expect(ports[3].startswith(b"/"), f"the home was {ports[3]!r}")
    return "@PORT@ and @HOME@ in arguments, environment and files"


async def content_may_come_in_pieces(b: Bench) -> str:
    pieces = (b"@PO", b"RT@ \0", b"", b"\xff" * (2 << 20), b"@HOME@")

    async def content() -> AsyncGenerator[bytes]:
        for piece in pieces:
            yield piece

    _, link = await b.start(b.spec("sh", "-c", 'cat "$HOME/a/b"', files={"a/b": content}))
    said = await everything(link)
    expect(said == b"".join(pieces), f"{len(said)} bytes, beginning with {said[:20]!r}")
    return "a file that comes in pieces is written as it is"


async def nothing_is_inherited(b: Bench) -> str:
    before, secret = os.environ.get(_SECRET), b.fresh("secret")
    os.environ[_SECRET] = secret
    try:
        listed = await _run(b, "env")
        _, link = await b.start(b.spec("env"))
        life = await everything(link)
        fds = await _run(b, "sh", "-c", "ls /proc/self/fd")
    finally:
        del os.environ[_SECRET]
        if before is not None:
            os.environ[_SECRET] = before
    for where, text in (("exec", listed.stdout), ("a life", life)):
        expect(b"PATH=" in text, f"env in {where} said {text[:200]!r}")
        expect(secret.encode() not in text, f"{_SECRET} of the worker is visible in {where}")
        for name in ("VIRTUAL_ENV", "LANG", "SSH_AUTH_SOCK", "PYTHONPATH"):
            inherited = name in os.environ and f"\n{name}={os.environ[name]}\n".encode() in text
            expect(not inherited, f"{name} of the worker is visible in {where}")
    expect(len(fds.stdout.split()) <= 4, f"a command has the descriptors {fds.stdout.split()}")
    return "neither environment nor descriptors of the worker are visible"


def _hash(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()
