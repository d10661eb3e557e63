"""A read-only view of one session: its entries, its state, its payloads. It has no method that writes."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from typing import Protocol, TypeVar

from harness_durable import codec, events, fold
from harness_durable.errors import NotFound
from harness_durable.payload import Payload, expand
from harness_durable.state import Session
from harness_durable.world import StoredRecord, World

PAGE = 1000
"""Records per read: bounds memory for long logs, and is far above what a turn adds."""


class _Placed(Protocol):
    @property
    def seq(self) -> int: ...


S = TypeVar("S", bound=_Placed)


def entry_of(record: StoredRecord, session: str) -> events.Entry:
    """Decode a record. Raises ``LogTooNew`` or ``DamagedLog``."""
    event = codec.decode(record.body, f"session {session!r}, record {record.seq}")
    return events.Entry(record.seq, record.time, record.epoch, event)


class Reader:
    """For everyone who looks: the command line, the viewer, exports, the API."""

    def __init__(self, world: World, session: str) -> None:
        self.world, self.session = world, session

    async def entries(self, after: int = 0) -> AsyncGenerator[events.Entry]:
        """What the log holds after ``after``, then it ends. Raises ``DamagedLog`` when it comes to damage."""
        while True:
            records = await self.world.read(self.session, after, PAGE)
            for record in records:
                yield entry_of(record, self.session)
            if not records:  # a short page is no sign of the end: it may end at damage
                return
            after = records[-1].seq

    async def follow(self, after: int = 0) -> AsyncGenerator[events.Entry]:
        """The same, then on and on as the log grows."""
        while True:
            async for entry in self.entries(after):
                yield entry
                after = entry.seq
            await self.world.wait(self.session, after, 30.0)

    async def load(self, *, upto: int | None = None) -> Session:
        """The state now, or as of ``upto``. From the last snapshot if there is one."""
        state = Session()
        stored = await self.world.snapshot(self.session) if upto is None else None
        if stored is not None:
            state = fold.load(stored[1]) or state
        async for entry in self.entries(state.seq):
            if upto is not None and entry.seq > upto:
                break
            fold.apply(state, entry)
        return state

    async def event(self, seq: int) -> events.AnyEvent:
        """The event at one place."""
        records = await self.world.read(self.session, seq - 1, 1)
        return entry_of(records[0], self.session).event

    async def advance(self, state: Session) -> Session:
        """The same state with what the log has after it; loaded anew if it is empty."""
        if state.seq == 0:
            return await self.load()
        async for entry in self.entries(state.seq):
            fold.apply(state, entry)
        return state

    async def events_at(self, places: Sequence[S]) -> AsyncGenerator[tuple[S, events.AnyEvent]]:
        """The events at several places, in order of ``seq``, reading the log in pages and not one by one."""
        records: dict[int, StoredRecord] = {}
        for place in places:
            if place.seq not in records:
                page = await self.world.read(self.session, place.seq - 1, PAGE)
                records = {record.seq: record for record in page}
            yield place, entry_of(records[place.seq], self.session).event

    async def content(self, payload: Payload) -> bytes:
        """The bytes of a payload, wherever they are."""
        if payload.inline is not None:
            return payload.inline
        if payload.blob is None:
            raise NotFound("this content was shortened in the state; read it from its event in the log")
        name = payload.blob
        return expand(name, await self.world.blob(self.session, name))

    async def text(self, payload: Payload) -> str:
        """The bytes as text, for people and models; what is no UTF-8 becomes U+FFFD."""
        return (await self.content(payload)).decode("utf-8", "replace")
