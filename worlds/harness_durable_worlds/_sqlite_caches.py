"""What may be lost: a session's snapshot and its progress. And which blobs there are."""

from __future__ import annotations

import zlib
from collections.abc import Iterable
from typing import cast

import apsw

from harness_durable_worlds._sqlite_db import Db
from harness_durable_worlds._sqlite_log import Key, head_and_epoch
from harness_durable_worlds._sqlite_sql import SQL


def put_snapshot(db: Db, key: Key, seq: int, data: bytes) -> None:
    head_and_epoch(db, key)
    db.execute(SQL["put_snapshot"], (*key, seq, data, zlib.crc32(data, seq)))


def snapshot(db: Db, key: Key) -> tuple[int, bytes] | None:
    """A damaged snapshot is none: it is a cache."""
    head_and_epoch(db, key)
    try:
        found = db.execute(SQL["select_snapshot"], key).fetchone()
    except apsw.CorruptError:
        return None
    if found is None:
        return None
    seq, data, crc = cast(tuple[int, bytes, int], found)
    return (seq, data) if zlib.crc32(data, seq) == crc else None


def put_progress(db: Db, key: Key, data: bytes) -> None:
    head_and_epoch(db, key)
    db.execute(SQL["put_progress"], (*key, data))


def progress(db: Db, key: Key) -> bytes | None:
    head_and_epoch(db, key)
    found = db.execute(SQL["select_progress"], key).fetchone()
    return None if found is None else cast(bytes, found[0])


def blob_names(db: Db, key: Key, after: str) -> list[str]:
    """Up to 100 names after ``after``, in order."""
    found = db.execute(SQL["select_blob_names"], (*key, after)).fetchall()
    return [cast(str, name) for (name,) in found]


def missing_blobs(db: Db, key: Key, names: Iterable[str]) -> set[str]:
    """Those that are not stored for this session, which need not exist."""
    return {name for name in names if db.execute(SQL["has_blob"], (*key, name)).fetchone() is None}
