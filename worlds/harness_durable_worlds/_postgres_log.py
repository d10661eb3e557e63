"""Records and rows of one session: what may be stored, and how it looks in the tables. Pure."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterable, Sequence
from typing import cast

from harness_durable.world import (
    Owner,
    Record,
    RowUpdate,
    SessionRow,
    StoredRecord,
)
from harness_durable_worlds._postgres_db import Row

Key = tuple[str, str]
"""(app, session)"""


def checksum(key: Key, record: StoredRecord) -> int:
    """crc32 of all that the record's row says."""
    head = f"{key[0]}\0{key[1]}\0{record.seq}\0{record.epoch}\0{record.id}\0{record.kind}\0{record.time}\0"
    return zlib.crc32(record.body, zlib.crc32(head.encode("utf-8", "surrogatepass")))


# ------------------------------------------------------------------------------------------- write


def numbered(records: Sequence[Record], head: int, epoch: int) -> list[StoredRecord]:
    """The records as they will stand after ``head``."""
    return [
        StoredRecord(seq, epoch, record.id, record.kind, record.time, record.body)
        for seq, record in enumerate(records, head + 1)
    ]


def columns(app: str, records: Iterable[tuple[str, StoredRecord]]) -> list[list[object]]:
    """Arrays for the statements that insert records: session, seq, epoch, id, kind, time, crc, body."""
    rows = [
        (
            session,
            each.seq,
            each.epoch,
            each.id,
            each.kind,
            each.time,
            checksum((app, session), each),
            each.body,
        )
        for session, each in records
    ]
    return [list(column) for column in zip(*rows, strict=True)] or [[] for _ in range(8)]


# -------------------------------------------------------------------------------------------- rows


def row_of(row: Row, alive: Callable[[str], bool]) -> SessionRow:
    """A row of the statements ``row`` and ``rows``."""
    session, head, epoch, status, due, created, updated = cast(
        "tuple[str, int, int, str, int | None, int, int]", tuple(row[:7])
    )
    owner = owner_of(row[7:10])
    live = owner is not None and alive(owner.worker)
    return SessionRow(session, head, epoch, status, due, created, updated, owner, live)


def owner_of(fields: Row) -> Owner | None:
    worker, host, pid = cast("tuple[str | None, str | None, int | None]", tuple(fields))
    return None if worker is None else Owner(worker, host or "", pid or 0)


def due_of(row: RowUpdate, translate: Callable[[int], int]) -> tuple[str, int | None, int | None]:
    """Columns status, due and due_at."""
    return row.status, row.due, None if row.due is None else translate(row.due)
