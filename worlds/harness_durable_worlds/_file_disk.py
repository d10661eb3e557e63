"""Small durable steps on a disk, and its errors in our words."""

from __future__ import annotations

import contextlib
import errno
import os
import uuid
from collections.abc import Generator
from pathlib import Path

from harness_durable.errors import StorageUnavailable


def exists(path: Path | str) -> bool:
    try:
        os.stat(path)  # noqa: PTH116
    except FileNotFoundError:
        return False
    return True


@contextlib.contextmanager
def unavailable(what: str, *, unclear: bool = False, otherwise: str = "") -> Generator[None, None, None]:
    """Turn the system's errors into ours, with the next step: ``otherwise``, if it is not about room."""
    try:
        yield
    except OSError as error:
        hint = {
            errno.ENOSPC: "make room on the disk, then it goes on",
            errno.EDQUOT: "make room in the quota, then it goes on",
            errno.EACCES: otherwise or "make the folder writable for this user",
            errno.EROFS: otherwise or "mount the file system for writing",
            errno.EMFILE: "raise the limit of open files (ulimit -n)",
            errno.EIO: "check the disk and the kernel's log, then it goes on",
        }.get(error.errno or 0, otherwise or "check the disk and the kernel's log, then it goes on")
        raise StorageUnavailable(f"{what}: {error.strerror or error}; {hint}", unclear=unclear) from error


def write_all(fd: int, data: bytes, offset: int) -> None:
    view = memoryview(data)
    while view:
        written = os.pwrite(fd, view, offset)
        if written == 0:
            raise OSError(errno.EIO, "the file system accepts no more bytes")
        view, offset = view[written:], offset + written


def sync_folder(folder: Path) -> None:
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def make_folder(folder: Path, *, above: bool = True, sync: bool = True) -> bool:
    """Make the folder and, unless told otherwise, those above it, each durable in its parent. False if it was
    there. Without ``sync`` its entry is for the caller to make durable."""
    try:
        folder.mkdir()
    except FileExistsError:
        if folder.is_dir():
            return False
        raise
    except FileNotFoundError:
        if not above:
            raise
        make_folder(folder.parent)
        folder.mkdir(exist_ok=True)
    if sync:
        sync_folder(folder.parent)
    return True


def replace_file(path: Path, data: bytes, *, sync: bool) -> None:
    """Put ``data`` in the place of the file in one step; with ``sync``, never without its content."""
    beside = path.with_name(f".{path.name}-{uuid.uuid4().hex}")
    fd = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644)
    try:
        try:
            write_all(fd, data, 0)
            if sync:
                os.fdatasync(fd)
        finally:
            os.close(fd)
        beside.rename(path)
    except OSError:
        beside.unlink(missing_ok=True)
        raise


def read_file(path: Path) -> bytes | None:
    """The content, or None if there is no such file."""
    try:
        return path.read_bytes()
    except FileNotFoundError:
        return None
