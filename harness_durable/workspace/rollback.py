"""A workspace brought from one snapshot to another in place, at a person's wish only.

It deletes and overwrites nothing but what the first snapshot recorded, and that only where it still is as
recorded: a file that is ignored, was left out, has credentials or was made by a person meanwhile is kept,
and said. What surprises: all new content is written first, into a folder ``.hd-rollback`` of the workspace
(which is no part of it), so that damage or a full disk is met before anything changes; then each file is
renamed into place."""

from __future__ import annotations

import hashlib
import os
import shutil
import stat
from collections.abc import Generator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import anyio.to_thread
import msgspec
from anyio import from_thread

from harness_durable.errors import DamagedLog, DamagedWorkspace, SandboxUnavailable
from harness_durable.events.workspace import LeftOut
from harness_durable.workspace import manifest
from harness_durable.workspace.contents import Reader, TooLarge
from harness_durable.workspace.fetching import Blobs, harmed
from harness_durable.workspace.manifest import Line, shown
from harness_durable.workspace.opening import FOLDER, Files, opened, opened_root
from harness_durable.workspace.reading import Read
from harness_durable.workspace.scanner import STAGE
from harness_durable.workspace.writing import make_file, make_link


class RolledBack(msgspec.Struct, frozen=True):
    """``written`` and ``removed`` count files, links and folders; ``kept`` are paths (escaped) that differ
    from the target, and why they were not touched."""

    written: int
    removed: int
    kept: tuple[LeftOut, ...] = ()


async def roll_back(place: Path, now: str, target: str, read: Read) -> RolledBack:
    """Change ``place`` from the snapshot ``now``, taken just before, to ``target`` (roots).

    Raises ``DamagedWorkspace``, ``WorkspaceMissing`` and ``SandboxUnavailable`` (no space, no access) before
    anything was changed. Killed in the middle it has done a part: a scan, and the same again, do the rest."""
    return await anyio.to_thread.run_sync(partial(_roll_back, place, now, target, Blobs(read)))


def _roll_back(place: Path, now: str, target: str, blobs: Blobs) -> RolledBack:
    place = place.resolve()
    with opened_root(place) as fd:
        try:
            with _stage(place, fd) as stage:
                back = _Back(blobs, stage)
                back.prepare(now, target, b"")
                if back.damaged:
                    raise DamagedWorkspace(back.damaged, None)
                back.folder(fd, now, target, b"")
        except OSError as error:
            raise SandboxUnavailable(
                f"{str(place)!r} could not be rolled back: {error.strerror or error}; make room or give "
                "access, then take a snapshot and try again"
            ) from error
    return RolledBack(back.written, back.removed, tuple(back.kept))


@contextmanager
def _stage(place: Path, fd: int) -> Generator[int]:
    path = place / os.fsdecode(STAGE)
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)  # of a try that was killed
    os.mkdir(STAGE, 0o700, dir_fd=fd)
    try:
        with opened(STAGE, fd, FOLDER) as stage:
            yield stage
    finally:
        shutil.rmtree(path)


class _Back:
    """``prepare`` writes what will be needed, named by its path's hash; ``folder`` uses it."""

    def __init__(self, blobs: Blobs, stage: int) -> None:
        self._blobs, self._get, self._stage = blobs, blobs.get, stage
        self._reader = Reader(Files(), _name, from_thread.check_cancelled, lambda _: None)
        self.damaged: list[tuple[str, str]] = []
        self.written = self.removed = 0
        self.kept: list[LeftOut] = []

    def prepare(self, now: str, target: str, path: bytes) -> None:
        from_thread.check_cancelled()
        for name, was, line in self._differing(now, target, path):
            if line is None:
                continue
            try:
                if line.is_folder:
                    self.prepare(was.ref if was and was.is_folder else "", line.ref, path + name + b"/")
                elif line.kind == "l":
                    make_link(line, self._stage, _staged(path + name))
                else:
                    make_file(line, self._stage, _staged(path + name), self._blobs.content(line.ref))
            except (DamagedLog, ValueError) as error:
                self.damaged.append((shown(path + name), harmed(error, line.ref)))

    def _differing(self, now: str, target: str, path: bytes) -> list[tuple[bytes, Line | None, Line | None]]:
        try:
            was, wanted = manifest.entries(now, self._get), manifest.entries(target, self._get)
        except (DamagedLog, ValueError) as error:
            self.damaged.append((shown(path), harmed(error, target)))
            return []
        names = sorted(was.keys() | wanted.keys())
        return [
            (name, was.get(name), wanted.get(name)) for name in names if was.get(name) != wanted.get(name)
        ]

    def folder(self, fd: int, now: str, target: str, path: bytes) -> None:
        """Within one folder that is in both, or is new, or goes."""
        for name, was, line in self._differing(now, target, path):
            from_thread.check_cancelled()
            try:
                self._one(fd, name, was, line, path + name)
            except OSError as error:
                self._keep(path + name, f"could not be changed: {error.strerror}")

    def _one(self, fd: int, name: bytes, was: Line | None, line: Line | None, path: bytes) -> None:
        if was is not None and line is not None and was.is_folder and line.is_folder:
            with opened(name, fd, FOLDER) as below:
                self.folder(below, was.ref, line.ref, path + b"/")
                os.fchmod(below, line.mode)
            return
        if was is None:
            if _exists(name, fd):
                self._keep(path, "was made since, and is not in the snapshot")
                return
        elif not self._as_recorded(fd, name, was, path):
            return
        replaces = was is not None and line is not None and not was.is_folder and not line.is_folder
        if was is not None and not replaces and not self._remove(fd, name, was, path):
            return
        if line is not None:
            self._make(fd, name, line, path)

    def _as_recorded(self, fd: int, name: bytes, was: Line, path: bytes) -> bool:
        """Whether it may be replaced or removed; if not, that is said."""
        if was.kind == "r":
            self._keep(path, "has credentials, which no snapshot holds")
            return False
        if was.is_folder:
            return True
        if not _exists(name, fd):
            self._keep(path, "was removed since the snapshot")
            return False
        same = self._link_or_file(fd, name, was)
        if not same:
            self._keep(path, "was changed since the snapshot")
        return same

    def _link_or_file(self, fd: int, name: bytes, was: Line) -> bool:
        status = os.stat(name, dir_fd=fd, follow_symlinks=False)
        if stat.S_ISLNK(status.st_mode):
            return was.kind == "l" and os.readlink(name, dir_fd=fd) == manifest.target(was)
        if was.kind != "f" or not stat.S_ISREG(status.st_mode) or status.st_size != was.size:
            return False
        try:
            return self._reader.read(name, fd, was.size).ref == was.ref
        except TooLarge:
            return False

    def _remove(self, fd: int, name: bytes, was: Line, path: bytes) -> bool:
        """Whether the place is free now."""
        if not was.is_folder:
            os.unlink(name, dir_fd=fd)
            self.removed += 1
            return True
        with opened(name, fd, FOLDER) as below:
            self.folder(below, was.ref, "", path + b"/")
            with os.scandir(below) as rest:
                empty = next(rest, None) is None
        if not empty:
            self._keep(path + b"/", "holds files that the snapshot does not have")
            return False
        os.rmdir(name, dir_fd=fd)
        self.removed += 1
        return True

    def _make(self, fd: int, name: bytes, line: Line, path: bytes) -> None:
        if line.is_folder:
            os.mkdir(name, 0o700, dir_fd=fd)
            with opened(name, fd, FOLDER) as below:
                self.folder(below, "", line.ref, path + b"/")
                os.fchmod(below, line.mode)
        else:
            os.rename(_staged(path), name, src_dir_fd=self._stage, dst_dir_fd=fd)
        self.written += 1

    def _keep(self, path: bytes, reason: str) -> None:
        self.kept.append(LeftOut(shown(path), reason))


def _name(raw: bytes) -> str:
    return hashlib.sha256(raw).hexdigest()


def _staged(path: bytes) -> bytes:
    return _name(path).encode()


def _exists(name: bytes, at: int) -> bool:
    try:
        os.stat(name, dir_fd=at, follow_symlinks=False)
    except FileNotFoundError:
        return False
    return True
