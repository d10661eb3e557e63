"""A thread with a connection of its own, and jobs for it that the event loop hands over.

What surprises: answers go back to the loop once per round, not once per job, and a job's answer may reach
nobody, because the task that waited was cancelled. ``Job.lost`` is for those whose answer must not be lost.
"""

from __future__ import annotations

import asyncio
import contextlib
import queue
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Generic, TypeVar, cast

import apsw

from harness_durable.errors import HarnessDurableError, StorageUnavailable
from harness_durable_worlds import _sqlite_file as file
from harness_durable_worlds._sqlite_db import Db

T = TypeVar("T")

DEADLY = (
    apsw.FullError,
    apsw.IOError,
    apsw.NotADBError,
    apsw.ReadOnlyError,
    apsw.CantOpenError,
    apsw.PermissionsError,
    apsw.BusyError,
    apsw.LockedError,
    apsw.NoMemError,
)
"""Errors after which a connection is closed and opened anew: they are about the file, not about one job."""


class Job(Generic[T]):
    """One thing to do with a connection, and who waits for it.

    ``after`` is called in the loop with the result, even if nobody waits any more; ``lost`` in the loop if
    nobody learns whether it happened. ``landed`` says, after a COMMIT without an answer, whether it did.
    ``durable`` of False: may be lost with the machine, so that nobody has to wait for the disk.
    """

    def __init__(
        self,
        run: Callable[[Db], T],
        *,
        landed: Callable[[Db], bool] | None = None,
        after: Callable[[T], None] | None = None,
        lost: Callable[[], None] | None = None,
        durable: bool = True,
    ) -> None:
        self.run, self.landed, self.after, self.lost, self.durable = run, landed, after, lost, durable
        self.future: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        self._result: T | None = None
        self._error: Exception | None = None

    def attempt(self, connection: Db) -> None:
        """Run it in the lane's thread and keep the answer. Raises what is ``DEADLY``."""
        self._result = self._error = None
        try:
            self._result = self.run(connection)
        except DEADLY:
            raise
        except Exception as error:  # handed to the task that waits, whatever it is
            self._error = error

    @property
    def failed(self) -> bool:
        return self._error is not None

    def fail(self, error: Exception) -> None:
        self._error = error

    def translate(self, path: Path) -> None:
        """Make SQLite's error, if it is one, ours."""
        if isinstance(self._error, apsw.CorruptError):
            self._error = file.explain(self._error, path)

    def answer(self) -> None:
        """In the loop: tell the task that waits."""
        heard = not self.future.done()
        if self._error is None:
            if self.after is not None:
                self.after(self._result)  # type: ignore[arg-type]  # without an error there is a T
            if heard:
                self.future.set_result(self._result)  # type: ignore[arg-type]  # as above
        elif heard:
            self.future.set_exception(self._error)
        unclear = isinstance(self._error, StorageUnavailable) and self._error.unclear
        if self.lost is not None and (unclear or (not heard and self._error is None)):
            self.lost()


AnyJob = Job[object]


class Readers:
    """Loop side of the reading lanes. Small reads of one turn of the loop travel together, since handing over
    costs more than reading; a big one goes alone, so that nobody waits behind it."""

    def __init__(self, path: Path, lanes: int) -> None:
        self._path = path
        self._jobs: queue.SimpleQueue[list[AnyJob] | None] = queue.SimpleQueue()
        self._pending: list[AnyJob] = []
        self._closed = False
        self._lanes = [Lane(path, self._jobs) for _ in range(lanes)]

    async def do(self, run: Callable[[Db], T], *, big: bool = False) -> T:
        """What ``run`` returns, on a connection that cannot write."""
        if self._closed:
            raise file.closed(self._path)
        job = Job(run)
        if big:
            self._jobs.put([cast(AnyJob, job)])
        else:
            if not self._pending:
                asyncio.get_running_loop().call_soon(self._hand_over)
            self._pending.append(cast(AnyJob, job))
        return await job.future

    async def close(self) -> None:
        """Finish what is queued, then end the threads."""
        if not self._closed:
            self._closed = True
            self._hand_over()
            for _ in self._lanes:
                self._jobs.put(None)
        for lane in self._lanes:
            await lane.ended()

    def _hand_over(self) -> None:
        if self._pending:
            self._jobs.put(self._pending)
            self._pending = []


class Lane:
    """A thread that reads. It opens its connection on first use, and again after trouble."""

    write = False

    def __init__(self, path: Path, jobs: queue.SimpleQueue[list[AnyJob] | None]) -> None:
        self._path, self._jobs = path, jobs
        self._loop = asyncio.get_running_loop()
        self._ended = asyncio.Event()
        self._connection: Db | None = None
        self._identity: tuple[int, int] | None = None
        self._thread = threading.Thread(target=self._main, name=f"{path.name}-sqlite", daemon=True)
        self._thread.start()

    async def ended(self) -> None:
        """Wait for the thread, after a None in its queue."""
        await self._ended.wait()
        self._thread.join()

    def _main(self) -> None:
        try:
            self._rounds()
            self._finish()
        finally:
            self._drop()
            self._tell(self._ended.set)

    def _rounds(self) -> None:
        while (jobs := self._jobs.get()) is not None:
            self._answered(jobs, self._round)

    def _answered(self, jobs: list[AnyJob], work: Callable[[list[AnyJob]], None]) -> None:
        """Work on the jobs and answer each, whatever happens: nobody may wait for ever for a thread."""
        try:
            work(jobs)
        except Exception as error:
            self._drop()
            for job in jobs:
                job.fail(error)
        for job in jobs:
            job.translate(self._path)
        self._tell(lambda: _answer_all(jobs))

    def _round(self, jobs: list[AnyJob]) -> None:
        """All of them in one transaction: of one moment, and each page is fetched once."""
        for job in jobs:
            try:
                job.attempt(self._begun())
            except apsw.Error as error:
                self._drop()
                job.fail(file.explain(error, self._path))
            except HarnessDurableError as error:
                job.fail(error)
        if self._connection is not None and self._connection.in_transaction:
            self._connection.execute("rollback")

    def _begun(self) -> Db:
        if self._connection is None or not self._connection.in_transaction:
            self._ready().execute("begin")
        assert self._connection is not None
        return self._connection

    def _finish(self) -> None:
        """What is left to do before the connection is closed."""

    def _ready(self) -> Db:
        """The connection, to the file that has the database's name now."""
        identity = file.same_file(self._path)
        if self._connection is not None:
            if identity == self._identity:
                return self._connection
            self._drop()
        if identity is None:
            raise file.gone(self._path)
        self._connection, self._identity = file.connect(self._path, write=self.write), identity
        return self._connection

    def _drop(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            with contextlib.suppress(apsw.Error):  # it is given up, whatever it still has to say
                connection.close(True)

    def _tell(self, call: Callable[[], object]) -> None:
        with contextlib.suppress(RuntimeError):  # the loop was closed, and nobody is left to be told
            self._loop.call_soon_threadsafe(call)


def _answer_all(jobs: Sequence[AnyJob]) -> None:
    for job in jobs:
        job.answer()
