"""A read-only view of one session: its entries, its state, its payloads. It has no method that writes."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from typing import Protocol, TypeVar

from harness_durable import codec, events, fold
from harness_durable.errors import DamagedLog, NotFound
from harness_durable.payload import Payload, expand
from harness_durable.state import Segment, Session
from harness_durable.world import StoredRecord, World

PAGE = 1000
"""Records per read: bounds memory for long logs, and is far above what a turn adds."""

_LINES_PAGE = 100
"""The same where the records are full of lines, up to 32 KiB each."""


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
        """The state now, or as of ``upto``. From the last snapshot if there is one that is not too new."""
        state = Session()
        stored = await self.world.snapshot(self.session)
        if stored is not None and (upto is None or stored[0] <= upto):
            state = fold.load(stored[1]) or state
        async for entry in self.entries(state.seq):
            if upto is not None and entry.seq > upto:
                break
            fold.apply(state, entry)
        return state

    async def damage(self, state: Session) -> DamagedLog | None:
        """The first damage in the past of a state that was loaded from a snapshot, if there is any: reads the
        log from the start. Raises ``DamagedLog`` if what is lost is needed for driving: the harness's own
        transcript."""
        needed = {segment.seq for one in state.transcripts.values() for segment in one.segments}
        found: DamagedLog | None = None
        after = 0
        while after < state.seq:
            try:
                records = await self.world.read(self.session, after, PAGE)
            except DamagedLog as damaged:
                found, after = found or damaged, after + 1
                if after in needed:
                    raise
            else:
                after = records[-1].seq if records else state.seq
        return found

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

    async def events_at(
        self, places: Sequence[S], page: int = PAGE
    ) -> AsyncGenerator[tuple[S, events.AnyEvent]]:
        """The events at several places, reading the log in pages and not one by one: best in order."""
        records: dict[int, StoredRecord] = {}
        for place in places:
            if place.seq not in records:
                records = {}  # before the next ones come
                read = await self.world.read(self.session, place.seq - 1, page)
                records = {record.seq: record for record in read}
                del read
            yield place, entry_of(records[place.seq], self.session).event

    async def lines(self, segments: Sequence[Segment]) -> AsyncGenerator[bytes]:
        """Lines of a transcript. Holds those of one event at a time, and a page of the log."""
        async for segment, event in self.events_at(segments, _LINES_PAGE):
            if isinstance(event, events.TranscriptAppended | events.TranscriptReplaced):
                content = await self.content(event.lines)
                start = 0
                for number in range(segment.skip + segment.keep):
                    end = content.find(b"\n", start)
                    end = len(content) if end < 0 else end
                    if number >= segment.skip:
                        yield content[start:end]
                    start = end + 1

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
