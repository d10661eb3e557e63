"""The threads that touch the logs. A session always runs on the same lane, so its state needs no lock.

What surprises: answers go back to the event loop in groups. Waking a loop costs more than a short sync.
"""

from __future__ import annotations

import asyncio
import collections
import contextlib
import queue
import threading
import zlib
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")
_Job = Callable[[], Callable[[], None]]


class Lanes:
    """``count`` threads, started on first use and ended by :meth:`close`. Used from one event loop."""

    def __init__(self, name: str, count: int = 4) -> None:
        self._name, self._count = name, count
        self._queues: list[queue.SimpleQueue[_Job | None]] = []
        self._threads: list[threading.Thread] = []
        self._under_way = [0] * count
        """Jobs of each lane whose answer has not come back to the loop."""
        self._answers: collections.deque[tuple[int, Callable[[], None]]] = collections.deque()
        self._woken = False

    def lane_of(self, session: str) -> int:
        return zlib.crc32(session.encode()) % self._count

    async def run(self, lane: int, work: Callable[[], T]) -> T:
        """The result of ``work``, run on the lane after what was put there before. Cancelling the caller
        does not stop it: a write that has begun ends by itself."""
        loop = asyncio.get_running_loop()
        self._start()
        future: asyncio.Future[T] = loop.create_future()

        def job() -> Callable[[], None]:
            try:
                result = work()
            except BaseException as error:
                failure = error
                return lambda: None if future.done() else future.set_exception(failure)
            return lambda: None if future.done() else future.set_result(result)

        self._loop = loop
        self._under_way[lane] += 1
        self._queues[lane].put(job)
        return await future

    def idle(self, lane: int) -> bool:
        """Whether nothing is under way on the lane, so that its sessions may be used from the loop itself."""
        return not self._under_way[lane]

    def close(self) -> None:
        """Let every lane finish what it has, and end. Blocks; nothing may be put on a lane afterwards."""
        for jobs in self._queues:
            jobs.put(None)
        for thread in self._threads:
            thread.join()
        self._queues, self._threads = [], []

    def _start(self) -> None:
        if self._threads:
            return
        self._queues = [queue.SimpleQueue() for _ in range(self._count)]
        self._threads = [
            threading.Thread(target=self._work, args=(i, jobs), name=f"{self._name}-{i}", daemon=True)
            for i, jobs in enumerate(self._queues)
        ]
        for thread in self._threads:
            thread.start()

    def _work(self, lane: int, jobs: queue.SimpleQueue[_Job | None]) -> None:
        while (job := jobs.get()) is not None:
            self._answers.append((lane, job()))
            if not self._woken:
                self._woken = True
                with contextlib.suppress(RuntimeError):  # the loop has ended, and nobody waits any more
                    self._loop.call_soon_threadsafe(self._deliver)

    def _deliver(self) -> None:
        self._woken = False
        while self._answers:
            lane, answer = self._answers.popleft()
            self._under_way[lane] -= 1
            answer()
