"""The only thread of this process that writes. Whatever is queued when it is free becomes one transaction.

What surprises: an error at COMMIT is never answered by committing again. The connection is closed, and a
second transaction asks what is there, and writes: SQLite leaves the frames of a failed commit in its log, and
only a later commit overwrites them, so that a crash cannot bring them back (W11).
"""

from __future__ import annotations

import asyncio
import queue
from collections.abc import Callable
from pathlib import Path
from typing import cast

import apsw

from harness_durable.errors import HarnessDurableError
from harness_durable_worlds import _sqlite_file as file
from harness_durable_worlds._sqlite_db import Db
from harness_durable_worlds._sqlite_lane import AnyJob, Job, Lane, T
from harness_durable_worlds._sqlite_sql import SQL

CHECKPOINT_BYTES = 8 << 20
IDLE_SECONDS = 1.0
VACUUM_PAGES = 2_000
"""Pages given back to the file system at a time, between two groups."""

Chore = Callable[[Db], None]


class Writer(Lane):
    write = True

    def __init__(self, path: Path) -> None:
        self._pending: list[AnyJob] = []
        self._chores: list[Chore] = []
        self._closed = False
        self._wal_pages = 0
        self._checkpoint_at = CHECKPOINT_BYTES // file.PAGE
        self._dirty = self._vacuum = False
        self._full = True
        self._doubt = False
        self.checkpoint_failure = ""
        super().__init__(path, queue.SimpleQueue())

    # -------------------------------------------------------------------------------- in the loop

    async def do(self, job: Job[T]) -> T:
        """Have it done in the next group. If the task is cancelled meanwhile, it is done all the same."""
        if self._closed:
            raise file.closed(self._path)
        if not self._pending:
            asyncio.get_running_loop().call_soon(self._hand_over)
        self._pending.append(cast(AnyJob, job))
        return await job.future

    def chore(self, chore: Chore) -> None:
        """Have it done at the beginning of the next group that succeeds, however long that takes."""
        self._chores.append(chore)
        if not self._closed:
            self._jobs.put([])

    def close(self) -> None:
        """Finish what is queued, then end the thread."""
        if not self._closed:
            self._closed = True
            self._hand_over()
            self._jobs.put(None)

    def _hand_over(self) -> None:
        if self._pending:
            self._jobs.put(self._pending)
            self._pending = []

    # ------------------------------------------------------------------------------ in the thread

    def _rounds(self) -> None:
        stop = False
        while not stop:
            try:
                jobs = self._jobs.get(timeout=self._patience())
            except queue.Empty:
                self._housekeeping(idle=True)
                continue
            group: list[AnyJob] = []
            while jobs is not None:
                group += jobs
                try:
                    jobs = self._jobs.get_nowait()
                except queue.Empty:
                    break
            else:
                stop = True
            if group or self._chores:
                self._answered(group, self._group)
                self._housekeeping(idle=False)

    def _patience(self) -> float | None:
        if self._vacuum:
            return 0.01
        return IDLE_SECONDS if self._dirty else None

    def _group(self, jobs: list[AnyJob]) -> None:
        chores = self._chores[:]
        try:
            connection = self._ready()
            self._set_sync(connection, full=bool(chores) or any(job.durable for job in jobs))
            connection.execute("begin immediate")
            for chore in chores:
                chore(connection)
            for job in jobs:
                self._one(connection, job)
        except (apsw.Error, HarnessDurableError) as error:
            self._fail(jobs, error, unclear=False)
        else:
            try:
                connection.execute("commit")
            except apsw.Error as error:
                if _unwritten(error) and not self._doubt:
                    self._fail(jobs, error, unclear=False)
                else:
                    self._settle(jobs, error)
            else:
                del self._chores[: len(chores)]

    def _one(self, connection: Db, job: AnyJob) -> None:
        connection.execute("savepoint job")
        job.attempt(connection)
        if job.failed:
            connection.execute("rollback to job")
        connection.execute("release job")

    def _settle(self, jobs: list[AnyJob], error: apsw.Error) -> None:
        """Nobody knows whether the commit happened: close, look, and make the finding durable."""
        self._drop()
        try:
            connection = self._ready()
            self._set_sync(connection, full=True)
            connection.execute("begin immediate")
            landed = [job.landed is not None and job.landed(connection) for job in jobs]
            connection.execute(SQL["settle"])
            connection.execute("commit")
        except (apsw.Error, HarnessDurableError):
            self._doubt = True
            self._fail(jobs, error, unclear=True)
            return
        for job, there in zip(jobs, landed, strict=True):
            if not there:
                job.fail(file.explain(error, self._path, unclear=job.landed is None))

    def _fail(self, jobs: list[AnyJob], error: Exception, *, unclear: bool) -> None:
        self._drop()
        for job in jobs:
            doubt = unclear and not job.failed
            job.fail(
                file.explain(error, self._path, unclear=doubt) if isinstance(error, apsw.Error) else error
            )

    def _ready(self) -> Db:
        before = self._connection
        connection = super()._ready()
        if connection is not before:
            self._full = True
            connection.set_wal_hook(self._committed)
        return connection

    def _set_sync(self, connection: Db, *, full: bool) -> None:
        """Groups of caches and progress alone need no sync; the next one that syncs carries them along."""
        if full != self._full:
            connection.execute(f"pragma synchronous = {'full' if full else 'normal'}")
            self._full = full

    # -------------------------------------------------------------------------------- housekeeping

    def _committed(self, _: object, __: str, pages: int) -> int:
        """SQLite calls this after a commit that has written."""
        self._wal_pages, self._dirty, self._doubt = pages, True, False
        return apsw.SQLITE_OK

    def reclaim(self) -> None:
        """Give free pages back to the file system, bit by bit. Called by a job that has deleted much."""
        self._vacuum = True

    def _housekeeping(self, *, idle: bool) -> None:
        """Checkpoints and vacuum. Their failure harms no append: it is reported, and tried again later."""
        try:
            if self._vacuum:
                self._vacuum_some()
            if self._dirty and (idle or self._wal_pages >= self._checkpoint_at):
                self._checkpoint(apsw.SQLITE_CHECKPOINT_PASSIVE)
            self.checkpoint_failure = ""
        except (apsw.Error, HarnessDurableError) as error:
            self._drop()
            self._dirty = self._vacuum = False
            self.checkpoint_failure = str(error)

    def _vacuum_some(self) -> None:
        connection = self._ready()
        for _ in connection.execute(f"pragma incremental_vacuum({VACUUM_PAGES})"):
            pass
        self._vacuum = bool(connection.pragma("freelist_count"))

    def _checkpoint(self, mode: int) -> None:
        in_log, copied = self._ready().wal_checkpoint(mode=mode)
        # A reader may hold back the rest; not before as much has come again is it worth another try.
        self._checkpoint_at = CHECKPOINT_BYTES // file.PAGE + (in_log if copied < in_log else 0)
        self._dirty = False

    def _finish(self) -> None:
        """Empty the write-ahead log if nobody else uses it."""
        if self._connection is not None:
            self._connection.set_busy_handler(None)
            try:
                self._connection.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_TRUNCATE)
            except apsw.Error as error:
                self.checkpoint_failure = str(error)


def _unwritten(error: apsw.Error) -> bool:
    """Whether a COMMIT failed while it wrote, so that its last frame, which makes it one, is not there.
    Not so with a failed sync: all of it is in the file, and a crash may bring it back."""
    code = getattr(error, "extendedresult", 0)
    return isinstance(error, apsw.FullError) or code == apsw.SQLITE_IOERR_WRITE
