"""Killing everything below this process, and knowing when nothing is left."""

# Importing pathlib would lengthen every start.
# ruff: noqa: PTH112, PTH123, PTH208
from __future__ import annotations

import os
import signal
import time
from contextlib import suppress

TYPE_CHECKING = False
if TYPE_CHECKING:  # importing typing would cost a tenth of the start
    from collections.abc import Callable

PATIENCE = 30.0  # seconds; only a process stuck in the kernel needs more than a few milliseconds


def family() -> list[int]:
    """All descendants. Zombies count: a dead leader of a dying program may still have children."""
    children: dict[int, list[int]] = {}
    for name in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{name}/stat", "rb") as file:
                parent = int(file.read().rpartition(b")")[2].split()[1])
        except OSError:
            continue
        children.setdefault(parent, []).append(int(name))
    found: list[int] = []
    todo = [os.getpid()]
    while todo:
        born = children.get(todo.pop(), [])
        found += born
        todo += born
    return found


def reap(ended: Callable[[int, int], None]) -> bool:
    """Collect what has died, each with its wait status; True if no child is left at all."""
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return True
        if pid == 0:
            return False
        ended(pid, status)


def kill_all(ended: Callable[[int, int], None], leader: int = 0) -> bool:
    """SIGKILL to every process below this one, until the kernel says that there is none.

    ``leader`` is whose group dies where there is no /proc to find the others in.
    """
    deadline = time.monotonic() + PATIENCE
    while time.monotonic() < deadline:
        if os.getpid() == 1:
            targets = [-1]
        elif os.path.isdir("/proc/self"):
            targets = family()
        else:
            targets = [-leader] if leader else []
        for pid in targets:
            with suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
        if reap(ended):
            return True
        time.sleep(0.002)
    return False
