"""The database file: its place, its connections, and what can be wrong with it, in sentences.

What surprises: a connection checks its file by inode (:func:`same_file`), because SQLite goes on writing
into a database that somebody has deleted, and would report success for what nobody will ever find.
"""

from __future__ import annotations

import contextlib
import os
import random
import sys
import threading
from pathlib import Path
from typing import cast

import apsw

from harness_durable import clock
from harness_durable.errors import (
    BadSetting,
    DamagedLog,
    HarnessDurableError,
    LogTooNew,
    StorageUnavailable,
)
from harness_durable.worlds import redact
from harness_durable_worlds._sqlite_db import Db, open_db
from harness_durable_worlds._sqlite_sql import MIGRATIONS, SCHEMA

BUSY_SECONDS = 10.0
"""How long a writer waits for another process before it gives up."""

PAGE = 4096
APPLICATION = 0x48447572
"""``HDur``: marks a database as ours."""

_SHARED = frozenset({"nfs", "nfs4", "cifs", "smb3", "smbfs", "9p", "fuse.sshfs", "afs", "ceph", "glusterfs"})
_VOLATILE = frozenset({"tmpfs", "ramfs"})

_FIXED = (3, 51, 3)
_AFFECTED_SINCE = (3, 7, 0)


def affected(version: str) -> bool:
    """Whether this SQLite can damage a WAL database that two connections write (fixed in 3.51.3)."""
    number = tuple(int(part) for part in version.split(".")[:3])
    return _AFFECTED_SINCE <= number < _FIXED


def path_of(url: str) -> Path:
    """The file that ``sqlite:PATH`` names. Raises ``BadSetting``."""
    text = url.removeprefix("sqlite:")
    if text == ":memory:" or text.startswith("file:") or "mode=memory" in text:
        raise BadSetting(
            f"World URL {url!r}: a database in memory is gone with its process; "
            "name a file, e.g. sqlite:agents.db"
        )
    if text.startswith("//") and not text.startswith("///"):
        raise BadSetting(
            f"World URL {redact(url)!r} names a host; write {redact('sqlite:' + text[2:])} for a relative "
            f"path or {redact('sqlite:/' + text[2:])} for an absolute one"
        )
    if not text or "\0" in text or "?" in text or text.endswith("/"):
        raise BadSetting(f"World URL {url!r} names no file; write sqlite:PATH, e.g. sqlite:agents.db")
    try:
        path = Path("/" + text.lstrip("/") if text.startswith("/") else text).expanduser().absolute()
    except RuntimeError as error:
        raise BadSetting(f"World URL {url!r}: {error}; write the path without its ~") from error
    if path.is_dir():
        raise BadSetting(f"World URL {url!r} names a folder; name a file in it, e.g. sqlite:{text}/agents.db")
    return path


def same_file(path: Path) -> tuple[int, int] | None:
    """What tells this file from any other that has its name; ``None`` if there is none."""
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_dev, found.st_ino


def absent(path: Path) -> bool:
    try:
        path.stat()
    except (FileNotFoundError, NotADirectoryError):
        return True
    except OSError:
        return False
    return False


def gone(path: Path) -> StorageUnavailable:
    return StorageUnavailable(
        f"{path} was deleted or replaced while it was in use; put it back or restore it from a backup, "
        "work then continues by itself"
    )


def closed(path: Path) -> StorageUnavailable:
    return StorageUnavailable(f"the World of {path} is closed; open it again")


def explain(error: apsw.Error, path: Path, *, unclear: bool = False) -> HarnessDurableError:
    """The error of ours for one of SQLite's."""
    if isinstance(error, apsw.NotADBError):
        return BadSetting(
            f"{path} is not a SQLite database, or its first bytes were overwritten; name another file with "
            "HARNESS_DURABLE_WORLD, or restore this one from a backup (nothing was changed)"
        )
    if isinstance(error, apsw.CorruptError):
        return DamagedLog(
            str(path), 0, None, f"SQLite says: {error}; the records on its good pages can still be exported"
        )
    code = getattr(error, "extendedresult", 0)
    name = apsw.mapping_extended_result_codes.get(code, type(error).__name__)
    match error:
        case apsw.FullError():
            sentence = f"no room for {path} ({name}); free space on its disk, work then continues by itself"
        case apsw.BusyError() | apsw.LockedError():
            sentence = (
                f"another process kept {path} locked for {BUSY_SECONDS:.0f} s; "
                "end what holds it (a backup, a shell with an open transaction) and try again"
            )
        case apsw.ReadOnlyError() | apsw.CantOpenError() | apsw.PermissionsError() | apsw.AuthError():
            sentence = (
                f"cannot open {path} for writing ({name}: {error}); make the file and its folder writable "
                f"for user {os.getuid()}, or name another file with HARNESS_DURABLE_WORLD"
            )
        case _:
            sentence = (
                f"{path} cannot be used ({name}: {error}); look after its disk, work then continues by itself"
            )
    return StorageUnavailable(sentence, unclear=unclear)


class Patience:
    """The busy handler: waits 0.2 to 2 ms with jitter, for ``seconds`` in all. SQLite's own steps of up to
    100 ms let one of sixteen writers starve for seconds."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self._until = 0.0
        self._never = threading.Event()

    def __call__(self, tries: int) -> bool:
        if tries == 0:
            self._until = clock.monotonic() + self.seconds
        elif clock.monotonic() >= self._until:
            return False
        self.pause()
        return True

    def pause(self) -> None:
        """Blocks this thread a moment."""
        self._never.wait(random.uniform(0.0002, 0.002))


def create(path: Path, url: str = "") -> None:
    """Make the file and its folders if they are missing, readable by this user only. Safe in a race. ``url``
    is what people called the World."""
    try:
        missing = [folder for folder in path.parents if not folder.exists()]
        path.parent.mkdir(parents=True, exist_ok=True)
        with contextlib.suppress(FileExistsError):
            # Exclusively: closing a file drops every lock that this process has on it, SQLite's too.
            os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
        for folder in [path.parent, *(folder.parent for folder in missing)]:
            _sync_folder(folder)
    except OSError as error:
        raise StorageUnavailable(
            f"cannot use {url or path} as a World: {error.strerror or error}; make its folder writable for "
            f"user {os.getuid()}, or name another World with HARNESS_DURABLE_WORLD"
        ) from error


def connect(path: Path, *, write: bool) -> Db:
    """A connection to the existing database, set up; the schema is brought up to date if ``write``.

    Raises ``apsw.Error``, ``LogTooNew``, and ``BadSetting`` for a database that is not ours.
    """
    flags = apsw.SQLITE_OPEN_READWRITE if write else apsw.SQLITE_OPEN_READONLY
    connection = open_db(path, flags)
    try:
        connection.set_busy_handler(Patience(BUSY_SECONDS))
        connection.execute("pragma cell_size_check = on")
        if write:
            _prepare(connection, path)
        else:
            connection.execute("pragma query_only = on")
    except BaseException:
        connection.close(True)
        raise
    return connection


def _prepare(connection: Db, path: Path) -> None:
    connection.execute("begin")
    found = _schema_of(connection, path)
    connection.execute("commit")
    if found > SCHEMA:
        raise LogTooNew(str(path), found, SCHEMA)
    if found == 0:  # on an existing file, the second one would write at every opening
        connection.execute(f"pragma page_size = {PAGE}")
        connection.execute("pragma auto_vacuum = incremental")
    _use_wal(connection, path)
    connection.execute("pragma synchronous = full")
    connection.execute("pragma wal_autocheckpoint = 0")
    connection.execute(f"pragma journal_size_limit = {16 << 20}")
    if sys.platform == "darwin":
        connection.execute("pragma fullfsync = on")
        connection.execute("pragma checkpoint_fullfsync = on")
    if found < SCHEMA:
        _migrate(connection, path)


def _schema_of(connection: Db, path: Path) -> int:
    version = cast(int, connection.pragma("user_version"))
    mark = connection.pragma("application_id")
    tables = connection.execute("select count(*) from sqlite_schema").fetchone()
    if mark != APPLICATION and (mark or version or tables != (0,)):
        raise BadSetting(
            f"{path} is a database of another program; name another file with HARNESS_DURABLE_WORLD "
            "(nothing was changed)"
        )
    return version


def _use_wal(connection: Db, path: Path) -> None:
    """SQLite does not wait for a lock in this one statement, so that two who create the file collide."""
    patience = Patience(BUSY_SECONDS)
    tries = 0
    while True:
        try:
            answer = connection.pragma("journal_mode", "wal")
            break
        except apsw.BusyError:
            if not patience(tries):
                raise
            tries += 1
    if answer != "wal":
        raise StorageUnavailable(
            f"{path} cannot use a write-ahead log (SQLite answered {answer!r}): its file system has no "
            "shared memory, as on a network share; use a local disk, or Postgres for several hosts"
        )


def _migrate(connection: Db, path: Path) -> None:
    connection.execute("begin immediate")
    try:
        found = _schema_of(connection, path)  # another process may have been faster
        if found > SCHEMA:
            raise LogTooNew(str(path), found, SCHEMA)
        for script in MIGRATIONS[found:]:
            for _ in connection.execute(script):
                pass
        connection.execute(f"pragma user_version = {SCHEMA}")
        connection.execute(f"pragma application_id = {APPLICATION}")
        connection.execute("commit")
    except BaseException:
        if connection.in_transaction:
            connection.execute("rollback")
        raise


def file_system(path: Path) -> str:
    """The kind of file system that holds ``path``, such as ``ext4``; ``unknown`` where it cannot be told."""
    try:
        mounts = Path("/proc/self/mounts").read_text().splitlines()
    except OSError:
        return "unknown"
    best, kind = "", "unknown"
    for line in mounts:
        fields = line.split()
        if len(fields) > 2 and path.is_relative_to(fields[1]) and len(fields[1]) >= len(best):
            best, kind = fields[1], fields[2]
    return kind


def warnings(path: Path, checkpoint_failure: str) -> list[str]:
    """Whole sentences about what weakens this database here."""
    found: list[str] = []
    kind = file_system(path)
    if kind in _SHARED:
        found.append(
            f"{path} is on {kind}, where SQLite's locks may not hold between hosts; use a local disk, "
            "or Postgres for several hosts"
        )
    if kind in _VOLATILE:
        found.append(f"{path} is on {kind}, which forgets everything at a restart; use a disk")
    if checkpoint_failure:
        found.append(
            f"{path}-wal could not be copied into the database ({checkpoint_failure}); nothing is lost, "
            "but it grows until that works"
        )
    return found


def _sync_folder(folder: Path) -> None:
    fd = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
