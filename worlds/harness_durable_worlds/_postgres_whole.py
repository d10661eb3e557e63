"""Whole sessions: removed, or put in from an export. Each in one transaction, which can be repeated."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from harness_durable import clock
from harness_durable.errors import BadInput
from harness_durable.world import StoredRecord
from harness_durable_worlds import _postgres_blobs as blob_rows
from harness_durable_worlds import _postgres_claims as claims
from harness_durable_worlds import _postgres_log as log
from harness_durable_worlds import _postgres_pages as pages
from harness_durable_worlds._checks import no_session
from harness_durable_worlds._postgres_db import Connection
from harness_durable_worlds._postgres_lane import Lane
from harness_durable_worlds._postgres_liveness import Judge

_TABLES = ("event", "piece", "snapshot", "progress", "session")
_CHUNK = 500


async def delete_session(lane: Lane, key: log.Key, judge: Judge) -> None:
    """And blobs that came before it. Raises ``NotFound`` if there is neither, and ``SessionBusy`` if a live
    worker holds it."""
    committing = False

    async def work(db: Connection) -> None:
        nonlocal committing
        async with claims.transaction(db):
            rows = await db.write("lock_all", *key)
            if rows:
                owner = log.owner_of(rows[0][3:6])
                claims.check_free(key[1], owner, await claims.verdicts(db, key[0], judge))
            ahead = (await db.write("delete_blob", *key))[0][0]
            if not rows and not ahead and not committing:  # else the answer to an earlier COMMIT was lost
                raise no_session(key[1])
            for table in _TABLES:
                await db.write(f"delete_{table}", *key)
            committing = True

    await lane.do(work)


async def restore_session(
    lane: Lane,
    key: log.Key,
    records: Sequence[StoredRecord],
    blobs: Mapping[str, bytes],
    row: tuple[str, int | None, int | None],
) -> None:
    """Raises ``BadInput`` if it exists."""
    rows = await blob_rows.prepare(lane, key, blobs)
    created = min((record.time for record in records), default=clock.now_ms())
    epoch = max((record.epoch for record in records), default=0)
    committing = False

    async def work(db: Connection) -> None:
        nonlocal committing
        async with claims.transaction(db):
            values = (len(records), epoch, *row, created, clock.now_ms())
            if not await db.write("restore", *key, *values):
                if committing and await pages.holds(db, key, records):
                    return  # the answer to an earlier COMMIT was lost
                raise BadInput(f"session {key[1]!r} exists already; import it with `--as NAME`")
            for start in range(0, len(records), _CHUNK):
                part = [(key[1], record) for record in records[start : start + _CHUNK]]
                await db.write("restore_events", key[0], *log.columns(key[0], part))
            for blob in rows:
                await db.write("put_blob", *key, *blob)
            committing = True

    async with blob_rows.named(lane, key, rows):
        await lane.do(work)
