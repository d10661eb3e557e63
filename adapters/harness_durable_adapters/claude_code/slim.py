"""A transcript may be larger than the memory; what a rebuild must know of its lines is not. Pure.

A slim line has no ``raw``: the log has it, as the line of that number. What surprises: its blocks are there,
but of what they say only a digest."""

from __future__ import annotations

import hashlib
import json
import sys
from collections.abc import Iterable

from ..common.shapes import Json, mapping, objects
from .compaction import is_boundary
from .lost import is_pending
from .transcript import SHOWS, Line, is_made_up

_MEMBERS = ("uuid", "parentUuid", "type", "isSidechain", "isCompactSummary", "timestamp", "cwd", SHOWS)
_BLOCK = ("type", "id", "tool_use_id")
_ATTACHMENT = ("type", "source_uuid")
_SHORT = 100
"""Characters of a text that is kept as it is: the harness's own notes are told by their words."""
_SMALL = 1000
"""Bytes of a line without a uuid that is kept whole: it says something about the session."""
_DIGEST = "\0digest"
"""No harness has such a member."""


def slim(line: Line) -> Line:
    """The line without what it says, unless a rebuild may have to read that."""
    value = line.value
    if _is_needed(line):
        return line
    short = _only(value, _MEMBERS)
    if "attachment" in value:
        short["attachment"] = _only(mapping(value["attachment"]), _ATTACHMENT)
    if line.kind in ("user", "assistant"):
        short["message"] = _message(line)
    return Line(b"", short, number=line.number)


def _is_needed(line: Line) -> bool:
    """It is of our own making, or may be written anew, or is about the session or a compaction."""
    if line.number < 0 or is_pending(line) or is_boundary(line):
        return True
    return any(is_made_up(one) for one in line.results) or (not line.uuid and len(line.raw) <= _SMALL)


def _message(line: Line) -> Json:
    message = line.message
    content = message.get("content")
    short: Json = _only(message, ("id",))
    if isinstance(content, str):
        short["content"] = content if len(content) <= _SHORT else ""
    else:
        short["content"] = [_block(block, digest=line.kind == "assistant") for block in objects(content)]
    return short


def _block(block: Json, *, digest: bool) -> Json:
    kept = _only(block, _BLOCK)
    if digest and block.get("type") != "tool_use":
        kept[_DIGEST] = bare(block)
    text = block.get("text")
    if isinstance(text, str) and len(text) <= _SHORT:
        kept["text"] = text
    return kept


def _only(value: Json, names: Iterable[str]) -> Json:
    return {name: _shared(value[name]) for name in names if name in value}


def _shared(item: object) -> object:
    """Ids, places and kinds come again and again. Anything that is no string is no id."""
    return sys.intern(item) if isinstance(item, str) else None if isinstance(item, list | dict) else item


def bare(block: Json) -> object:
    """A digest of what the model said: without marks for the cache, and members that say nothing."""
    if _DIGEST in block:
        return block[_DIGEST]
    said = {name: item for name, item in block.items() if name != "cache_control" and item is not None}
    return hashlib.sha256(json.dumps(said, sort_keys=True).encode()).digest()
