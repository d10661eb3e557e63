"""The appends of all sessions of this process: whatever is queued when the connection is free becomes one
statement.

What surprises: the statement does not fail for a job that does not fit. It leaves the job out, and then, job
by job, it is looked up why: it has happened before, its writer was superseded, or the head has moved.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from functools import partial
from typing import NamedTuple, cast

from harness_durable import clock
from harness_durable.errors import StorageUnavailable
from harness_durable.world import Record, RowUpdate
from harness_durable_worlds import _postgres_log as log
from harness_durable_worlds._postgres_db import Connection
from harness_durable_worlds._postgres_lane import Job, Lane
from harness_durable_worlds._postgres_line import Store
from harness_durable_worlds._postgres_pages import settle

GROUP_JOBS = 256
GROUP_BYTES = 8 << 20
_FITS_TRIES = 20


class Blob(NamedTuple):
    """As its row says: either with its body, or with the name of the object whose pieces hold it."""

    sha: str
    size: int
    crc: int
    object: str | None
    body: bytes | None


class Append:
    """One append to one session. ``due`` as in ``log.due_of``."""

    def __init__(
        self,
        session: str,
        head: int,
        epoch: int,
        records: Sequence[Record],
        blobs: Sequence[Blob],
        row: RowUpdate | None,
        due_at: int | None,
    ) -> None:
        self.session, self.head, self.epoch = session, head, epoch
        self.records, self.blobs, self.row, self.due_at = records, blobs, row, due_at
        self.size = sum(len(record.body) for record in records) + sum(len(b.body or b"") for b in blobs)


class Done(NamedTuple):
    """``free``: the session is due, or will be, and nobody drives it."""

    head: int
    free: bool


class _AppendJob(Job[Done]):
    def __init__(self, append: Append, lane: Writer) -> None:
        super().__init__(partial(lane.alone, append=append))
        self.append = append


class Writer(Lane):
    """The lane of appends."""

    def __init__(self, store: Store, name: str, app: str) -> None:
        super().__init__(store, name)
        self.app = app

    async def append(self, append: Append) -> Done:
        """Raises as ``World.append`` does."""
        return await self._queued(_AppendJob(append, self)).future

    async def _next(self) -> None:
        group = self._group()
        if len(group) < 2:
            await self._one(cast("Job[object]", group[0]) if group else self._jobs.popleft())
            return
        done: Mapping[str, Done] = {}
        try:
            done = await self._insist(
                lambda db: self._write(db, [job.append for job in group]), group[-1].asked
            )
        except asyncio.CancelledError:
            for job in group:
                job.fail(self._store.closed(unclear=True))
            raise
        except Exception as error:  # it may be about one of them: then they are done one by one
            if isinstance(error, StorageUnavailable) and (error.unclear or not self._line.usable):
                for job in group:
                    job.fail(StorageUnavailable(str(error), unclear=error.unclear))
                return
        for job in group:
            if answer := done.get(job.append.session):
                job.answer(answer)
            else:
                await self._one(cast("Job[object]", job))

    def _group(self) -> list[_AppendJob]:
        """The appends at the beginning of the queue that can go together; each of another session."""
        group, sessions, size = list[_AppendJob](), set[str](), 0
        while self._jobs and len(group) < GROUP_JOBS:
            job = cast(object, self._jobs[0])
            if not isinstance(job, _AppendJob) or job.append.session in sessions:
                break
            size += job.append.size
            if group and size > GROUP_BYTES:
                break
            sessions.add(job.append.session)
            group.append(cast(_AppendJob, self._jobs.popleft()))
        return group

    async def alone(self, db: Connection, append: Append) -> Done:
        """Append it, or raise why not."""
        key = (self.app, append.session)
        for _ in range(_FITS_TRIES):
            if done := (await self._write(db, [append])).get(append.session):
                return done
            end = await settle(db, key, append.head, append.epoch, append.records)
            if end is not None:
                return Done(end, True)
        raise StorageUnavailable(
            f"session {append.session!r} was never at rest in {_FITS_TRIES} tries; try again", unclear=False
        )

    async def _write(self, db: Connection, group: Sequence[Append]) -> Mapping[str, Done]:
        """One statement; the sessions whose append fitted."""
        now, group = clock.now_ms(), sorted(group, key=lambda each: each.session)
        jobs = [
            (
                each.session,
                each.head,
                each.epoch,
                len(each.records),
                now,
                each.row is not None,
                each.row.status if each.row else "",
                each.row.due if each.row else None,
                each.due_at,
            )
            for each in group
        ]
        blobs = [(each.session, *blob) for each in group for blob in each.blobs]
        records = [
            (each.session, stored)
            for each in group
            for stored in log.numbered(each.records, each.head, each.epoch)
        ]
        rows = await db.write(
            "append",
            self.app,
            *_columns(jobs, 9),
            *_columns(blobs, 6),
            *log.columns(self.app, records),
        )
        ends = {each.session: each.head + len(each.records) for each in group}
        return {cast(str, session): Done(ends[cast(str, session)], bool(free)) for session, free in rows}


def _columns(rows: Sequence[Sequence[object]], count: int) -> list[list[object]]:
    return [list(column) for column in zip(*rows, strict=True)] or [[] for _ in range(count)]
