"""Making files from a manifest's lines: never through a link, never over something, each blob checked."""

from __future__ import annotations

import os
from collections.abc import Iterable

from harness_durable.workspace.manifest import Line, target

NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


def make_file(line: Line, at: int, name: bytes, content: Iterable[bytes], at_ns: int | None = None) -> int:
    """Content, mode and times of a new file in the folder ``at``; gives its bytes. Raises ``OSError``, and
    what ``content`` raises; then no file is left."""
    fd = os.open(name, NEW, 0o600, dir_fd=at)
    size = 0
    try:
        for piece in content:
            size += _write(fd, piece)
        os.fchmod(fd, line.mode)
        if at_ns is not None:
            os.utime(fd, ns=(at_ns, at_ns))
    except BaseException:
        os.unlink(name, dir_fd=at)
        raise
    finally:
        os.close(fd)
    return size


def make_link(line: Line, at: int, name: bytes, at_ns: int | None = None) -> None:
    os.symlink(target(line), name, dir_fd=at)
    if at_ns is not None:
        os.utime(name, ns=(at_ns, at_ns), dir_fd=at, follow_symlinks=False)


def _write(fd: int, piece: bytes) -> int:
    done = 0
    while done < len(piece):
        done += os.write(fd, piece[done:])
    return done
