"""Anthropic's Messages API, as the provider speaks it. Policies see all wires in the form of this one."""

from __future__ import annotations

import json
import random

from harness_durable.testing.provider import encode, messages
from harness_durable.testing.provider.encode import Event, input_text, pieces, to_json
from harness_durable.testing.provider.messages import Request
from harness_durable.testing.provider.reply import (
    Block,
    Reply,
    StreamError,
    Style,
    Text,
    Thinking,
    ToolUse,
    Usage,
)
from harness_durable.testing.provider.wires.wire import Answer

_KINDS = {
    400: "invalid_request_error",
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
    529: "overloaded_error",
}
_PING = "ping", '{"type": "ping"}'


class Anthropic:
    """A ``Wire``; see there for what each method is for."""

    name = "anthropic"
    path = "/v1/messages"
    message_prefix, call_prefix = "msg_", "toolu_"

    def parse(self, raw: bytes) -> Request:
        return messages.parse(raw)

    def complaint(self, request: Request) -> str:
        return ""

    def stream(self, answer: Answer, style: Style) -> list[bytes]:
        return frames(events(answer.reply, answer.request.model, answer.usage, style), style)

    def whole(self, answer: Answer) -> bytes:
        return whole(answer.reply, answer.request.model, answer.usage)

    def error(self, status: int, kind: str, message: str) -> Event:
        kind = kind or _KINDS.get(status, "api_error")
        return {"type": "error", "error": {"type": kind, "message": message or kind.replace("_", " ")}}

    def broken(self, fault: StreamError, message_id: str) -> bytes:
        return frame(self.error(0, fault.kind, fault.message))


def events(reply: Reply, model: str, usage: Usage, style: Style) -> list[Event]:
    """The stream's events without pings. ``reply`` has its ids already."""
    dice = random.Random(f"deltas {style.seed}")
    first = usage_json(usage) | {"output_tokens": 1}
    nothing: Event = {"content": [], "stop_reason": None, "usage": first}
    found: list[Event] = []
    found.append({"type": "message_start", "message": message_head(reply, model) | nothing})
    for index, block in enumerate(reply.blocks):
        opening, deltas = _block_parts(block, style, dice)
        found.append({"type": "content_block_start", "index": index, "content_block": opening})
        for delta in deltas:
            found.append({"type": "content_block_delta", "index": index, "delta": delta})
        found.append({"type": "content_block_stop", "index": index})
    stop: Event = {"stop_reason": reply.why_stopped(), "stop_sequence": None}
    found.append({"type": "message_delta", "delta": stop, "usage": usage_json(usage)})
    found.append({"type": "message_stop"})
    return found


def message_head(reply: Reply, model: str) -> Event:
    """The fields of a message that both forms of answer begin with."""
    return {
        "model": model,
        "id": reply.id,
        "type": "message",
        "role": "assistant",
        "stop_sequence": None,
    }


def whole(reply: Reply, model: str, usage: Usage) -> bytes:
    """The answer to a request without streaming."""
    message = message_head(reply, model) | {
        "content": [_block_whole(block) for block in reply.blocks],
        "stop_reason": reply.why_stopped(),
        "usage": usage_json(usage),
    }
    return to_json(message).encode()


def frames(found: list[Event], style: Style) -> list[bytes]:
    """Each event as server-sent bytes."""
    return encode.frames([(str(event["type"]), to_json(event)) for event in found], style, _PING)


def frame(event: Event) -> bytes:
    """One tidy event."""
    return encode.frame(str(event["type"]), to_json(event))


def usage_json(usage: Usage) -> dict[str, object]:
    """Usage as the API writes it."""
    return {
        "input_tokens": usage.input_tokens,
        "cache_creation_input_tokens": usage.cache_creation_input_tokens,
        "cache_read_input_tokens": usage.cache_read_input_tokens,
        "output_tokens": usage.output_tokens,
        "service_tier": "standard",
    }


def _block_parts(block: Block, style: Style, dice: random.Random) -> tuple[Event, list[Event]]:
    match block:
        case Text(text):
            cut = pieces(text, style.split_text, dice)
            return {"type": "text", "text": ""}, [{"type": "text_delta", "text": p} for p in cut]
        case Thinking(thinking, signature):
            cut = pieces(thinking, style.split_text, dice)
            deltas: list[Event] = [{"type": "thinking_delta", "thinking": p} for p in cut]
            deltas.append({"type": "signature_delta", "signature": signature})
            return {"type": "thinking", "thinking": "", "signature": ""}, deltas
        case ToolUse(name, _, call_id):
            cut = pieces(input_text(block, style), style.split_input, dice)
            opening: Event = {"type": "tool_use", "id": call_id, "name": name, "input": {}}
            # The API sends an empty piece first.
            return opening, [{"type": "input_json_delta", "partial_json": p} for p in ("", *cut)]


def _block_whole(block: Block) -> Event:
    match block:
        case Text(text):
            return {"type": "text", "text": text}
        case Thinking(thinking, signature):
            return {"type": "thinking", "thinking": thinking, "signature": signature}
        case ToolUse(name, given, call_id, raw):
            value: object = json.loads(raw) if raw else given
            return {"type": "tool_use", "id": call_id, "name": name, "input": value}
