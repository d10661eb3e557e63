"""What all connections of a World share, and one connection that comes back."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Mapping

from harness_durable import clock
from harness_durable.errors import HarnessDurableError, StorageUnavailable
from harness_durable_worlds import _postgres_db as db
from harness_durable_worlds._postgres_db import Connection, Identity, connect
from harness_durable_worlds._postgres_errors import TROUBLE, explain, setting_of
from harness_durable_worlds._postgres_url import Target

PATIENCE = 3.0
"""Seconds for which a job waits for a server that is away, from the beginning of its absence."""
_FIRST_PAUSE, _LONGEST_PAUSE = 0.02, 0.5


class Store:
    """What all lanes of a World share: where it is, its statements, and what was learnt of its server."""

    def __init__(self, target: Target, sql: Mapping[str, str]) -> None:
        self.target, self.sql = target, sql
        self.pooled: bool | None = None
        self.met: Callable[[Identity], None] = lambda _: None

    @property
    def shown(self) -> str:
        return self.target.shown

    async def connect(self, seconds: float | None = None) -> Connection:
        """One whose statements may take ``seconds``. Raises ``TROUBLE``. Finished also if cancelled, so that
        nothing is left half open."""
        prepare, limit = self.pooled is False, seconds or db.STATEMENT_SECONDS
        task = asyncio.create_task(connect(self.target, self.sql, prepare=prepare, seconds=limit))
        try:
            connection = await asyncio.shield(task)
        except asyncio.CancelledError:
            for made in await asyncio.gather(task, return_exceptions=True):
                if isinstance(made, Connection):
                    made.sever()
            raise
        self.pooled = connection.identity.pooled
        self.met(connection.identity)
        return connection

    def closed(self, *, unclear: bool = False) -> StorageUnavailable:
        return StorageUnavailable(f"the World of {self.shown} is closed; open it again", unclear=unclear)


class Line:
    """One connection, opened on first use and again after trouble. A statement may take ``seconds``."""

    def __init__(self, store: Store, seconds: float | None = None) -> None:
        self._store, self._seconds = store, seconds
        self._connection: Connection | None = None
        self._away_since: float | None = None
        self._trouble: BaseException | None = None
        self._tried = 0.0
        self._next_try = 0.0
        self._pause = _FIRST_PAUSE

    async def ready(self, asked: float) -> Connection:
        """The connection; waits for a server that has been away for less than ``PATIENCE`` seconds. After
        that, an attempt since ``asked`` (by the monotonic clock) speaks for all who wait, so that no queue
        waits for an attempt each.

        Raises ``StorageUnavailable``, or ``BadSetting`` if waiting will not help.
        """
        while self._connection is None or not self._connection.usable:
            self.drop()
            if self._trouble is None or self._tried < asked or not self._impatient():
                await clock.sleep(max(0.0, self._next_try - clock.monotonic()))
                await self.attempt()
            if self._trouble is not None and (self._final() or self._impatient()):
                raise self._told(self._trouble) from self._trouble
        return self._connection

    async def attempt(self) -> BaseException | None:
        """Try once to connect; what stood in the way, if anything."""
        self._tried = clock.monotonic()
        try:
            self._connection = await self._store.connect(self._seconds)
        except TROUBLE as error:
            now = clock.monotonic()
            self._trouble = error
            self._away_since = now if self._away_since is None else self._away_since
            self._next_try = now + self._pause * random.uniform(0.5, 1.0)
            self._pause = min(_LONGEST_PAUSE, self._pause * 2)
            return error
        self._trouble, self._away_since, self._pause = None, None, _FIRST_PAUSE
        return None

    def _impatient(self) -> bool:
        return self._away_since is not None and clock.monotonic() - self._away_since >= PATIENCE

    def _final(self) -> bool:
        return self._trouble is not None and setting_of(self._trouble, self._store.shown) is not None

    def _told(self, trouble: BaseException) -> HarnessDurableError:
        shown = self._store.shown
        return setting_of(trouble, shown) or explain(trouble, shown)

    async def patiently(self) -> Connection:
        """The connection; waits before an attempt as long as it takes. Raises what the attempt meets."""
        if self._connection is None or not self._connection.usable:
            self.drop()
            await clock.sleep(max(0.0, self._next_try - clock.monotonic()))
            if trouble := await self.attempt():
                raise self._told(trouble) from trouble
        assert self._connection is not None
        return self._connection

    @property
    def usable(self) -> bool:
        """Whether there is a connection now."""
        return self._connection is not None and self._connection.usable

    def drop(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.sever()

    async def close(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            await connection.close()
