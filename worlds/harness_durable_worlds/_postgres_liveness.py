"""Which workers are alive, judged from their rows.

Alive is whose lease has not ended, by the server's clock, and who is not known to be dead. A process that
dies is noticed in two ways: on its own machine, because the process is gone; from elsewhere, because the
kernel closed its connection, so that the server process behind it is gone. What surprises: a connection may
end while its worker lives on. So from elsewhere that counts only after ``GRACE`` seconds, in which a living
worker connects again and says so; not at all when the server has restarted, which ends every connection; and
never against a process that can be seen to live.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path
from typing import cast

import msgspec

from harness_durable import clock
from harness_durable_worlds._liveness import boot_id
from harness_durable_worlds._postgres_db import Row

GRACE = 2.0
"""Seconds without its connection after which a worker of another machine counts as dead."""


class Verdict(msgspec.Struct, frozen=True):
    """``left``: seconds of its lease. ``dead``: it is known that its process is gone."""

    alive: bool
    left: float
    dead: bool


class Judge:
    """Remembers since when a connection has been missing. One per World."""

    def __init__(self) -> None:
        self._missing: dict[str, float] = {}

    def verdicts(self, rows: Iterable[Row]) -> dict[str, Verdict]:
        """A verdict for each row of the statement ``workers``."""
        found, missing, now = dict[str, Verdict](), dict[str, float](), clock.monotonic()
        for row in rows:
            worker, process, left, connected, backend = cast(
                "tuple[str, str, int, bool | None, str | None]", tuple(row)
            )
            gone = is_gone(process)
            alive = left > 0 and gone is not True
            if alive and gone is None and connected is False and backend is not None:
                missing[backend] = self._missing.get(backend, now)
                alive = now - missing[backend] < GRACE
            found[worker] = Verdict(alive, left / 1000, gone is True)
        self._missing = missing
        return found


def this_process() -> str:
    """What tells this process from any other: machine and boot, PID namespace, pid, start."""
    pid = os.getpid()
    return f"{_place()} {pid} {_start(pid) or ''}"


def is_gone(process: str) -> bool | None:
    """Whether the process is gone; ``None`` if that cannot be seen from here."""
    place, pid, start = process.rsplit(" ", 2)
    if not place.strip() or not start or place != _place():
        return None
    found = _start(int(pid))
    if found is None:
        return _nobody(int(pid)) or None
    return found != start


def _place() -> str:
    try:
        return f"{boot_id()} {os.readlink('/proc/self/ns/pid')}"  # noqa: PTH115 - it names no file
    except OSError:
        return ""


def _start(pid: int) -> str | None:
    """When the process began, in ticks since boot; ``None`` if it cannot be read, empty for a zombie."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None
    return "" if fields[0] in ("Z", "X") else fields[19]


def _nobody(pid: int) -> bool:
    """Whether no process has this pid, also where /proc hides those of others."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    except PermissionError:
        return False
    return False
