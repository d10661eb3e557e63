"""What the two APIs of OpenAI share: errors, usage, and conversations in the form that policies see."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import cast

from msgspec import ValidationError, convert

from harness_durable.errors import BadInput
from harness_durable.testing.provider.encode import Event
from harness_durable.testing.provider.messages import Request
from harness_durable.testing.provider.reply import Usage

_KINDS = {
    400: ("invalid_request_error", ""),
    401: ("invalid_request_error", "invalid_api_key"),
    404: ("invalid_request_error", "model_not_found"),
    429: ("requests", "rate_limit_exceeded"),
    503: ("server_error", "server_is_overloaded"),
    529: ("server_error", "server_is_overloaded"),
}
CODES = {
    "overloaded_error": "server_is_overloaded",
    "rate_limit_error": "rate_limit_exceeded",
    "invalid_request_error": "invalid_prompt",
    "api_error": "server_error",
}
"""The codes for the kinds of error that replies name in the words of the Messages API."""
_TEXTS = ("text", "input_text", "output_text")

Json = dict[str, object]


def error(status: int, kind: str, message: str) -> Event:
    """The body of an error."""
    usual, code = _KINDS.get(status, ("server_error" if status >= 500 else "invalid_request_error", ""))
    code = CODES.get(kind, kind) or code
    said = message or (code or usual).replace("_", " ")
    return {"error": {"message": said, "type": kind or usual, "param": None, "code": code or None}}


def usage_json(usage: Usage, given: str, taken: str) -> Event:
    """Usage as these APIs write it: what came from a cache is a part of what was given."""
    cached, written = usage.cache_read_input_tokens, usage.cache_creation_input_tokens
    total = usage.input_tokens + cached + written
    details: Event = {"cached_tokens": cached, **({"cache_write_tokens": written} if written else {})}
    return {
        given: total,
        f"{given}_details": details,
        taken: usage.output_tokens,
        f"{taken}_details": {"reasoning_tokens": 0},
        "total_tokens": total + usage.output_tokens,
    }


def body_of(raw: bytes) -> Json:
    """The request's object. Raises ``BadInput`` if it is none."""
    try:
        return convert(json.loads(raw), Json)
    except (ValueError, ValidationError) as fault:
        raise BadInput(f"the request body cannot be read: {fault}; send a JSON object") from fault


def request(body: Json, said: Iterable[tuple[str, Json]], tools: Iterable[Json]) -> Request:
    """A request in the form that policies see. ``said`` are blocks with the role of who says them. Raises
    ``BadInput`` if they do not fit."""
    messages: list[Json] = []
    for role, block in said:
        if not messages or messages[-1]["role"] != role:
            messages.append({"role": role, "content": []})
        cast(list[Json], messages[-1]["content"]).append(block)
    seen = {"model": body.get("model"), "stream": body.get("stream") or False, "tools": list(tools)}
    try:
        return convert({**seen, "messages": messages, "said": messages, "body": body}, Request)
    except ValidationError as fault:
        raise BadInput(f"the request body cannot be read: {fault}; send another") from fault


def blocks(content: object) -> list[Json]:
    """Content as blocks. What is empty is left out: these APIs allow it."""
    if isinstance(content, str):
        content = [{"type": "text", "text": content}]
    return [_block(part) for part in objects(content) if part.get("text") != ""]


def _block(part: Json) -> Json:
    return {"type": "text", "text": part.get("text")} if part.get("type") in _TEXTS else part


def call(identity: object, name: object, given: Mapping[str, object]) -> tuple[str, Json]:
    """A tool call of the model's."""
    return "assistant", {"type": "tool_use", "id": identity, "name": name, "input": given}


def result(identity: object, content: object) -> tuple[str, Json]:
    """What came of a tool call."""
    return "user", {"type": "tool_result", "tool_use_id": identity, "content": blocks(content)}


def arguments(written: object) -> Json:
    """The input of a call; what is no JSON object is kept as text."""
    try:
        return convert(json.loads(str(written)), Json)
    except (ValueError, ValidationError):
        return {"arguments": written}


def inner(value: object) -> Json:
    """An object; empty for null. Raises ``BadInput`` for anything else."""
    return objects([value])[0] if value else {}


def objects(value: object) -> list[Json]:
    """A list of objects; empty for null. Raises ``BadInput`` for anything else."""
    try:
        return convert(value or [], list[Json])
    except ValidationError as fault:
        raise BadInput(f"the request body cannot be read: {fault}; send a list of objects") from fault
