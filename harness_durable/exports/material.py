"""What every format is made from: the entries of a log, resolved and redacted, and what they amount to."""

from __future__ import annotations

from collections.abc import AsyncGenerator

import msgspec

from harness_durable import events, fold
from harness_durable.exports.fields import redacted
from harness_durable.exports.redaction import Redaction
from harness_durable.journal import Reader
from harness_durable.payload import Payload
from harness_durable.state import Session
from harness_durable.world import World


class Material(msgspec.Struct, frozen=True):
    """``entries`` are a prefix of the log, from 1 on; ``state`` is their fold. ``content`` of false: what was
    said is left out."""

    session: str
    entries: tuple[events.Entry, ...]
    state: Session
    content: bool = True

    def event(self, seq: int) -> events.AnyEvent:
        """The event at one place."""
        return self.entries[seq - 1].event


class RedactedReader(Reader):
    """A ``Reader`` that shows everything as it may be seen. It reads no snapshot, for that knows too much."""

    def __init__(self, world: World, session: str, redaction: Redaction) -> None:
        super().__init__(world, session)
        self.redaction = redaction

    async def entries(self, after: int = 0) -> AsyncGenerator[events.Entry]:
        async for entry in super().entries(after):
            yield await redacted(entry, self.redaction, super().content)

    async def load(self, *, upto: int | None = None) -> Session:
        state = Session()
        async for entry in self.entries():
            if upto is not None and entry.seq > upto:
                break
            fold.apply(state, entry)
        return state

    async def event(self, seq: int) -> events.AnyEvent:
        async for entry in self.entries(seq - 1):
            return entry.event
        return await super().event(seq)

    async def content(self, payload: Payload) -> bytes:
        """The bytes of a payload of such an event; none where they are left out."""
        return payload.inline or b""


async def gather(world: World, session: str, redaction: Redaction) -> Material:
    """Read the whole log, as it is now. Raises ``DamagedLog`` and what a World raises."""
    reader = RedactedReader(world, session, redaction)
    entries = tuple([entry async for entry in reader.entries()])
    return Material(redaction.name(session), entries, fold.fold(entries), redaction.content)


def shown(payload: Payload | None) -> str | None:
    """The text of a payload, for people; ``None`` if there is none, or it is left out."""
    raw = payload.inline if payload is not None else None
    return raw.decode("utf-8", "replace") if raw is not None else None
