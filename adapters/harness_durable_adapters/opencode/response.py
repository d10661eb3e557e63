"""A recorded model response as the message that it is, whichever way it came. Pure."""

from __future__ import annotations

import msgspec

from harness_durable.gateway.openai_chat import Chat

from ..common.shapes import Json, decode, mapping, objects, outline, word

_WIRE = Chat()


class Called(msgspec.Struct, frozen=True):
    """A tool call within a response. ``input``: empty if the model wrote no object."""

    id: str
    name: str
    input: Json


class Recorded(msgspec.Struct, frozen=True):
    """``tokens`` in the harness's own form."""

    text: str
    reasoning: str
    calls: tuple[Called, ...]
    tokens: Json


def parse(content_type: str, body: bytes) -> Recorded | None:
    """``None`` if it is no message: an error, or a body that makes no sense."""
    whole = _WIRE.to_json(body) if "event-stream" in content_type else body
    found = decode(whole) or outline(whole) or {}
    choices = objects(found.get("choices"))
    if not choices:
        return None
    said = mapping(choices[0].get("message"))
    calls: list[Called] = []
    for call in objects(said.get("tool_calls")):
        function = mapping(call.get("function"))
        arguments = decode(word(function.get("arguments")).encode("utf-8", "backslashreplace"))
        calls.append(Called(word(call.get("id")), word(function.get("name")), arguments or {}))
    reasoning = word(said.get("reasoning_content")) or word(said.get("reasoning"))
    return Recorded(word(said.get("content")), reasoning, tuple(calls), tokens(mapping(found.get("usage"))))


def tokens(usage: Json) -> Json:
    """What a response used, as the harness counts it. It compacts a conversation by this."""
    cached = mapping(usage.get("prompt_tokens_details")).get("cached_tokens")
    read = cached if isinstance(cached, int) else 0
    sent, written = usage.get("prompt_tokens"), usage.get("completion_tokens")
    return {
        "input": max(0, (sent if isinstance(sent, int) else 0) - read),
        "output": written if isinstance(written, int) else 0,
        "reasoning": 0,
        "cache": {"read": read, "write": 0},
    }
