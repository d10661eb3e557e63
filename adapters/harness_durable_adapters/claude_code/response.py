"""A recorded model response as the message that it is, whichever way it came. Pure."""

from __future__ import annotations

import json

import msgspec

from .shapes import Json, decode, mapping, objects, word


class Recorded(msgspec.Struct, frozen=True):
    """``blocks`` as the API would give them without streaming."""

    id: str
    model: str
    blocks: tuple[Json, ...]
    stop_reason: str | None
    usage: Json


def parse(content_type: str, body: bytes) -> Recorded | None:
    """``None`` if it is no message: an error, or a body that makes no sense."""
    if "event-stream" in content_type:
        return _stream(body)
    whole = decode(body) or {}
    if whole.get("type") != "message":
        return None
    return _message(whole, objects(whole.get("content")))


def _message(head: Json, blocks: list[Json]) -> Recorded:
    reason = head.get("stop_reason")
    return Recorded(
        word(head.get("id")),
        word(head.get("model")),
        tuple(blocks),
        reason if isinstance(reason, str) else None,
        mapping(head.get("usage")),
    )


def _stream(body: bytes) -> Recorded | None:
    head: Json = {}
    blocks: dict[object, Json] = {}
    inputs: dict[object, list[str]] = {}
    for line in body.replace(b"\r\n", b"\n").split(b"\n"):
        event = decode(line[5:]) if line.startswith(b"data:") else None
        if event is None:
            continue
        place = event.get("index")
        match event.get("type"):
            case "message_start":
                head = dict(mapping(event.get("message")))
            case "content_block_start":
                blocks[place] = dict(mapping(event.get("content_block")))
            case "content_block_delta":
                _grow(blocks.get(place, {}), inputs.setdefault(place, []), mapping(event.get("delta")))
            case "message_delta":
                head["stop_reason"] = mapping(event.get("delta")).get("stop_reason")
                head["usage"] = {**mapping(head.get("usage")), **mapping(event.get("usage"))}
            case _:
                pass
    for place, parts in inputs.items():
        if "input" in blocks.get(place, {}) and "".join(parts).strip():
            blocks[place]["input"] = _arguments("".join(parts))
    return _message(head, list(blocks.values())) if head else None


def _arguments(text: str) -> object:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return {}


def _grow(block: Json, arguments: list[str], delta: Json) -> None:
    match delta.get("type"):
        case "text_delta":
            block["text"] = word(block.get("text")) + word(delta.get("text"))
        case "thinking_delta":
            block["thinking"] = word(block.get("thinking")) + word(delta.get("thinking"))
        case "signature_delta":
            block["signature"] = word(block.get("signature")) + word(delta.get("signature"))
        case "input_json_delta":
            arguments.append(word(delta.get("partial_json")))
        case "citations_delta":
            block["citations"] = [*objects(block.get("citations")), mapping(delta.get("citation"))]
        case _:
            pass
