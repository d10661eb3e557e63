"""The logs that this process knows, each on its lane; how many are known and open is bounded."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Sequence
from functools import partial
from typing import TypeVar

import anyio
import anyio.to_thread

from harness_durable.errors import NotFound, StorageUnavailable
from harness_durable.world import check_session_id
from harness_durable_worlds._file_disk import unavailable
from harness_durable_worlds._file_lanes import Lanes
from harness_durable_worlds._file_log import Log
from harness_durable_worlds._file_store import Store

T = TypeVar("T")

LANES = 4
KNOWN_PER_LANE = 4096
OPEN_PER_LANE = 64
_PART = 100


class Logs:
    """Runs work on sessions. Every call raises ``StorageUnavailable`` for what the system refuses."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._lanes = Lanes("file-world", LANES)
        self._known: list[OrderedDict[str, Log]] = [OrderedDict() for _ in range(LANES)]
        self._open: list[OrderedDict[str, Log]] = [OrderedDict() for _ in range(LANES)]
        self._closed = False

    async def on(self, session: str, work: Callable[[Log], T]) -> T:
        """``work`` on one session's log. Raises ``BadInput`` for what cannot name one."""
        check_session_id(session)
        lane = self._lanes.lane_of(session)
        return await self._run(lane, lambda: work(self._log(lane, session)))

    def glance(self, session: str, look: Callable[[Log], T | None]) -> T | None:
        """``look`` at a log at once, on the event loop, if that can be without waiting for its lane. It must
        not wait for the disk either; ``None`` if it would have to, or if the system refuses something: its
        lane says what. Raises ``BadInput`` for what cannot name a session."""
        lane = self._lanes.lane_of(check_session_id(session))
        if self._closed or not self._lanes.idle(lane):
            return None
        log = self._known[lane].get(session)
        try:
            return None if log is None else look(log)
        except OSError:
            return None

    async def each(self, names: Sequence[str], work: Callable[[Log], T]) -> list[T]:
        """``work`` on every session that exists, in order of ``names``; in parts, so that appends come in
        between."""
        found: dict[str, T] = {}

        def some(lane: int, part: Sequence[str]) -> None:
            for name in part:
                try:
                    found[name] = work(self._log(lane, name))
                except NotFound:
                    self._known[lane].pop(name).close()

        async def all_of(lane: int, mine: Sequence[str]) -> None:
            for start in range(0, len(mine), _PART):
                await self._run(lane, partial(some, lane, mine[start : start + _PART]))

        lanes: list[list[str]] = [[] for _ in range(LANES)]
        for name in names:
            lanes[self._lanes.lane_of(name)].append(name)
        async with anyio.create_task_group() as tasks:
            for lane, mine in enumerate(lanes):
                tasks.start_soon(all_of, lane, mine)
        return [found[name] for name in names if name in found]

    async def aclose(self) -> None:
        """Let running work end, and close all files."""
        self._closed = True
        await anyio.to_thread.run_sync(self._lanes.close)
        for known in self._known:
            for log in known.values():
                log.close()
            known.clear()

    async def _run(self, lane: int, work: Callable[[], T]) -> T:
        if self._closed:
            raise StorageUnavailable("this World was closed; open it again with open_world")

        def safely() -> T:
            with unavailable(f"cannot use the World in {self._store.root}"):
                return work()

        return await self._lanes.run(lane, safely)

    def _log(self, lane: int, session: str) -> Log:
        """What is known of a session. Runs on its lane."""
        known, opened = self._known[lane], self._open[lane]
        log = known.get(session)
        if log is None:
            log = known[session] = self._store.log(session)
            if len(known) > KNOWN_PER_LANE:
                known.popitem(last=False)[1].close()
        known.move_to_end(session)
        opened[session] = log
        opened.move_to_end(session)
        if len(opened) > OPEN_PER_LANE:
            opened.popitem(last=False)[1].close()
        return log
