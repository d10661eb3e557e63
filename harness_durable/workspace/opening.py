"""The only way into a workspace: name by name from its root, never through a link, never to write.

By path, a folder that is swapped for a link while a snapshot runs leads out of the workspace (in 17 of 300
tries ``/etc`` was captured); by directory descriptor and ``O_NOFOLLOW`` it cannot."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

from harness_durable.errors import WorkspaceMissing
from harness_durable.workspace.known import Stamp, stamp

FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC

GONE = frozenset({errno.ENOENT, errno.ENOTDIR, errno.ELOOP, errno.ESTALE, errno.ENXIO})
"""The name is no longer what it was a moment ago: the next snapshot sees what became of it."""
EXHAUSTED = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOMEM})
"""Says nothing about the file: there can be no snapshot now."""

RACY = 20_000_000
"""Nanoseconds. Two changes within one tick of the kernel's clock have the same times, so a file that
changed this shortly before the snapshot began is read again at the next one."""
RACY_COARSE = 2_000_000_000
"""The same on file systems that keep whole seconds, or two."""


@contextmanager
def opened(name: bytes, at: int, flags: int) -> Generator[int]:
    """A descriptor of a name within the folder ``at``. Raises ``OSError``."""
    fd = os.open(name, flags, dir_fd=at)
    try:
        yield fd
    finally:
        os.close(fd)


@contextmanager
def opened_root(place: Path) -> Generator[int]:
    """A descriptor of the workspace. Raises ``WorkspaceMissing`` if there is no folder."""
    try:
        fd = os.open(place, FOLDER)
    except OSError as error:
        raise WorkspaceMissing(
            f"the workspace {os.fspath(place)!r} cannot be read ({error.strerror}): put it back, "
            "or restore it from its last snapshot with `harness-durable recover`"
        ) from error
    try:
        yield fd
    finally:
        os.close(fd)


@contextmanager
def opened_below(root: int, path: bytes) -> Generator[int]:
    """A folder some levels below, each of them entered without following a link. Raises ``OSError``."""
    fd = os.dup(root)
    try:
        for name in path.split(b"/"):
            if name in (b"..", b"."):
                raise OSError(errno.ENOENT, "not a plain path")
            if name:
                below = os.open(name, FOLDER, dir_fd=fd)
                os.close(fd)
                fd = below
        yield fd
    finally:
        os.close(fd)


def look(name: bytes, at: int) -> Stamp | None:
    """The stamp of a regular file, or None."""
    try:
        found = os.stat(name, dir_fd=at, follow_symlinks=False)
    except OSError:
        return None
    return stamp(found) if stat.S_ISREG(found.st_mode) else None


def is_racy(mark: Stamp, now_ns: int) -> bool:
    """Whether it may change within the tick of the times in ``mark``, given when the snapshot began."""
    latest = max(mark[2], mark[3])
    coarse = not mark[2] % 1_000_000_000 and not mark[3] % 1_000_000_000
    return latest >= now_ns - (RACY_COARSE if coarse else RACY)


class Files:
    """Reads whole files, and counts them."""

    def __init__(self) -> None:
        self.count = 0

    @contextmanager
    def opened(self, name: bytes, at: int) -> Generator[int]:
        """A regular file. Raises ``OSError``, also for what is none (any more)."""
        with opened(name, at, FILE) as fd:
            self.count += 1
            if not stat.S_ISREG(os.fstat(fd).st_mode):
                raise OSError(errno.ESTALE, "no longer a regular file")
            yield fd

    def small(self, name: bytes, at: int, most: int = 64 << 20) -> bytes | None:
        """All bytes of a small file (``.gitignore``, an index); None if it cannot be read or is larger."""
        try:
            with self.opened(name, at) as fd:
                raw = read_up_to(fd, most + 1)
        except OSError as error:
            if error.errno in EXHAUSTED:
                raise
            return None
        return raw if len(raw) <= most else None


def read_up_to(fd: int, size: int) -> bytes:
    """So many bytes, fewer only at the file's end."""
    first = os.read(fd, size)
    if not first or len(first) == size:
        return first
    parts = [first]
    size -= len(first)
    while size and (part := os.read(fd, size)):
        parts.append(part)
        size -= len(part)
    return b"".join(parts)
