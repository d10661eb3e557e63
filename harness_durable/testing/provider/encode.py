"""From a reply to bytes: the events of the stream, or the one JSON object. Pure.

Real UTF-8 is sent (not escapes), so that a cut between two bytes can fall inside a character. Only
half surrogate pairs are escaped: they have no UTF-8.
"""

from __future__ import annotations

import json
import random
import re
from collections.abc import Iterator

from harness_durable.testing.provider.reply import Block, Reply, Style, Text, Thinking, ToolUse, Usage

Event = dict[str, object]
_HALF_PAIR = re.compile("[\ud800-\udfff]")
_PIECES = 12  # deltas of a block, if the style does not ask for more


def to_json(value: object, *, indent: int | None = None, escape: bool = False) -> str:
    """JSON text in the style of the API; every string survives, also one with half a pair."""
    spaces = (",", ":") if indent is None else None
    text = json.dumps(value, ensure_ascii=escape, indent=indent, separators=spaces)
    return _HALF_PAIR.sub(lambda found: f"\\u{ord(found.group()):04x}", text)


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
    """Each event as server-sent bytes, with the pings, comments and spaces that the style adds."""
    dice = random.Random(f"frames {style.seed}")
    return [b"".join(_frame(event, place, style, dice)) for place, event in enumerate(found)]


def frame(event: Event) -> bytes:
    """One tidy event."""
    return f"event: {event['type']}\ndata: {to_json(event)}\n\n".encode()


def usage_json(usage: Usage) -> dict[str, object]:
    """Usage as the API writes it."""
    return {
        "input_tokens": usage.input_tokens,
        "cache_creation_input_tokens": usage.cache_creation_input_tokens,
        "cache_read_input_tokens": usage.cache_read_input_tokens,
        "output_tokens": usage.output_tokens,
        "service_tier": "standard",
    }


def input_text(call: ToolUse, style: Style) -> str:
    """The arguments of a call as the model writes them."""
    return call.raw or to_json(call.input, indent=2 if style.pretty else None, escape=style.escape)


def pieces(text: str, longest: int, dice: random.Random) -> Iterator[str]:
    """``text`` in pieces of 1..``longest`` characters (0: about a dozen even ones)."""
    even = max(16, -(-len(text) // _PIECES))
    at = 0
    while at < len(text):
        size = dice.randint(1, longest) if longest else even
        yield text[at : at + size]
        at += size


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


def _frame(event: Event, place: int, style: Style, dice: random.Random) -> Iterator[bytes]:
    end = "\r\n" if style.crlf else "\n"
    if style.comments and dice.random() < 0.3:
        yield f": keep-alive{end}{end}".encode()
    if style.pings and (place == 2 or dice.random() < 0.2):
        yield f'event: ping{end}data: {{"type": "ping"}}{end}{end}'.encode()
    data = to_json(event)
    if style.padding:
        data = data[:-1] + " " * dice.randint(0, 15) + "}"
    yield f"event: {event['type']}{end}data: {data}{end}{end}".encode()
