"""The parts of a model request, put together from those of earlier ones that it kept."""

from __future__ import annotations

import msgspec

from harness_durable import events as ev
from harness_durable.payload import Payload
from harness_durable.view.sheet import Sheet


class Request(msgspec.Struct, frozen=True):
    """``parts``: the frame (all but the messages), then the messages; just one if it could not be divided.
    ``kept``: how many of them an earlier request had as well."""

    event: ev.ModelRequested
    parts: tuple[Payload, ...]
    kept: int

    @property
    def grew(self) -> bool:
        """It is known which of the parts are new."""
        return self.event.base is not None

    @property
    def frame(self) -> Payload | None:
        return self.parts[0] if self.parts else None

    @property
    def messages(self) -> tuple[Payload, ...]:
        return self.parts[1:]


async def request(sheet: Sheet, item: int) -> Request | None:
    """The request of a model call by the number of its event; None for another event, or if the log lacks
    one that it builds on."""
    chain: list[ev.ModelRequested] = []
    at: int | None = item
    while at is not None:
        event = (await sheet.entry(at)).event
        if not isinstance(event, ev.ModelRequested):
            return None
        chain.append(event)
        at = sheet.calls.get(event.base) if event.base is not None else None
        if event.base is not None and at is None:
            return None
    parts: tuple[Payload, ...] = ()
    for event in reversed(chain):
        parts = (*parts[: event.keep], *event.parts)
    return Request(chain[0], parts, chain[0].keep)
