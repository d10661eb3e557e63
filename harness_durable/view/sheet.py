"""All rows of one session, kept while somebody looks at it.

The log is read once from its start and then only as it grows. What surprises: damage does not end it. What
can be read before and behind it is shown, and ``damage`` says what is missing."""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing

import anyio

from harness_durable import clock, fold
from harness_durable import events as ev
from harness_durable.errors import DamagedLog, NotFound
from harness_durable.journal import Reader
from harness_durable.journal.reader import entry_of
from harness_durable.state import Session
from harness_durable.view.row import Row
from harness_durable.view.rows import rows

_BREATH = 200
"""Events between two moments at which others of the event loop get their turn."""


class Sheet:
    """``calls``: the item of each model and tool call, by its id. ``read``: the log was read to its end once.
    ``keep``: hold the entries in memory, so that all there is comes through the reader's ``entries`` and
    ``content``, as an export asks for."""

    def __init__(self, reader: Reader, *, keep: bool = False) -> None:
        self.reader, self.state = reader, Session()
        self._kept: dict[int, ev.Entry] | None = {} if keep else None
        self.rows: list[Row] = []
        self.calls: dict[str, int] = {}
        self.damage, self.read = "", False
        self._versions: dict[int, list[int]] = {}
        self._seqs: list[int] = []
        self._lock = anyio.Lock()

    @property
    def head(self) -> int:
        return self.state.seq

    async def refresh(self, patience: float = math.inf) -> None:
        """Read what the log has by now, but stop after ``patience`` seconds: ``read`` says if it came to the
        end once. Raises ``NotFound`` and ``StorageUnavailable``."""
        end, count = clock.monotonic() + patience, 0
        try:
            self._lock.acquire_nowait()
        except anyio.WouldBlock:  # somebody else reads, and may have more patience
            with anyio.move_on_after(patience) as waiting:
                await self._lock.acquire()
            if waiting.cancelled_caught:
                return
        try:
            async with aclosing(self._entries()) as entries:
                async for entry in entries:
                    self._take(entry)
                    count += 1
                    if count % _BREATH == 0:
                        await clock.sleep(0)
                        if clock.monotonic() > end:
                            return
            self.read = True
        finally:
            self._lock.release()

    async def _entries(self) -> AsyncGenerator[ev.Entry]:
        """Whatever can be read: damage must not hide its neighbours."""
        after = self.head
        while True:
            try:
                async for entry in self.reader.entries(after):
                    yield entry
                    after = entry.seq
                return
            except DamagedLog as damaged:
                self.damage = self.damage or str(damaged)
                after += 1
                if after >= (await self.reader.world.session(self.reader.session)).head:
                    return

    def _take(self, entry: ev.Entry) -> None:
        if self._kept is not None:
            self._kept[entry.seq] = entry
        fold.apply(self.state, entry)
        event = entry.event
        if isinstance(event, ev.ModelRequested | ev.ToolRequested):
            self.calls.setdefault(event.call, entry.seq)
        for one in rows(self.state, entry):
            self._versions.setdefault(one.item, []).append(len(self.rows))
            self._seqs.append(one.seq)
            self.rows.append(one)

    def between(self, after: int, upto: int) -> Sequence[Row]:
        """Versions of events with ``after`` < seq <= ``upto``."""
        return self.rows[bisect_right(self._seqs, after) : bisect_right(self._seqs, upto)]

    def versions(self, item: int) -> list[Row]:
        """All of one thing, oldest first. Raises ``NotFound``."""
        if item not in self._versions:
            raise NotFound(f"session {self.reader.session} has no item {item}; reload the page")
        return [self.rows[place] for place in self._versions[item]]

    def at(self, seq: int) -> list[Row]:
        """The rows of one event."""
        return self.rows[bisect_left(self._seqs, seq) : bisect_right(self._seqs, seq)]

    async def entry(self, seq: int) -> ev.Entry:
        """The event at one place. Raises ``NotFound``."""
        if self._kept is not None and seq in self._kept:
            return self._kept[seq]
        records = await self.reader.world.read(self.reader.session, seq - 1, 1) if seq > 0 else []
        if not records or records[0].seq != seq:
            raise NotFound(f"session {self.reader.session} has no event {seq}; it has {self.head}")
        return entry_of(records[0], self.reader.session)
