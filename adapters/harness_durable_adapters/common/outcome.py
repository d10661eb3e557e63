"""What became of a call, from the log: the state keeps no contents of settled turns."""

from __future__ import annotations

from harness_durable import events as ev
from harness_durable.journal import Reader
from harness_durable.payload import Payload
from harness_durable.state import ToolCall


async def outcome(reader: Reader, call: ToolCall) -> tuple[Payload | None, Payload | None]:
    """Its result, and the harness's own form of that. None for what there is not."""
    match await reader.event(call.outcome_seq):
        case ev.ToolCompleted() | ev.ToolFailed() as event:
            return event.result, event.detail
        case ev.ToolCancelled() | ev.ToolNotStarted() | ev.ToolUnknown() | ev.ToolRefused() as event:
            return event.result, None
        case _:
            return None, None
