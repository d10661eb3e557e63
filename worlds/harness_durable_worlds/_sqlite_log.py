"""Records, blobs and rows of one session, as plain functions on a connection.

Those that write are called within ``begin immediate``, so that what they read stays true until the commit;
they check everything before they write anything. ``key`` is always (app, session).
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import cast

import apsw
import msgspec

from harness_durable import clock
from harness_durable.errors import BadInput, Conflict, DamagedLog, NotFound, WriterFenced
from harness_durable.world import (
    Owner,
    Record,
    RowUpdate,
    Salvage,
    SessionRow,
    StoredRecord,
    stamped,
)
from harness_durable_worlds._checks import no_session
from harness_durable_worlds._sqlite_db import Db
from harness_durable_worlds._sqlite_sql import SQL

Key = tuple[str, str]
_EventRow = tuple[int, int, str, str, int, bytes, int]
RowFields = tuple[int, int, str, int | None, int, int, str | None, str | None, int | None]

NO_LIMIT = -1


class Damage(msgspec.Struct, frozen=True):
    """A record that cannot be given: its place, and what is wrong with it."""

    seq: int
    reason: str


def head_and_epoch(db: Db, key: Key) -> tuple[int, int]:
    """Raises ``NotFound``."""
    found = db.execute(SQL["select_head"], key).fetchone()
    if found is None:
        raise no_session(key[1])
    return cast(tuple[int, int], found)


def row_of(session: str, fields: RowFields, is_alive: Callable[[str], bool]) -> SessionRow:
    owner = owner_of(fields)
    alive = owner is not None and is_alive(owner.worker)
    return SessionRow(session, *fields[:6], owner=owner, owner_alive=alive)


def owner_of(fields: RowFields) -> Owner | None:
    worker, host, pid = fields[6:]
    return None if worker is None else Owner(worker, host or "", pid or 0)


def row_fields(db: Db, key: Key) -> RowFields:
    """Raises ``NotFound``."""
    found = db.execute(SQL["select_session"], key).fetchone()
    if found is None:
        raise no_session(key[1])
    return cast(RowFields, found)


def exists(db: Db, key: Key) -> bool:
    return db.execute(SQL["select_head"], key).fetchone() is not None


# ------------------------------------------------------------------------------------------- write


def create(db: Db, key: Key, records: Sequence[Record], row: RowUpdate) -> bool:
    if exists(db, key):
        return False
    now = clock.now_ms()
    db.execute(SQL["insert_session"], (*key, len(records), 0, *_columns(row, now), now, now))
    _insert(db, key, _numbered(records, 0, 0))
    return True


def append(
    db: Db,
    key: Key,
    expected_head: int,
    epoch: int,
    records: Sequence[Record],
    blobs: Mapping[str, bytes],
    row: RowUpdate | None,
) -> int:
    """See ``World.append``. The order of the checks matters: what has happened is told even to a writer
    that was superseded since, and a superseded writer is told so before any conflict."""
    head, newest = head_and_epoch(db, key)
    if head > expected_head and records and holds(db, key, expected_head, records):
        return expected_head + len(records)
    if epoch > 0 and epoch != newest:
        raise WriterFenced(key[1], epoch, newest)
    if head != expected_head:
        raise Conflict(key[1], expected_head, read(db, key, expected_head, None))
    put_blobs(db, key, blobs)
    _insert(db, key, _numbered(records, head, epoch))
    move_head(db, key, head + len(records), row)
    return head + len(records)


def move_head(db: Db, key: Key, head: int, row: RowUpdate | None) -> None:
    now = clock.now_ms()
    if row is None:
        db.execute(SQL["move_head"], (head, now, *key))
    else:
        db.execute(SQL["move_head_and_row"], (head, now, *_columns(row, now), *key))


def _columns(row: RowUpdate, now: int) -> tuple[str, int | None]:
    kept = stamped(row, now)
    return kept.status, kept.due


def holds(db: Db, key: Key, after: int, records: Sequence[Record] | Sequence[StoredRecord]) -> bool:
    """Whether exactly these records, by id, stand right after ``after``."""
    found = db.execute(SQL["select_ids"], (*key, after, len(records))).fetchall()
    return [rid for (rid,) in found] == [record.id for record in records]


def add(db: Db, key: Key, head: int, epoch: int, record: Record) -> None:
    """Put one record at ``head`` + 1; the caller moves the head."""
    _insert(db, key, _numbered([record], head, epoch))


def restore(
    db: Db,
    key: Key,
    records: Sequence[StoredRecord],
    blobs: Mapping[str, bytes],
    row: RowUpdate,
) -> None:
    if exists(db, key):
        raise BadInput(f"session {key[1]!r} exists already; import it with `--as NAME`")
    now = clock.now_ms()
    created = min((record.time for record in records), default=now)
    epoch = max((record.epoch for record in records), default=0)
    db.execute(SQL["insert_session"], (*key, len(records), epoch, *_columns(row, now), created, now))
    put_blobs(db, key, blobs)
    _insert(db, key, records)


def put_blobs(db: Db, key: Key, blobs: Mapping[str, bytes]) -> None:
    """A name that exists is kept. The session need not exist."""
    for sha, body in blobs.items():
        db.execute(SQL["insert_blob"], (*key, sha, body, zlib.crc32(body)))


def delete(db: Db, key: Key) -> None:
    # What was deleted shall not be found in the free pages of the file either.
    db.execute("pragma secure_delete = on")
    try:
        for table in ("events", "blobs", "snapshot", "progress", "session"):
            db.execute(SQL[f"delete_{table}"], key)
    finally:
        db.execute("pragma secure_delete = off")


def _numbered(records: Sequence[Record], head: int, epoch: int) -> list[StoredRecord]:
    return [
        StoredRecord(seq, epoch, record.id, record.kind, record.time, record.body)
        for seq, record in enumerate(records, head + 1)
    ]


def _insert(db: Db, key: Key, records: Sequence[StoredRecord]) -> None:
    db.executemany(
        SQL["insert_event"],
        (
            (*key, each.seq, each.epoch, each.id, each.kind, each.time, each.body, checksum(key, each))
            for each in records
        ),
    )


# -------------------------------------------------------------------------------------------- read


def checksum(key: Key, record: StoredRecord) -> int:
    """crc32 of all that the record's row says."""
    head = f"{key[0]}\0{key[1]}\0{record.seq}\0{record.epoch}\0{record.id}\0{record.kind}\0{record.time}\0"
    return zlib.crc32(record.body, zlib.crc32(head.encode("utf-8", "surrogatepass")))


def read(db: Db, key: Key, after: int, limit: int | None) -> list[StoredRecord]:
    """See ``World.read``: the good records up to the first damaged one, which is raised when it comes first.

    Within a transaction, so that the head and the records are of one moment."""
    head, _ = head_and_epoch(db, key)
    wanted = max(0, head - max(after, 0))
    if limit is not None:
        wanted = min(wanted, limit)
    good: list[StoredRecord] = []
    try:
        for row in db.execute(SQL["select_events"], (*key, max(after, 0), wanted)):
            record = _checked(key, cast(_EventRow, row), max(after, 0) + len(good) + 1)
            if isinstance(record, Damage):
                break
            good.append(record)
    except apsw.CorruptError:
        pass  # told below, by the record that is missing
    if wanted and not good:
        first = _one(db, key, max(after, 0) + 1)
        if isinstance(first, StoredRecord):
            return [first]  # it can be read by itself, though not on the way to others
        raise _damaged(db, key, first, head)
    return good


def salvage(db: Db, key: Key) -> Salvage:
    """Record by record through the index, so that a bad page costs the records on it and no others; where
    the index itself is bad, through the whole table."""
    head, _ = head_and_epoch(db, key)
    found = [_one(db, key, seq) for seq in range(1, head + 1)]
    if any(isinstance(each, Damage) for each in found):
        for record in _scan(db, key):
            if record.seq <= head:
                found[record.seq - 1] = record
    return Salvage(
        [each for each in found if isinstance(each, StoredRecord)],
        [_damaged(db, key, each, head) for each in found if isinstance(each, Damage)],
    )


def _scan(db: Db, key: Key) -> Iterator[StoredRecord]:
    """The good records of a session, found without the index."""
    last = db.execute(SQL["last_id"]).fetchone()
    for number in range(1, cast(int, last[0] or 0) + 1 if last else 0):
        with suppress(apsw.CorruptError):
            for row in db.execute(SQL["scan_events"], (number, *key)):
                record = _checked(key, cast(_EventRow, row), cast(int, row[0]))
                if isinstance(record, StoredRecord):
                    yield record


def _one(db: Db, key: Key, seq: int) -> StoredRecord | Damage:
    try:
        row = db.execute(SQL["select_event"], (*key, seq)).fetchone()
    except apsw.CorruptError as error:
        return Damage(seq, str(error))
    return Damage(seq, "its row is missing") if row is None else _checked(key, cast(_EventRow, row), seq)


def _checked(key: Key, row: _EventRow, seq: int) -> StoredRecord | Damage:
    record = StoredRecord(*row[:6])
    if record.seq != seq:
        return Damage(seq, "its row is missing")
    return record if checksum(key, record) == row[6] else Damage(seq, "its checksum does not match")


def _damaged(db: Db, key: Key, damage: Damage, head: int) -> DamagedLog:
    seq = damage.seq
    return DamagedLog(
        f"{db.filename}: record {seq} of session {key[1]!r}",
        0,
        None,
        f"{damage.reason}; records 1 to {seq - 1} and from {seq + 1} to {head} are not touched by it",
    )


def blob(db: Db, key: Key, sha: str) -> bytes:
    found = db.execute(SQL["select_blob"], (*key, sha)).fetchone()
    if found is None:
        head_and_epoch(db, key)
        raise NotFound(f"session {key[1]!r} has no blob {sha}; it was pruned, or never stored here")
    body, crc = cast(tuple[bytes, int], found)
    if zlib.crc32(body) != crc:
        raise DamagedLog(
            f"{db.filename}: blob {sha} of session {key[1]!r}", 0, len(body), "all other blobs can be read"
        )
    return body
