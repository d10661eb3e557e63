"""What a compaction makes needless: the harness reads nothing of its file before the last one, except lines
that it names there. So neither do we keep it, and a long session costs no more than a short one. Pure.

What surprises: lines before the boundary go on to count if it preserves them, so a file then begins in the
middle of a conversation."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

from ..common.shapes import mapping, word
from .transcript import Line, repair

_SPENT = frozenset(
    (
        *("progress", "file-history-snapshot", "file-history-delta", "last-prompt", "queue-operation"),
        *("api-request", "api-request-blob", "api-request-resumed", "api-request-shape"),
    )
)
"""Kinds of lines without a uuid that speak of messages before the boundary only."""
_LATEST = frozenset(("atis-latch", "cost-state", "mode", "permission-mode", "tools-used"))
"""Kinds of which the last line counts."""


def is_boundary(line: Line) -> bool:
    """Is everything before it summed up behind it?"""
    marked = line.kind == "system" and line.value.get("subtype") == "compact_boundary"
    return marked and not line.value.get("isSidechain")


def without_summed(lines: Sequence[Line]) -> tuple[list[Line], list[Line]]:
    """The lines that count, and those before the last boundary that do not. All of them count if it cannot
    be told for sure."""
    place = next((place for place in reversed(range(len(lines))) if is_boundary(lines[place])), 0)
    start = _start(lines, place)
    if not start:
        return list(lines), []
    kept = _lasting(lines[:start])
    names = {id(line) for line in kept}
    return repair([*kept, *lines[start:]]), [line for line in lines[:start] if id(line) not in names]


def _start(lines: Sequence[Line], place: int) -> int:
    """Where the lines begin that the boundary at ``place`` leaves in force; 0 for all."""
    preserved = _preserved(lines[place]) if place else None
    summary = any(line.value.get("isCompactSummary") for line in lines[place:])
    if preserved is None or lines[place].parent or not summary:
        return 0
    places = {line.uuid: number for number, line in enumerate(lines[:place])}
    if not places.keys() >= preserved:
        return 0
    start = min((places[uuid] for uuid in preserved), default=place)
    known = {line.uuid for line in lines[start:]}
    whole = all(line.parent in known for line in lines[place:] if line.parent)
    return start if whole else 0


def _preserved(boundary: Line) -> set[str] | None:
    """Uuids of the lines before it that it leaves in force; ``None`` if it does not name them one by one."""
    about = mapping(boundary.value.get("compactMetadata"))
    listed = mapping(about.get("preservedMessages")).get("uuids")
    if isinstance(listed, list):
        ends = mapping(about.get("preservedSegment"))
        named = (*cast(list[object], listed), ends.get("headUuid"), ends.get("tailUuid"))
        return {uuid for uuid in map(word, named) if uuid}
    return None if about.get("preservedSegment") or about.get("preservedMessages") else set()


def _lasting(lines: Sequence[Line]) -> list[Line]:
    """What of the lines before says something about the session, and not about a message."""
    about = [line for line in lines if not line.uuid and line.kind not in _SPENT]
    last = {line.kind: place for place, line in enumerate(about)}
    return [line for place, line in enumerate(about) if line.kind not in _LATEST or last[line.kind] == place]
