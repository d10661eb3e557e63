"""From a request to what will be sent: ask the policy, give ids, count tokens, render. No I/O.

After this nothing is left open, so whatever a policy does wrong shows before the first byte is out.
"""

from __future__ import annotations

from collections.abc import Callable
from uuid import uuid4

from msgspec import Struct
from msgspec.structs import replace

from harness_durable.testing.provider.encode import input_text
from harness_durable.testing.provider.messages import Request
from harness_durable.testing.provider.mood import Mood
from harness_durable.testing.provider.reply import (
    Block,
    Fault,
    HttpError,
    Reply,
    Style,
    Text,
    Thinking,
    ToolUse,
    Usage,
)
from harness_durable.testing.provider.wires import Answer, Wire

Policy = Callable[[Request], Reply]


class Plan(Struct, frozen=True):
    """``content``: the frames of the stream, or the whole JSON for a request without streaming."""

    wire: Wire
    message_id: str
    content: list[bytes] | bytes
    style: Style
    faults: tuple[Fault, ...]


def make(
    wire: Wire, policy: Policy, mood: Mood, request: Request, key: str, before: int, *, size: int, gzip: bool
) -> Plan | HttpError:
    """What to send, or the 400 that says how the policy failed.

    ``before``: how often the key came already; ``size``: bytes of the request; ``gzip``: whether the
    client takes it.
    """
    try:
        reply = _with_ids(wire, policy(request))
        style = _fitted(reply, reply.style or mood.style(key, before), gzip)
        answer = Answer(reply, reply.usage or _estimate(reply, size), request)
        content = wire.stream(answer, style) if request.stream else wire.whole(answer)
    except Exception as error:
        # The policy is the user's code: whatever it raises goes into the answer and the ledger.
        said = f"the scripted policy failed: {type(error).__name__}: {error}; mend the policy"
        return HttpError(400, message=said)
    faults = mood.fault(key, before) if reply.faults is None else reply.faults
    return Plan(wire, reply.id, content, style, faults)


def _with_ids(wire: Wire, reply: Reply) -> Reply:
    """Fresh ids where none are given. Random on purpose: an answer to a repeated request is new."""

    def named(block: Block) -> Block:
        if isinstance(block, ToolUse) and not block.id:
            return replace(block, id=f"{wire.call_prefix}{uuid4().hex[:24]}")
        return block

    blocks = tuple(named(block) for block in reply.blocks)
    return replace(reply, blocks=blocks, id=reply.id or f"{wire.message_prefix}{uuid4().hex[:24]}")


def _fitted(reply: Reply, style: Style, gzip: bool) -> Style:
    return replace(
        style,
        gzip=style.gzip and gzip,
        start_delay=reply.start_delay or style.start_delay,
        event_delay=reply.event_delay or style.event_delay,
    )


def _estimate(reply: Reply, size: int) -> Usage:
    return Usage(size // 4, 1 + sum(_length(block) for block in reply.blocks) // 4)


def _length(block: Block) -> int:
    match block:
        case Text(text):
            return len(text)
        case Thinking(thinking):
            return len(thinking)
        case ToolUse():
            return len(input_text(block, Style()))
