"""Finding the processes of a life on this host, and killing exactly those.

A pid alone proves nothing: it may belong to somebody else by now. So a process is first held by a
descriptor, then recognised (by the run directory in the keeper's arguments, or by the marker in the
environment that every life has), and only then killed through that descriptor.
"""

from __future__ import annotations

import os
import select
import signal
from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

from .keeper import GUARD_NAME

_LIFE, _RUN = "HARNESS_DURABLE_LIFE", "HARNESS_DURABLE_RUN"

_PATIENCE = 5.0  # seconds

Recognise = Callable[[Path], bool]  # gets a process's directory below /proc; may raise OSError


def keeper_of(run: Path, guard: bool = False) -> Recognise:
    """The keeper whose run directory is ``run``, or the guard that it may have."""
    wanted = os.fsencode(run)

    def recognise(process: Path) -> bool:
        arguments = (process / "cmdline").read_bytes().split(b"\0")
        if arguments[-2:-1] != [wanted] or b"-I" not in arguments:
            return False
        return (process / "comm").read_bytes().startswith(GUARD_NAME) == guard

    return recognise


def marks(life: str, run: Path) -> dict[str, str]:
    """The marker. A life's id alone would not do: another app on this host may have the same ids."""
    return {_LIFE: life, _RUN: str(run)}


def marked(marks: Mapping[str, str]) -> Recognise:
    """Whoever was started with all of ``marks`` in its environment."""
    wanted = {os.fsencode(f"{name}={value}") for name, value in marks.items()}

    def recognise(process: Path) -> bool:
        return wanted <= set((process / "environ").read_bytes().split(b"\0"))

    return recognise


def end_life(life: str, run: Path) -> None:
    """Nothing of the life acts any more on return. Blocks, for milliseconds.

    The keeper's death takes everything in its namespace along. Under a guard, the guard does the same
    and leaves. The marker then finds what had neither, or lost both at once.
    """
    kill(keeper_of(run))
    kill(keeper_of(run, guard=True), spare=_PATIENCE)
    kill(marked(marks(life, run)))


def kill(recognise: Recognise, spare: float = 0.0) -> int:
    """SIGKILL to all that are recognised, again until there is none; returns how many ended.

    Waits for each end, ``spare`` seconds before it kills and a few after. Processes of other users,
    which we may not look into, are passed over. Nothing is found where there is no /proc.
    """
    count = 0
    while True:
        ended = 0
        for process in _processes():
            with _held(process, recognise) as descriptor:
                if descriptor is None:
                    continue
                if not select.select([descriptor], [], [], spare)[0]:
                    with suppress(ProcessLookupError, PermissionError):
                        signal.pidfd_send_signal(descriptor, signal.SIGKILL)
                ended += bool(select.select([descriptor], [], [], _PATIENCE)[0])
        count += ended
        if not ended:
            return count


def find(recognise: Recognise) -> list[int]:
    """The pids of all that are recognised now."""
    found: list[int] = []
    for process in _processes():
        with suppress(OSError):
            if recognise(process):
                found.append(int(process.name))
    return found


def _processes() -> Iterator[Path]:
    proc = Path("/proc")
    if hasattr(os, "pidfd_open") and proc.is_dir():
        mine = str(os.getpid())
        yield from (one for one in proc.iterdir() if one.name.isdigit() and one.name != mine)


@contextmanager
def _held(process: Path, recognise: Recognise) -> Generator[int | None]:
    """A descriptor of the process if it is one of those, else None."""
    descriptor = None
    try:
        with suppress(OSError):  # it ended, or it is not ours to look at
            if recognise(process):
                descriptor = os.pidfd_open(int(process.name))
                if not recognise(process):  # the pid went to another one in between
                    os.close(descriptor)
                    descriptor = None
        yield descriptor
    finally:
        if descriptor is not None:
            os.close(descriptor)
