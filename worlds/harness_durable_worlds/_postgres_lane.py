"""Jobs that are done on one connection, one after the other.

What surprises: a job whose connection was lost is simply done once more. So a job must be one that can be
done twice: compare-and-set, or one that looks first whether it has happened. Only when the server stays away
is the caller told, and then whether it is unclear what became of the job.
"""

from __future__ import annotations

import asyncio
import random
from collections import deque
from collections.abc import Awaitable, Callable
from itertools import count
from typing import Any, Generic, TypeVar, cast

from harness_durable import clock
from harness_durable.errors import HarnessDurableError, StorageUnavailable
from harness_durable_worlds._postgres_db import Connection
from harness_durable_worlds._postgres_errors import TROUBLE, explain, is_lost, may_pass
from harness_durable_worlds._postgres_line import Line, Store

T = TypeVar("T")
Work = Callable[[Connection], Awaitable[T]]

TOTAL_SECONDS = 30.0
"""No job takes longer, whatever happens."""
CLOSE_SECONDS = 10.0
TRIES = 8


class Job(Generic[T]):
    """One thing to do, and who waits for it. ``lost`` is called if it was done and nobody waits any more,
    ``failed`` if it was given up."""

    def __init__(
        self,
        work: Work[T],
        lost: Callable[[T], None] | None = None,
        failed: Callable[[], None] | None = None,
    ) -> None:
        self.work, self._lost, self._failed = work, lost, failed
        self.asked = clock.monotonic()
        self.future: asyncio.Future[T] = asyncio.get_running_loop().create_future()

    def answer(self, result: T) -> None:
        if not self.future.done():
            self.future.set_result(result)
        elif self._lost is not None:
            self._lost(result)

    def fail(self, error: BaseException) -> None:
        if self._failed is not None:
            self._failed()
        if not self.future.done():
            self.future.set_exception(error)


J = TypeVar("J", bound="Job[Any]")  # whatever it gives


class Lane:
    """A line, and the task that does its jobs. A job is finished also if the task that waits is cancelled."""

    def __init__(self, store: Store, name: str, seconds: float | None = None) -> None:
        self._store, self._line = store, Line(store, seconds)
        self._jobs: deque[Job[object]] = deque()
        self._wake = asyncio.Event()
        self._closed = False
        self._task = asyncio.create_task(self._main(), name=f"{store.shown} {name}")

    async def do(
        self,
        work: Work[T],
        *,
        lost: Callable[[T], None] | None = None,
        failed: Callable[[], None] | None = None,
    ) -> T:
        """What ``work`` returns. Raises what it raises, ``StorageUnavailable`` for trouble with the server.
        ``lost`` and ``failed`` as in ``Job``."""
        return await self._queued(Job(work, lost, failed)).future

    def soon(self, work: Work[T]) -> None:
        """Have it done; nobody waits for it, and its failure is of no consequence."""
        if not self._closed:
            self._queued(Job(work)).future.add_done_callback(_heard)

    def _queued(self, job: J) -> J:
        if self._closed:
            raise self._store.closed()
        self._jobs.append(cast("Job[object]", job))
        self._wake.set()
        return job

    async def close(self) -> None:
        """Do what is queued, as far as the server lets us within a bound, then close the connection."""
        self._closed = True
        self._wake.set()
        await asyncio.wait({self._task}, timeout=CLOSE_SECONDS)
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)
        for job in self._jobs:
            job.fail(self._store.closed())
        await self._line.close()

    async def _main(self) -> None:
        while True:
            await self._wake.wait()
            self._wake.clear()
            while self._jobs:
                await self._next()
                await asyncio.sleep(0)  # who was answered may have more to do, which then goes along
            if self._closed:
                return

    async def _next(self) -> None:
        await self._one(self._jobs.popleft())

    async def _one(self, job: Job[object]) -> None:
        try:
            result = await self._insist(job.work, job.asked)
        except asyncio.CancelledError:
            job.fail(self._store.closed(unclear=True))
            raise
        except Exception as error:  # handed to the task that waits, whatever it is
            job.fail(error)
        else:
            job.answer(result)

    async def _insist(self, work: Work[T], asked: float) -> T:
        """Do what was asked for then, and once more after trouble that may pass."""
        unclear, end = False, clock.monotonic() + TOTAL_SECONDS
        for tries in count(1):
            try:
                connection = await self._line.ready(asked)
            except HarnessDurableError as error:
                raise _with_doubt(error, unclear) from error
            connection.until = end
            try:
                return await work(connection)
            except HarnessDurableError:
                if not connection.usable:
                    self._line.drop()
                raise
            except TROUBLE as error:
                lost, again = is_lost(error), may_pass(error)
                if lost or not connection.usable:
                    self._line.drop()
                unclear = unclear or lost
                if not (lost or again) or tries >= TRIES or clock.monotonic() >= end:
                    raise explain(error, self._store.shown, unclear=unclear) from error
                await clock.sleep(random.uniform(0, 0.005) * tries)
            except BaseException:
                self._line.drop()
                raise
        raise AssertionError("count() never ends")


def _heard(future: asyncio.Future[T]) -> None:
    if not future.cancelled():
        future.exception()


def _with_doubt(error: HarnessDurableError, unclear: bool) -> HarnessDurableError:
    if isinstance(error, StorageUnavailable):
        return StorageUnavailable(str(error), unclear=unclear)
    return StorageUnavailable(f"{error} (it worked before)", unclear=unclear)
