"""What a process knows of a session: one state for all in it who look, read once and taken on from there.

Writers have states of their own, since what they have seen decides what they may write: they begin with a
copy of this one, which costs no second reading of the log.
"""

from __future__ import annotations

import anyio

from harness_durable import fold
from harness_durable.journal.reader import Reader
from harness_durable.state import Session


class Known:
    """Of one session. Everybody who asks takes it on for all."""

    def __init__(self, reader: Reader) -> None:
        self.reader = reader
        self._state = Session()
        self._lock = anyio.Lock()

    async def now(self) -> Session:
        """The state now. Not to be changed, and it goes on whenever somebody asks. Raises ``NotFound``,
        ``DamagedLog``, ``LogTooNew`` and ``StorageUnavailable``."""
        async with self._lock:
            self._state = await self.reader.advance(self._state)
            return self._state

    async def copy(self) -> Session:
        """The state now, for somebody who takes it on by himself."""
        return fold.copy(await self.now())
