"""JSON of which nobody promised us the shape: read without trust, written so that nothing is lost.

The standard library's codec and not msgspec's, since harnesses and models do write half surrogate pairs, and
integers over 2^53 must come back as they were."""

from __future__ import annotations

import json
from typing import NoReturn, cast

from harness_durable.gateway import rawjson
from harness_durable.tools.arguments import too_deep

Json = dict[str, object]

_OUTLINE = 5  # levels: a line, its message, the content, a block, and what that holds


def value(raw: bytes) -> object:
    """Any JSON value; ``None`` for what is none, and for what is nested too deeply."""
    if too_deep(raw):
        return None
    try:
        return cast(object, json.loads(raw))
    except (ValueError, RecursionError):
        return None


def decode(line: bytes) -> Json | None:
    """The object in a line, or ``None`` for whatever else it holds."""
    found = value(line)
    return cast(Json, found) if isinstance(found, dict) else None


def outline(line: bytes) -> Json | None:
    """The object in a line that is nested too deeply to be read whole, down to what a block of its message
    holds; ``None`` stands for what is too deep. ``None`` itself for what is no object."""
    found = _outline(line, _OUTLINE)
    return cast(Json, found) if isinstance(found, dict) else None


def _outline(raw: bytes, levels: int) -> object:
    found = value(raw)
    if found is not None or levels == 0:
        return found
    try:
        if raw.lstrip()[:1] == b"[":
            return [_outline(bytes(item), levels - 1) for item in rawjson.items(raw)]
        return {name: _outline(bytes(item), levels - 1) for name, item in rawjson.members(raw).items()}
    except rawjson.Unreadable:
        return None


def part(raw: bytes, *path: str) -> bytes:
    """How a member within members is spelled; empty if there is none."""
    try:
        for name in path:
            raw = bytes(rawjson.members(raw).get(name, b""))
    except rawjson.Unreadable:
        return b""
    return raw


def has_no_number(line: bytes) -> bool:
    """Does a line that can be read hold ``NaN`` or ``Infinity``? Both are no JSON, although we read them."""
    if b"NaN" not in line and b"Infinity" not in line:
        return False
    try:
        json.loads(line, parse_constant=_refuse)
    except (ValueError, RecursionError):
        return True
    return False


def _refuse(word: str) -> NoReturn:
    raise ValueError(word)


def encode(item: object) -> bytes:
    """One line without its end."""
    text = json.dumps(item, ensure_ascii=False, separators=(",", ":"))
    try:
        return text.encode()
    except UnicodeEncodeError:  # half a surrogate pair: only an escape can carry it
        return json.dumps(item, separators=(",", ":")).encode()


def mapping(item: object) -> Json:
    """The object that it should be, else an empty one."""
    return cast(Json, item) if isinstance(item, dict) else {}


def objects(item: object) -> list[Json]:
    """The objects within the list that it should be."""
    found = cast(list[object], item) if isinstance(item, list) else []
    return [cast(Json, one) for one in found if isinstance(one, dict)]


def word(item: object) -> str:
    """The string that it should be, else an empty one."""
    return item if isinstance(item, str) else ""


def text_of(content: object) -> str:
    """What a model reads in a message's or a result's content: a string, or a list of blocks."""
    if isinstance(content, str):
        return content
    return "\n".join(word(block.get("text")) for block in objects(content) if block.get("type") == "text")
