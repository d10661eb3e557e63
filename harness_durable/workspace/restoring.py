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
from collections.abc import Callable, Sequence
from pathlib import Path

import anyio.to_thread
import msgspec
from anyio import from_thread

from harness_durable import clock
from harness_durable.errors import BadInput, DamagedLog, DamagedWorkspace, SandboxUnavailable
from harness_durable.workspace import manifest, mounting
from harness_durable.workspace.fetching import Blobs, batches, harmed
from harness_durable.workspace.manifest import PIECE, Get, Line, shown
from harness_durable.workspace.opening import FOLDER, opened, opened_root
from harness_durable.workspace.reading import Read
from harness_durable.workspace.writing import make_file, make_link

BESIDE = ".hd-restore-"
PARTIAL = ".partial"

TELL_SECONDS = 0.5
Progress = Callable[[int, int], None]
"""Called in the event loop, every ``TELL_SECONDS``: files and bytes so far."""


class Restored(msgspec.Struct, frozen=True):
    """``redacted``: paths (escaped) whose credentials were not saved, so that a person must put them back."""

    root: str
    place: Path
    files: int
    bytes: int
    redacted: tuple[str, ...] = ()


async def restore(
    root: str, dest: Path, read: Read, *, at_ms: int, progress: Progress = lambda files, size: None
) -> Restored:
    """Make ``dest``, which is missing or empty. ``at_ms`` becomes the time of all files. ``progress`` is
    told now and then how many files, and bytes, are made.

    Raises ``DamagedWorkspace`` if content is missing or damaged: the rest is then in ``DEST.partial`` (or
    ``.partial-2`` ...; of a mount point in ``DEST/.hd-restore-new``), else ``dest`` is as it was.
    ``BadInput`` if ``dest`` holds anything.
    ``SandboxUnavailable`` if the files cannot be written. Waits for its thread when cancelled, and leaves
    nothing."""
    making = _Making(Blobs(read), at_ms * 1_000_000, progress)
    return await anyio.to_thread.run_sync(_restore, root, dest, making)


def _restore(root: str, dest: Path, making: _Making) -> Restored:
    dest = dest.parent.resolve() / dest.name
    if dest.is_symlink():
        raise BadInput(f"{str(dest)!r} is a link: nothing was restored; remove it, or name the folder itself")
    try:
        if os.path.lexists(dest) and not (dest.is_dir() and mounting.is_empty(dest)):
            raise BadInput(f"{str(dest)!r} is not empty: nothing was restored; move it and try again")
        if mounting.is_mount(dest):
            return _fill_inside(root, dest, making)
        _sweep(dest)
        dest.parent.mkdir(parents=True, exist_ok=True)
        beside = dest.with_name(f"{dest.name}{BESIDE}{uuid.uuid4().hex[:8]}")
        beside.mkdir(mode=0o700)
        try:
            return _fill(root, dest, beside, making)
        finally:
            if beside.exists():
                _remove(beside)
    except OSError as error:
        raise SandboxUnavailable(
            f"{str(dest)!r} could not be restored: {error.strerror or error}; "
            "nothing was changed: make room or give access, then try again"
        ) from error


def _fill(root: str, dest: Path, beside: Path, making: _Making) -> Restored:
    with opened_root(beside) as fd:
        making.all(root, fd)
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


def _fill_inside(root: str, dest: Path, making: _Making) -> Restored:
    """The same for a mount point. What was whole before a kill is not made again."""
    inside, ready = dest / mounting.FILLING, dest / mounting.READY
    if not ready.exists():
        if inside.exists():
            _remove(inside)
        inside.mkdir(mode=0o700)
        with opened_root(inside) as fd:
            making.all(root, fd)
            _sync(fd)
        if making.damaged:
            raise DamagedWorkspace(making.damaged, inside)
        inside.rename(ready)
    mounting.move_out(ready, dest)
    with opened_root(dest) as fd:
        os.fsync(fd)
    files = [(path, line) for path, line in manifest.walk(root, making.get) if line.kind in ("f", "r")]
    redacted = tuple(shown(path) for path, line in files if line.kind == "r")
    return Restored(root, dest, len(files), sum(line.size for _, line in files), redacted)


class _Making:
    """Folder by folder; what cannot be had is noted and passed over."""

    def __init__(self, blobs: Blobs, at_ns: int, progress: Progress) -> None:
        self._blobs, self._at_ns = blobs, at_ns
        self._progress, self._told = progress, clock.monotonic()
        self.files = self.bytes = 0
        self.damaged: list[tuple[str, str]] = []
        self.redacted: list[str] = []

    @property
    def get(self) -> Get:
        return self._blobs.get

    def all(self, root: str, fd: int) -> None:
        self._folder(self._lines(root, b""), fd, b"", fetched=False)

    def _lines(self, ref: str, path: bytes) -> Sequence[Line]:
        """Of a folder; none if they cannot be had."""
        try:
            return tuple(manifest.entries(ref, self._blobs.get).values())
        except (DamagedLog, ValueError):
            self.damaged.append((shown(path), ref))
            return ()

    def _folder(self, lines: Sequence[Line], fd: int, path: bytes, *, fetched: bool) -> None:
        """What folders beside each other need is ``fetched`` at once, as far as it fits."""
        from_thread.check_cancelled()
        for part in batches([line for line in lines if not line.is_folder], _need):
            if not fetched:
                self._blobs.fetch(_refs(part))
            for line in part:
                self._leaf(line, fd, path + line.name)
        for part in batches([line for line in lines if line.is_folder], lambda _: (1, 0)):
            self._blobs.fetch([line.ref for line in part])
            below = [(line, self._lines(line.ref, path + line.name + b"/")) for line in part]
            for some in batches(below, _needs):
                at_once = len(some) > 1  # a folder by itself may need more than fits
                self._blobs.fetch([ref for _, inside in some if at_once for ref in _refs(inside)])
                for line, inside in some:
                    os.mkdir(line.name, 0o700, dir_fd=fd)
                    with opened(line.name, fd, FOLDER) as down:
                        self._folder(inside, down, path + line.name + b"/", fetched=at_once)
                        os.fchmod(down, line.mode)
                        os.utime(down, ns=(self._at_ns, self._at_ns))

    def _leaf(self, line: Line, fd: int, path: bytes) -> None:
        from_thread.check_cancelled()
        try:
            if line.kind == "l":
                make_link(line, fd, line.name, self._at_ns)
                return
            content = self._blobs.content(line.ref)
            self.bytes += make_file(line, fd, line.name, content, self._at_ns)
        except (DamagedLog, ValueError) as error:
            self.damaged.append((shown(path), harmed(error, line.ref)))
            return
        self.files += 1
        if line.kind == "r":
            self.redacted.append(shown(path))
        if clock.monotonic() > self._told + TELL_SECONDS:
            self._told = clock.monotonic()
            from_thread.run_sync(self._progress, self.files, self.bytes)


def _refs(lines: Sequence[Line]) -> list[str]:
    """The blobs of the files among these lines; of a large one its list."""
    return [line.ref.removeprefix("+") for line in lines if line.kind in ("f", "r")]


def _need(line: Line) -> tuple[int, int]:
    return (1, min(line.size, PIECE)) if line.kind in ("f", "r") else (0, 0)


def _needs(folder: tuple[Line, Sequence[Line]]) -> tuple[int, int]:
    found = [_need(line) for line in folder[1]]
    return sum(count for count, _ in found), sum(size for _, size in found)


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
