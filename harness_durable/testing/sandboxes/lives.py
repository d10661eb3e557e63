"""Checks of how lives begin, are attached to, spoken to, and listened to."""

from __future__ import annotations

import hashlib
from pathlib import Path

import anyio
import msgspec

from harness_durable.allowlist import AllowList
from harness_durable.errors import BadSetting, HarnessMissing, KeeperGone, SandboxUnavailable, StaleEpoch
from harness_durable.sandbox import Link, TakesOptions
from harness_durable.testing.sandboxes.bench import Bench, broken, everything, expect, said_by

_BIG = 8_000_000
_OUTPUT = 100_000_000


async def a_missing_program_is_said_so(b: Bench) -> str:
    for argv in (("no-such-program-here",), ("/no/such/path",), (str(b.inside),)):
        spec = b.spec(*argv)
        try:
            await b.start(spec)
        except HarnessMissing as error:
            expect(argv[0] in str(error), f"the sentence does not name {argv[0]!r}: {error}")
            continue
        broken(f"starting {argv[0]!r} did not raise HarnessMissing")
    return "HarnessMissing, with the program's name"


async def a_life_starts_once(b: Bench) -> str:
    spec = b.spec("cat")
    ref, link = await b.start(spec)
    try:
        await b.sandbox.start(spec, 2)
    except SandboxUnavailable:
        pass
    else:
        broken("the same life was started twice")
    expect(await b.sandbox.alive(ref), "the refused start killed the life")
    await link.write(b"still here\n")
    await said_by(link, b"still here")
    expect(await link.pid() > 0, "the harness has no pid")
    return "a second start of the same life is refused and does no harm"


async def epochs_are_refused_and_cut(b: Bench) -> str:
    ref, first = await b.start(b.spec("cat"), 5)
    for epoch in (4, 5):
        try:
            await b.attach(ref, epoch)
        except StaleEpoch as error:
            expect(error.current == 5, f"the keeper said epoch {error.current}")
            continue
        broken(f"epoch {epoch} was let in while epoch 5 is attached")
    second = await b.attach(ref, 6)
    calls = {"write": first.write(b"ghost\n"), "said": first.said(), "output": _first_of(first)}
    for name, call in calls.items():
        try:
            await call
        except StaleEpoch:
            continue
        broken(f"{name}() of the superseded link did not raise StaleEpoch")
    await second.aclose()
    third = await b.attach(ref, 6)
    await third.write(b"real\n")
    _, seen = await said_by(third, b"real\n")
    expect(b"ghost" not in seen, "a superseded worker spoke to the harness")
    expect(await third.said() == b"real\n", "said() holds what was refused")
    return "lower and equal epochs refused, a higher one cuts, an equal one may come back"


async def a_life_is_located_before_it_starts(b: Bench) -> str:
    spec = b.spec("cat")
    before = b.sandbox.locate(spec.life)
    expect(not await b.sandbox.alive(before), "alive() for a life that was only located")
    await b.sandbox.reap(before)
    ref, link = await b.start(spec)
    expect(ref == before, f"located at {before}, started at {ref}")
    expect(link.token == spec.token, "the link has another token than the spec")
    again = await b.attach(before, 2)
    expect(again.token == spec.token, "a later link has another token than the spec")
    home_of, link = await b.shell('echo "$HOME"; sleep 1000')
    await said_by(link, f"{b.sandbox.home(home_of)}\n".encode())
    return "locate() names the place of the life, and creates nothing; home() is what its harness sees"


async def options_are_settled_once(b: Bench) -> str:
    if not isinstance(b.sandbox, TakesOptions):
        return "not tried: this sandbox takes no options"
    settled = b.sandbox.complete({})
    expect(b.sandbox.complete(settled) == settled, "what was complete is completed otherwise the next time")
    expect(b.sandbox.allowed(settled) == AllowList(), "a host may be reached that nobody named")
    try:
        b.sandbox.complete({"no-such-option": "x"})
    except BadSetting:
        return f"{len(settled)} options; one that is not known is refused"
    return broken("an option that is not known was taken")


async def frames_arrive_whole(b: Bench) -> str:
    _, link = await b.start(b.spec("cat"))
    frames = [b"%d:" % n + b"x" * (_BIG // 8 * n) + b"\n" for n in range(9)]

    async def write(frame: bytes) -> None:
        await link.write(frame)

    async with anyio.create_task_group() as group:
        for frame in frames:
            group.start_soon(write, frame)
    total = sum(map(len, frames))
    expect(link.stdin_offset == total, f"the offset is {link.stdin_offset}, not {total}")
    said = await link.said()
    expect(sorted(said.splitlines(True)) == sorted(frames), "said() holds torn frames")
    seen, after = bytearray(), 0
    while after < total:
        after, chunk = await _next(link, after)
        seen += chunk
    expect(bytes(seen) == said, "the harness got something else than said() tells")
    return f"{len(frames)} frames of up to {_BIG} bytes, written at once, came whole"


async def output_outlives_the_worker(b: Bench) -> str:
    code = (
        "import sys, hashlib\nb = bytes(range(256)) * 4096\nn = 0\n"
        f"while n < {_OUTPUT}:\n    n += sys.stdout.buffer.write(b)\nsys.stdout.flush()\n"
        "sys.stdin.read(1)"
    )
    ref, first = await b.start(b.spec(b.place.python, "-c", code))
    after, _ = await _next(first, 0)
    await first.aclose()
    block = bytes(range(256)) * 4096
    total = -(-_OUTPUT // len(block)) * len(block)
    second = await b.attach(ref, 2)
    await second.write(b"\n")
    want = hashlib.sha256(block * (total // len(block))).hexdigest()
    seen = await everything(second)
    expect(len(seen) == total, f"{total} bytes were said, {len(seen)} are there")
    expect(hashlib.sha256(seen).hexdigest() == want, "the output has changed")
    for offset in (after, total - 1, total):
        tail = await everything(second, offset)
        expect(tail == seen[offset:], f"from offset {offset} came something else")
    return f"{total} bytes, read again from any offset"


async def a_command_survives_the_worker(b: Bench) -> str:
    flag = b.fresh("go")
    script = 'echo begun >> "$1.log"; echo began; until [ -e "$1" ]; do sleep 0.01; done; '
    ref, first = await b.shell(script + 'echo ended >> "$1.log"; echo ended', str(b.inside / flag))
    offset, _ = await said_by(first, b"began\n")
    await first.aclose()
    _touch(b.place.host / flag)
    expect(await b.sandbox.alive(ref), "the life ended with its worker")
    second = await b.attach(ref, 2)
    expect(await everything(second, offset) == b"ended\n", "the command's end was not heard")
    log = _content(b.place.host / f"{flag}.log")
    expect(log == "begun\nended\n", f"the command ran so: {log!r}")
    return "it went on undisturbed and ran once"


async def the_exit_is_recorded(b: Bench) -> str:
    for script, code in (("echo last; exit 3", 3), ("echo last; kill -9 $$", -9)):
        ref, link = await b.shell(script)
        expect(await everything(link) == b"last\n", "the output before the end is not whole")
        expect(link.exit is not None and link.exit.code == code, f"{script!r} gave {link.exit}")
        await link.aclose()
        again = await b.attach(ref, 2)
        expect(again.exit == link.exit, f"the next worker sees {again.exit}")
        expect(await everything(again) == b"last\n", "the next worker sees another output")
    _, link = await b.shell("echo oops >&2; exit 1")
    await everything(link)
    expect(await link.errors() == b"oops\n", f"stderr was {await link.errors()!r}")
    return "code or signal, after all output, for every later worker"


async def a_gone_life_is_said_to_be_gone(b: Bench) -> str:
    ref, link = await b.start(b.spec("cat"))
    await link.shutdown()
    expect(not await b.sandbox.alive(ref), "alive() after shutdown()")
    try:
        await b.attach(ref, 2)
    except KeeperGone:
        pass
    else:
        broken("attach() to a life that was shut down")
    nowhere = msgspec.structs.replace(ref, host="elsewhere/boot")
    expect(not await b.sandbox.alive(nowhere), "alive() for a life of another host")
    return "alive() is false, attach() raises KeeperGone"


async def _first_of(link: Link) -> bytes:
    return (await _next(link, 0))[1]


async def _next(link: Link, offset: int) -> tuple[int, bytes]:
    with anyio.fail_after(60.0):
        async for item in link.output(offset):
            return item
    return broken("the output ended too early")


def _touch(path: Path) -> None:
    path.write_bytes(b"")
    path.chmod(0o666)


def _content(path: Path) -> str:
    return path.read_text()
