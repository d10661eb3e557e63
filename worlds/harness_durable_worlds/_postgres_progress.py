"""The progress of all sessions of this process: what comes while a write is under way goes with the next.

What surprises: of two for one session in the same write, the earlier is never stored. Both are told that it
is done, since progress says how things are, not what has happened.
"""

from __future__ import annotations

import asyncio
from functools import partial
from typing import cast

from harness_durable.errors import HarnessDurableError
from harness_durable_worlds._checks import no_session
from harness_durable_worlds._postgres_db import Connection, reading
from harness_durable_worlds._postgres_lane import Lane


class _Write:
    """``found``: its sessions that exist; None before it is done. ``failure``: why it never will be."""

    def __init__(self) -> None:
        self.bodies: dict[str, bytes] = {}
        self.found: set[str] | None = None
        self.failure: HarnessDurableError | None = None


class Progress:
    """Of one app, by way of ``lane``."""

    def __init__(self, lane: Lane, app: str) -> None:
        self._lane, self._app = lane, app
        self._next = _Write()
        self._turn = asyncio.Lock()

    async def put(self, session: str, body: bytes) -> None:
        """Raises ``NotFound``, and ``StorageUnavailable`` for all whose progress was in the write."""
        write = self._next
        write.bodies[session] = body
        async with self._turn:
            if write.failure is not None:
                raise write.failure
            if write.found is None:
                write.found = await self._done(write)
        if session not in write.found:
            raise no_session(session)

    async def get(self, session: str) -> bytes | None:
        """Raises ``NotFound``."""
        rows = await self._lane.do(reading("progress", self._app, session))
        if not rows:
            raise no_session(session)
        return cast("bytes | None", rows[0][0])

    async def _done(self, write: _Write) -> set[str]:
        """Have it done for all who are in it by now. If the one who has it done is cancelled, the next of
        them does."""
        if self._next is write:
            self._next = _Write()
        try:
            return await self._lane.do(partial(_put, app=self._app, bodies=write.bodies))
        except HarnessDurableError as error:
            write.failure = error
            raise


async def _put(db: Connection, app: str, bodies: dict[str, bytes]) -> set[str]:
    names = sorted(bodies)  # in one order, whoever else writes at the same time
    rows = await db.write("put_progress", app, names, [bodies[name] for name in names])
    return {cast(str, row[0]) for row in rows}
