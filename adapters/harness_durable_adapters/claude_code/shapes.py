"""JSON of which nobody promised us the shape: read without trust, written so that nothing is lost.

The standard library's codec and not msgspec's, since harnesses and models do write half surrogate pairs, and
integers over 2^53 must come back as they were."""

from __future__ import annotations

import json
from typing import cast

Json = dict[str, object]


def decode(line: bytes) -> Json | None:
    """The object in a line, or ``None`` for whatever else it holds."""
    try:
        value: object = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return cast(Json, value) if isinstance(value, dict) else None


def encode(value: object) -> bytes:
    """One line without its end."""
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    try:
        return text.encode()
    except UnicodeEncodeError:  # half a surrogate pair: only an escape can carry it
        return json.dumps(value, separators=(",", ":")).encode()


def mapping(value: object) -> Json:
    """The object that it should be, else an empty one."""
    return cast(Json, value) if isinstance(value, dict) else {}


def objects(value: object) -> list[Json]:
    """The objects within the list that it should be."""
    found = cast(list[object], value) if isinstance(value, list) else []
    return [cast(Json, item) for item in found if isinstance(item, dict)]


def word(value: object) -> str:
    """The string that it should be, else an empty one."""
    return value if isinstance(value, str) else ""


def text_of(content: object) -> str:
    """What a model reads in a message's or a result's content: a string, or a list of blocks."""
    if isinstance(content, str):
        return content
    return "\n".join(word(block.get("text")) for block in objects(content) if block.get("type") == "text")
