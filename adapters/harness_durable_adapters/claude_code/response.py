"""A recorded model response as the message that it is, whichever way it came. Pure."""

from __future__ import annotations

import msgspec

from harness_durable.gateway.anthropic import Anthropic

from ..common.shapes import Json, mapping, objects, outline, word

_WIRE = Anthropic()


class Recorded(msgspec.Struct, frozen=True):
    """``blocks`` as the API gives them without streaming."""

    id: str
    model: str
    blocks: tuple[Json, ...]
    stop_reason: object
    usage: Json


def parse(content_type: str, body: bytes) -> Recorded | None:
    """``None`` if it is no message: an error, or a body that makes no sense."""
    message = outline(_WIRE.to_json(body) if "event-stream" in content_type else body) or {}
    if message.get("type") != "message":
        return None
    return Recorded(
        word(message.get("id")),
        word(message.get("model")),
        tuple(objects(message.get("content"))),
        message.get("stop_reason"),
        mapping(message.get("usage")),
    )


def results_in(request: bytes) -> dict[str, Json]:
    """The tool results within a request, by call: exactly what the model was shown."""
    body = outline(request) or {}
    found: dict[str, Json] = {}
    for message in objects(body.get("messages")):
        for block in objects(message.get("content")):
            if block.get("type") == "tool_result":
                found[word(block.get("tool_use_id"))] = block
    return found
