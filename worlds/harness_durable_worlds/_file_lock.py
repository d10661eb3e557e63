"""The lock of a segment file (flock), which keeps its writers apart. It is not what fences."""

from __future__ import annotations

import contextlib
import fcntl
import os
import threading
from collections.abc import Generator
from pathlib import Path

from harness_durable_worlds._file_log import Log


class LockHeldError(Exception):
    """Another process is writing to the segment, or was stopped while it did. Ask again in a moment."""

    def __init__(self, path: Path) -> None:
        self.path = path
        super().__init__(str(path))


@contextlib.contextmanager
def locked(log: Log, looks: int) -> Generator[int, None, None]:
    """Hold the lock of the newest segment. Raises ``LockHeldError`` after so many looks, a ms apart."""
    fd, path = log.fd(), log.top.path
    while not try_lock(fd):
        looks -= 1
        if looks <= 0:
            raise LockHeldError(path)
        threading.Event().wait(0.001)
    try:
        yield fd
    finally:
        if log.holds(fd):  # otherwise it was closed, and its number may be somebody else's by now
            fcntl.flock(fd, fcntl.LOCK_UN)


def try_lock(fd: int) -> bool:
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def is_locked(path: Path) -> bool:
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        return not try_lock(fd)
    finally:
        os.close(fd)


def holder_of(path: Path) -> str:
    """Who holds the lock, for people: from the kernel's list of locks."""
    try:
        inode = str(os.stat(path).st_ino)  # noqa: PTH116
        lines = Path("/proc/locks").read_text().splitlines()
    except OSError:
        return "another process"
    for line in lines:
        fields = line.split()
        if len(fields) > 5 and fields[1] == "FLOCK" and fields[5].rpartition(":")[2] == inode:
            return f"process {fields[4]}"
    return "another process"
