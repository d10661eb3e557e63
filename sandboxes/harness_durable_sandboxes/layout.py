"""The directory of a life: where it is, what lies in it before the keeper starts, and how it goes again.

ROOT/.id              tells this directory from those of other hosts
ROOT/LIFE/            0700, one per life
    home/             the harness's home, with the files of the LifeSpec
    token             0600: so that any worker of this user can reap the life
    origin.json       whose life it is, so that a worker knows its own orphans
    keeper/           the keeper's run directory (see ``keeper/__init__.py``)
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import re
import shutil
import socket
import stat
import uuid
from collections.abc import AsyncIterator, Mapping
from pathlib import Path, PurePosixPath
from typing import IO, cast

import anyio
from anyio.to_thread import run_sync

from harness_durable.errors import BadInput, HarnessMissing, SandboxUnavailable, WorkspaceMissing
from harness_durable.sandbox import LifeSpec

UNREADABLE = (OSError, ValueError, LookupError, TypeError, ArithmeticError, RecursionError)
"""What reading JSON may raise that a harness could have written."""
_SENTENCES = 64 << 10  # bytes
_LARGE = 1 << 31

Places = Mapping[str, str]
"""What stands for each place-holder."""


class StartedBefore(SandboxUnavailable):
    """There is a life of that id; it was not touched."""


class DiskFull(SandboxUnavailable):
    """There is no room for a life."""

    why = "disk_full"


def not_started(error: OSError, root: Path) -> SandboxUnavailable:
    """What is to be raised for a life that could not be laid out below ``root``."""
    kind = DiskFull if error.errno in (errno.ENOSPC, errno.EDQUOT) else SandboxUnavailable
    return kind(f"cannot start a life: {error}; see to {root}")


def host(root: Path) -> str:
    """``NAME/BOOT/ROOT``: a life can be here only if all three are the same. Names alone would not do:
    containers may share one, and so may machines that were cloned."""
    boot = Path("/proc/sys/kernel/random/boot_id")
    return f"{socket.gethostname()}/{boot.read_text().strip() if boot.exists() else '-'}/{_identity(root)}"


def same_host(one: str, other: str, *, boot: bool = True) -> bool:
    """Are they the same, whatever the ``boot`` if that is not asked for? Earlier versions wrote no ROOT."""
    pairs = list(zip(one.split("/"), other.split("/"), strict=False))
    return all(mine == theirs for place, (mine, theirs) in enumerate(pairs) if boot or place != 1)


def _identity(root: Path) -> str:
    """What tells this directory of lives from every other one; made by whoever comes first. Raises
    ``OSError``."""
    mark = root / ".id"
    if not mark.exists():
        fresh = root / f".id-{uuid.uuid4().hex}"
        _private(fresh, uuid.uuid4().hex.encode())
        try:
            with contextlib.suppress(FileExistsError):
                mark.hardlink_to(fresh)  # whole, or not at all
        finally:
            fresh.unlink()
    return mark.read_text()


def directory(root: Path, life: str) -> Path:
    """Raises ``BadInput`` for an id that cannot be a directory's name."""
    if not re.fullmatch(r"[A-Za-z0-9_-][A-Za-z0-9._-]{0,127}", life):
        raise BadInput(f"life id {life!r}: use at most 128 letters, digits, '-', '_' and '.'")
    return root / life


def home(life: Path) -> Path:
    """Where the harness of a life has its home."""
    return life / "home"


async def lay_out(life: Path, spec: LifeSpec, places: Places, **more: object) -> None:
    """Make the directory of a life, with its files and with spec.json, in which ``more`` is what else the
    keeper is told, or told instead. Raises ``StartedBefore``,
    ``BadInput`` or ``OSError``; what was made by then is left to the caller to reap."""
    await run_sync(_lay_out, life, spec, places, {**_orders(spec, places), **more})
    for name, content in spec.files.items():
        if not isinstance(content, bytes):
            await _write_pieces(home(life) / name, content())


def _lay_out(life: Path, spec: LifeSpec, places: Places, orders: Mapping[str, object]) -> None:
    try:
        life.mkdir(mode=0o700)
    except FileExistsError as error:
        raise StartedBefore(f"{life} exists: attach to this life, or reap it first") from error
    home(life).mkdir(mode=0o700)
    (life / "keeper").mkdir(mode=0o700)
    for name, content in spec.files.items():
        whole = _filled_bytes(content, places) if isinstance(content, bytes) else b""
        _write(home(life), name, whole)
    _private(life / "token", spec.token.encode())
    _private(life / "origin.json", json.dumps({"session": spec.session, "origin": spec.origin}).encode())
    _private(life / "keeper/spec.json", json.dumps(orders).encode())


def environment(spec: LifeSpec, places: Places) -> dict[str, str]:
    """The harness's, with all places filled in."""
    return {name: filled(value, places) for name, value in spec.env.items()}


def _orders(spec: LifeSpec, places: Places) -> dict[str, object]:
    """What the keeper is told, in its spec.json."""
    return {
        "argv": [filled(one, places) for one in spec.argv],
        "env": environment(spec, places),
        "cwd": filled(spec.cwd, places),
        "token": spec.token,
        "ttl": spec.ttl,
    }


def failure(run: Path, program: str, cwd: str) -> Exception:
    """What is to be raised for a keeper that could not start the harness."""
    try:
        with opened(run / "failed.json") as file:
            failed = json.loads(file.read(_SENTENCES))
        step, reason, said = str(failed["step"]), os.strerror(int(failed["errno"])), str(failed["error"])
    except UNREADABLE:
        return SandboxUnavailable(f"the keeper did not start: {_last_words(run)}")
    if step == "exec":
        return HarnessMissing(
            f"{program!r} cannot be started: {reason}; install it, or give its full path "
            "(the harness has a PATH of its own, not this process's)"
        )
    if step == "cwd":
        return WorkspaceMissing(
            f"the working directory {cwd} cannot be used ({reason}); put it back, then go on"
        )
    return SandboxUnavailable(f"the keeper could not start {program!r}: {said}")


def _last_words(run: Path) -> str:
    with contextlib.suppress(OSError), opened(run / "keeper.err") as file:
        told = file.read(_SENTENCES).decode(errors="replace").strip().splitlines()
        return told[-1] if told else "no reason given"
    return "no reason given"


def number(told: object) -> int:
    """A whole number that a harness could have written, as the log can hold it. Raises one of
    ``UNREADABLE``."""
    return max(-_LARGE, min(int(cast("int | str", told)), _LARGE))


def opened(path: Path) -> IO[bytes]:
    """To read a file in a place where a harness can write, too: what it put there instead, such as a link to
    another file of this host, is not followed, and a pipe does not make us wait. Raises ``OSError``."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise OSError(errno.EINVAL, "it is no ordinary file")
    return os.fdopen(descriptor, "rb")


def filled(text: str, places: Places) -> str:
    for place, value in places.items():
        text = text.replace(place, value)
    return text


def _filled_bytes(content: bytes, places: Places) -> bytes:
    for place, value in places.items():
        content = content.replace(place.encode(), os.fsencode(value))
    return content


def _write(home: Path, path: str, content: bytes) -> None:
    relative = PurePosixPath(path)
    if relative.is_absolute() or ".." in relative.parts or not relative.parts or "\0" in path:
        raise BadInput(f"file {path!r} of the life must lie below its home; use a relative path")
    target = home / relative
    try:
        target.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        _private(target, content)
    except (FileExistsError, NotADirectoryError) as error:
        raise BadInput(f"file {path!r} of the life collides with another one; rename it") from error


async def _write_pieces(path: Path, pieces: AsyncIterator[bytes]) -> None:
    """Into a file that is there, and empty."""
    async with await anyio.open_file(path, "ab") as file:
        async for piece in pieces:
            await file.write(piece)


def _private(path: Path, content: bytes) -> None:
    with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:  # noqa: PTH123
        file.write(content)


def remove(life: Path) -> None:
    """Delete all of it, also what a harness made unreadable. Raises ``SandboxUnavailable``."""

    def opened(_: object, path: str, error: BaseException) -> None:
        with contextlib.suppress(OSError):
            Path(path).parent.chmod(0o700)
            if not Path(path).is_symlink():  # it may lead out of here
                Path(path).chmod(0o700)

    if not life.exists():
        return
    shutil.rmtree(life, onerror=lambda call, path, info: opened(call, path, info[1]))
    if life.exists():
        shutil.rmtree(life, ignore_errors=True)
    if life.exists():
        raise SandboxUnavailable(f"{life} cannot be deleted; delete it as the user who owns its files")
