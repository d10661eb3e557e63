"""A folder made anew from a snapshot: beside its place, checked, then renamed.

So the place holds the whole or nothing. A kill leaves a folder ``*.hd-restore-*`` beside, which the next
try removes. A mount point cannot be replaced: there the folder is made inside, and once it is whole its
entries are moved out of it (``mounting``). What surprises: all files get one time, the snapshot's, as a
manifest has none; so nothing is newer than what it was made from."""

from __future__ import annotations

import ctypes
import os
import shutil
import stat
import uuid
from functools import partial
from pathlib import Path

import anyio.to_thread
import msgspec
from anyio import from_thread

from harness_durable.errors import BadInput, DamagedLog, DamagedWorkspace, SandboxUnavailable
from harness_durable.workspace import manifest, mounting
from harness_durable.workspace.manifest import Get, Line, shown
from harness_durable.workspace.opening import FOLDER, opened, opened_root
from harness_durable.workspace.reading import Read, getter
from harness_durable.workspace.writing import make_file, make_link

BESIDE = ".hd-restore-"
PARTIAL = ".partial"


class Restored(msgspec.Struct, frozen=True):
    """``redacted``: paths (escaped) whose credentials were not saved, so that a person must put them back."""

    root: str
    place: Path
    files: int
    bytes: int
    redacted: tuple[str, ...] = ()


async def restore(root: str, dest: Path, read: Read, *, at_ms: int) -> Restored:
    """Make ``dest``, which is missing or empty. ``at_ms`` becomes the time of all files.

    Raises ``DamagedWorkspace`` if content is missing or damaged: the rest is then in ``DEST.partial`` (or
    ``.partial-2`` ...; of a mount point in ``DEST/.hd-restore-new``), else ``dest`` is as it was.
    ``BadInput`` if ``dest`` holds anything.
    ``SandboxUnavailable`` if the files cannot be written. Waits for its thread when cancelled, and leaves
    nothing."""
    work = partial(_restore, root, dest, getter(read), at_ms * 1_000_000)
    return await anyio.to_thread.run_sync(work)


def _restore(root: str, dest: Path, get: Get, at_ns: int) -> Restored:
    dest = dest.parent.resolve() / dest.name
    if dest.is_symlink():
        raise BadInput(f"{str(dest)!r} is a link: nothing was restored; remove it, or name the folder itself")
    try:
        if os.path.lexists(dest) and not (dest.is_dir() and mounting.is_empty(dest)):
            raise BadInput(f"{str(dest)!r} is not empty: nothing was restored; move it and try again")
        if mounting.is_mount(dest):
            return _fill_inside(root, dest, get, at_ns)
        _sweep(dest)
        dest.parent.mkdir(parents=True, exist_ok=True)
        beside = dest.with_name(f"{dest.name}{BESIDE}{uuid.uuid4().hex[:8]}")
        beside.mkdir(mode=0o700)
        try:
            return _fill(root, dest, beside, get, at_ns)
        finally:
            if beside.exists():
                _remove(beside)
    except OSError as error:
        raise SandboxUnavailable(
            f"{str(dest)!r} could not be restored: {error.strerror or error}; "
            "nothing was changed: make room or give access, then try again"
        ) from error


def _fill(root: str, dest: Path, beside: Path, get: Get, at_ns: int) -> Restored:
    making = _Making(get, at_ns)
    with opened_root(beside) as fd:
        making.folder(root, fd, b"")
        _sync(fd)
    if making.damaged:
        aside = _free(dest.with_name(dest.name + PARTIAL))
        beside.rename(aside)
        raise DamagedWorkspace(making.damaged, aside)
    if dest.exists():
        beside.chmod(dest.stat().st_mode & 0o7777)
    else:
        beside.chmod(0o755)
    beside.rename(dest)
    with opened_root(dest.parent) as fd:
        os.fsync(fd)
    return Restored(root, dest, making.files, making.bytes, tuple(making.redacted))


def _fill_inside(root: str, dest: Path, get: Get, at_ns: int) -> Restored:
    """The same for a mount point. What was whole before a kill is not made again."""
    inside, ready = dest / mounting.FILLING, dest / mounting.READY
    if not ready.exists():
        if inside.exists():
            _remove(inside)
        inside.mkdir(mode=0o700)
        making = _Making(get, at_ns)
        with opened_root(inside) as fd:
            making.folder(root, fd, b"")
            _sync(fd)
        if making.damaged:
            raise DamagedWorkspace(making.damaged, inside)
        inside.rename(ready)
    mounting.move_out(ready, dest)
    with opened_root(dest) as fd:
        os.fsync(fd)
    files = [(path, line) for path, line in manifest.walk(root, get) if line.kind in ("f", "r")]
    redacted = tuple(shown(path) for path, line in files if line.kind == "r")
    return Restored(root, dest, len(files), sum(line.size for _, line in files), redacted)


class _Making:
    """Folder by folder; what cannot be had is noted and passed over."""

    def __init__(self, get: Get, at_ns: int) -> None:
        self._get, self._at_ns = get, at_ns
        self.files = self.bytes = 0
        self.damaged: list[tuple[str, str]] = []
        self.redacted: list[str] = []

    def folder(self, ref: str, fd: int, path: bytes) -> None:
        from_thread.check_cancelled()
        try:
            lines = manifest.entries(ref, self._get)
        except (DamagedLog, ValueError):
            self.damaged.append((shown(path), ref))
            return
        for name, line in lines.items():
            if line.is_folder:
                os.mkdir(name, 0o700, dir_fd=fd)
                with opened(name, fd, FOLDER) as below:
                    self.folder(line.ref, below, path + name + b"/")
                    os.fchmod(below, line.mode)
                    os.utime(below, ns=(self._at_ns, self._at_ns))
            else:
                self._leaf(line, fd, path + name)

    def _leaf(self, line: Line, fd: int, path: bytes) -> None:
        from_thread.check_cancelled()
        if line.kind == "l":
            make_link(line, fd, line.name, self._at_ns)
            return
        try:
            self.bytes += make_file(line, fd, line.name, self._get, self._at_ns)
        except DamagedLog as error:
            self.damaged.append((shown(path), error.where.removeprefix("blob ")))
            return
        self.files += 1
        if line.kind == "r":
            self.redacted.append(shown(path))


def _sweep(dest: Path) -> None:
    """What an earlier try that was killed has left."""
    if dest.parent.is_dir():
        for stale in dest.parent.iterdir():
            if stale.name.startswith(dest.name + BESIDE) and stale.is_dir() and not stale.is_symlink():
                _remove(stale)


def _remove(folder: Path) -> None:
    """Folders in it may have any mode by now."""
    folder.chmod(0o700)
    for _, folders, _, fd in os.fwalk(folder):
        for name in folders:
            if stat.S_ISDIR(os.stat(name, dir_fd=fd, follow_symlinks=False).st_mode):
                os.chmod(name, 0o700, dir_fd=fd)
    shutil.rmtree(folder)


def _free(wanted: Path) -> Path:
    """A name that is not taken: what a person may have worked in is not replaced."""
    number, path = 1, wanted
    while os.path.lexists(path):
        number += 1
        path = wanted.with_name(f"{wanted.name}-{number}")
    return path


def _sync(fd: int) -> None:
    """Everything on this file system reaches the disk, at once and not file by file."""
    libc = ctypes.CDLL(None, use_errno=True)
    if not hasattr(libc, "syncfs"):
        os.sync()
    elif libc.syncfs(fd) != 0:
        raise OSError(ctypes.get_errno(), "the files could not be written to the disk")
