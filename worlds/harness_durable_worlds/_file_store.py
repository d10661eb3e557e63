"""The folder of a file World, and all in it that is not a log: blobs, snapshots, progress, the version.

    DIR/VERSION                         the format
    DIR/APP/sessions/SESSION/           EPOCH.log, EPOCH.free, snapshot, progress, blobs/ab/SHA
    DIR/APP/sessions/.ahead-SESSION/    blobs that came before their session
    DIR/APP/due/SESSION                 empty: this session may be due (an index; the logs decide)
    DIR/APP/workers/WORKER.lock         who is alive

What surprises: a session appears and disappears by one rename of its folder, so nobody sees half of one.
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
import shutil
import struct
import uuid
import zlib
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from harness_durable import clock
from harness_durable.errors import BadInput, LogTooNew, NotFound
from harness_durable.world import (
    MAX_BLOB,
    MAX_RECORD,
    Record,
    RowUpdate,
    StoredRecord,
    check_session_id,
    stamped,
)
from harness_durable_worlds._file_disk import (
    exists,
    make_folder,
    read_file,
    replace_file,
    sync_folder,
    unavailable,
)
from harness_durable_worlds._file_frames import FORMAT, Header, encode_batch, encode_header, salt_of
from harness_durable_worlds._file_log import SUFFIX, Log

_SHA = re.compile(r"[0-9a-f]{64}")
_SNAPSHOT = struct.Struct("<4sIQI")
_SNAPSHOT_MAGIC = b"DHS1"
_LEFT_OVER_SECONDS = 3600
_NEW, _GONE, _AHEAD = ".new-", ".gone-", ".ahead-"


Batch = tuple[int, Sequence[Record]]
"""A writer's epoch, and what it wrote at once."""


class Store:
    """The folders of one app. All calls are blocking, and safe from any thread."""

    def __init__(self, root: Path, app: str) -> None:
        self.root, self.app = root, root / app
        self.sessions, self.due, self.workers = self.app / "sessions", self.app / "due", self.app / "workers"

    def prepare(self, url: str = "") -> None:
        """Make the folders, check the version. Raises ``StorageUnavailable`` or ``LogTooNew``. ``url`` is
        what people called the World."""
        otherwise = (
            f"make its folder writable for user {os.getuid()}, "
            "or name another World with HARNESS_DURABLE_WORLD"
        )
        with unavailable(f"cannot use {url or self.root} as a World", otherwise=otherwise):
            self._check_version()
            made = [folder for folder in (self.sessions, self.due, self.workers) if make_folder(folder)]
            for folder in (self.app, self.root):  # another process may have died between making and syncing
                sync_folder(folder)
            probe = self.app / f"{_NEW}{uuid.uuid4().hex}"
            probe.touch()
            probe.unlink()
        if not made:
            self._clear_leftovers()

    def made(self) -> bool:
        """Whether the World is there already. One that cannot be looked at counts: to open it says why."""
        try:
            return exists(self.root / "VERSION")
        except OSError:
            return True

    def folder(self, session: str) -> Path:
        """Where the session lives. Raises ``BadInput`` for what cannot be a session's id."""
        return self.sessions / check_session_id(session)

    def log(self, session: str) -> Log:
        return Log(self.folder(session), self.due / session)

    def names(self) -> list[str]:
        """Ids of all sessions, sorted."""
        with unavailable(f"cannot list {self.sessions}"):
            return sorted(name for name in os.listdir(self.sessions) if name[0] != ".")  # noqa: PTH208

    def names_due(self) -> list[str]:
        """Ids of sessions that may be due."""
        with unavailable(f"cannot list {self.due}"):
            return sorted(name for name in os.listdir(self.due) if name[0] != ".")  # noqa: PTH208

    def forget_due(self, names: Iterable[str]) -> None:
        """Remove entries of the index for sessions that do not exist, unless they may be on their way."""
        with unavailable(f"cannot clean {self.due}"):
            for name in names:
                path = self.due / name
                with contextlib.suppress(FileNotFoundError):
                    if clock.now_ms() / 1000 - path.stat().st_mtime > _LEFT_OVER_SECONDS:
                        path.unlink()

    def ring(self) -> None:
        """Tell other processes that a session may have become due or free. A hint: it may fail."""
        with contextlib.suppress(OSError):
            (self.due / ".bell").touch()

    def create(
        self, session: str, batches: Sequence[Batch], blobs: Mapping[str, bytes], row: RowUpdate
    ) -> bool:
        """A new session, all at once; False if it exists."""
        target = self.folder(session)
        if exists(target):
            return False
        made = self.sessions / f"{_NEW}{uuid.uuid4().hex}"
        with unavailable(f"could not create session {session!r}"):
            try:
                made.mkdir()
                self._link_ahead(session, made)
                self.put_blobs(made, blobs)
                epoch = max((batch[0] for batch in batches), default=0)
                replace_file(
                    made / f"{epoch}{SUFFIX}", _first_segment(session, epoch, batches, row), sync=True
                )
                sync_folder(made)
                if row.due is not None:
                    (self.due / session).touch()
                return self._put_in_place(made, target)
            finally:
                shutil.rmtree(made, ignore_errors=True)

    def _put_in_place(self, made: Path, target: Path) -> bool:
        try:
            made.rename(target)
        except OSError as error:
            if error.errno in (errno.ENOTEMPTY, errno.EEXIST):
                return False
            raise
        sync_folder(self.sessions)
        shutil.rmtree(self._ahead(target.name), ignore_errors=True)
        return True

    def remove(self, session: str) -> None:
        """The session's folder is gone, and then its content."""
        self.remove_ahead(session)
        gone = self.sessions / f"{_GONE}{uuid.uuid4().hex}"
        with unavailable(f"could not delete session {session!r}"):
            self.folder(session).rename(gone)
            sync_folder(self.sessions)
            (self.due / session).unlink(missing_ok=True)
            logs = [path for path in gone.iterdir() if path.suffix == SUFFIX and path.stem.isdigit()]
            for path in sorted(logs, key=lambda path: int(path.stem)):
                path.unlink()  # the newest last: whoever has one open must see that it is gone
            shutil.rmtree(gone)

    def remove_app(self) -> None:
        """The app's folder is gone. Raises ``BadInput`` if it has sessions."""
        if self.names():
            raise BadInput(f"app {self.app.name!r} has sessions; delete them first")
        with unavailable(f"could not remove app {self.app.name!r}"):
            shutil.rmtree(self.app)
            sync_folder(self.root)

    def put_blobs(self, folder: Path, blobs: Mapping[str, bytes], settled: set[str] | None = None) -> None:
        """Durable on return. A name that exists is kept. ``settled``: folders of this very session whose own
        entry is known to be durable; others are added to it."""
        if not blobs:
            return
        settled = set() if settled is None else settled
        with unavailable(f"could not store blobs of {folder.name}"):
            places = {folder / "blobs", *(_blob_path(folder, sha).parent for sha in blobs)}
            fresh = {place for place in places if str(place) not in settled}
            for place in sorted(fresh):  # a session that was deleted must not come back
                make_folder(place, above=False, sync=False)
            for sha, data in blobs.items():
                path = _blob_path(folder, sha)
                if not exists(path):
                    replace_file(path, data, sync=True)
            # Also what was there: another process may have died between making and syncing.
            touched = {_blob_path(folder, sha).parent for sha in blobs} | {place.parent for place in fresh}
            for parent in sorted(touched, reverse=True):
                sync_folder(parent)
        settled.update(map(str, fresh))

    def put_blobs_beside(self, log: Log, blobs: Mapping[str, bytes]) -> None:
        """For an append to that log."""
        self.put_blobs(log.folder, blobs, log.blob_folders if log.ready() else None)

    def put_blobs_of(self, session: str, blobs: Mapping[str, bytes]) -> None:
        """See ``World.put_blobs``."""
        folder, ahead = self.folder(session), self._ahead(session)
        if not exists(folder):
            with unavailable(f"could not store blobs of {session!r}"):
                make_folder(ahead)
            self.put_blobs(ahead, blobs)
        if exists(folder):  # perhaps since just now, without these blobs
            self.put_blobs(folder, blobs)

    def missing_blobs(self, session: str, names: Iterable[str]) -> set[str]:
        """Those that are stored neither in the session nor ahead of it."""
        places = (self.folder(session), self._ahead(session))
        with unavailable(f"could not look for blobs of {session!r}"):
            return {
                name
                for name in names
                if not any(_SHA.fullmatch(name) and exists(_blob_path(place, name)) for place in places)
            }

    def remove_ahead(self, session: str) -> bool:
        """Remove what came before the session; true if there was something, and there is no session."""
        ahead = self._ahead(session)
        if not exists(ahead):
            return False
        with unavailable(f"could not delete blobs of {session!r}"):
            shutil.rmtree(ahead)
            sync_folder(self.sessions)
        return not exists(self.folder(session))

    def _link_ahead(self, session: str, made: Path) -> None:
        """The blobs that came before a session, in its folder. They are also left where they were: until the
        session is in its place, it may yet fail."""
        found = list((self._ahead(session) / "blobs").glob("??/*"))
        folders = {made / "blobs" / path.parent.name for path in found}
        for folder in folders:
            make_folder(folder)
        for path in found:
            if _SHA.fullmatch(path.name):
                os.link(path, _blob_path(made, path.name))
        for folder in folders:
            sync_folder(folder)

    def _ahead(self, session: str) -> Path:
        return self.sessions / f"{_AHEAD}{check_session_id(session)}"

    def blob(self, session: str, sha: str) -> bytes:
        folder = self.existing(session)
        data = None
        if _SHA.fullmatch(sha):
            with unavailable(f"could not read blob {sha} of {session!r}"):
                data = read_file(_blob_path(folder, sha))
        if data is None:
            raise NotFound(f"session {session!r} has no blob {sha[:80]!r}; read the log for those it names")
        return data

    def blob_names(self, session: str) -> list[str]:
        folder = self.existing(session) / "blobs"
        return sorted(path.name for path in folder.glob("??/*") if _SHA.fullmatch(path.name))

    def existing(self, session: str) -> Path:
        """The session's folder. Raises ``NotFound``."""
        folder = self.folder(session)
        if not exists(folder):
            raise NotFound(f"no session {session!r} here; `harness-durable sessions` lists them")
        return folder

    def put_snapshot(self, session: str, seq: int, record: bytes, data: bytes) -> None:
        """``record`` is the id of record ``seq``: a snapshot is of one history, not of a number."""
        content = struct.pack("<I", len(record)) + record + data
        head = _SNAPSHOT.pack(_SNAPSHOT_MAGIC, zlib.crc32(content, seq & 0xFFFFFFFF), seq, len(content))
        with unavailable(f"could not store the snapshot of {session!r}"):
            replace_file(self.existing(session) / "snapshot", head + content, sync=True)

    def snapshot(self, session: str) -> tuple[int, bytes, bytes] | None:
        """(seq, record id, data), or None if there is none that is whole."""
        data = self._small(session, "snapshot")
        if data is None or len(data) < _SNAPSHOT.size + 4:
            return None
        magic, crc, seq, length = _SNAPSHOT.unpack_from(data)
        content = data[_SNAPSHOT.size :]
        if magic != _SNAPSHOT_MAGIC or len(content) != length or zlib.crc32(content, seq & 0xFFFFFFFF) != crc:
            return None
        (cut,) = struct.unpack_from("<I", content)
        return seq, content[4 : 4 + cut], content[4 + cut :]

    def put_progress(self, session: str, data: bytes) -> None:
        with unavailable(f"could not store the progress of {session!r}"):
            replace_file(self.existing(session) / "progress", data, sync=False)

    def progress(self, session: str) -> bytes | None:
        return self._small(session, "progress")

    def _small(self, session: str, name: str) -> bytes | None:
        path = self.existing(session) / name
        with unavailable(f"could not read the {name} of {session!r}"):
            return read_file(path)

    def _check_version(self) -> None:
        path = self.root / "VERSION"
        text = (read_file(path) or b"").strip()
        if text.isdigit() and int(text) > FORMAT:
            raise LogTooNew(str(path), int(text), FORMAT)
        if text.isdigit():
            return
        make_folder(self.root)
        replace_file(path, f"{FORMAT}\n".encode(), sync=True)
        sync_folder(self.root)

    def _clear_leftovers(self) -> None:
        """What died on its way in or out. Recent ones may still be at work and are left alone."""
        for name in os.listdir(self.sessions):  # noqa: PTH208
            if name.startswith((_NEW, _GONE)):
                path = self.sessions / name
                with contextlib.suppress(OSError):
                    if clock.now_ms() / 1000 - path.stat().st_mtime > _LEFT_OVER_SECONDS:
                        shutil.rmtree(path, ignore_errors=True)


def check_records(records: Sequence[Record | StoredRecord]) -> None:
    """Raises ``BadInput`` before anything is stored."""
    for record in records:
        if len(record.body) > MAX_RECORD:
            raise BadInput(
                f"record {record.id!r} has {len(record.body)} bytes, the most is {MAX_RECORD}; "
                "put what is large into a blob"
            )


def check_blobs(blobs: Mapping[str, bytes]) -> None:
    """Raises ``BadInput`` before anything is stored."""
    for sha, data in blobs.items():
        if not _SHA.fullmatch(sha):
            raise BadInput(f"{sha[:80]!r} cannot name a blob; use the sha256 of its content in hex")
        if len(data) > MAX_BLOB:
            raise BadInput(f"blob {sha} has {len(data)} bytes, the most is {MAX_BLOB}; store it in parts")


def _blob_path(folder: Path, sha: str) -> Path:
    return folder / "blobs" / sha[:2] / sha


def _first_segment(session: str, epoch: int, batches: Sequence[Batch], row: RowUpdate) -> bytes:
    times = [record.time for _, records in batches for record in records] or [clock.now_ms()]
    kept = stamped(row, clock.now_ms())
    header = Header(FORMAT, session, epoch, row=kept, created=times[0], updated=times[-1])
    salt, head = salt_of(session, epoch), 0
    parts = [encode_header(salt, 0, header)]
    for writer, records in batches:
        parts.append(encode_batch(salt, head, writer, records, None))
        head += len(records)
    return b"".join(parts)
