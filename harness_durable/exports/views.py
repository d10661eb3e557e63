"""Where a text says something that a search for words would not find: behind escapes, and in pieces.

A secret in a tool's result stands in a transcript within JSON within JSON (``\\\\u00e4``), and in a streamed
response in pieces of a few letters, one an event. A ``View`` is such a text as it is meant, with the way back
to the bytes that it came from. What surprises: nothing is parsed, so that a damaged line is read as well."""

from __future__ import annotations

import json
import re
from bisect import bisect_right
from collections.abc import Iterator

import msgspec

DEPTH = 5
"""How often JSON may stand within a string of JSON. A transcript of a transcript has 3."""

_ESCAPE = re.compile(
    r'\\(?:u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}|u[0-9a-fA-F]{4}|["\\/bfnrt])'
)
_MEANT = {"\\n": "\n", '\\"': '"', "\\\\": "\\", "\\t": "\t", "\\/": "/"}
_PAIR = re.compile(r'"(\w{1,64})"\s*:\s*"([^"\\]*+(?:\\.[^"\\]*+)*+)"')
_PLACE = re.compile(r'"(?:\w{1,20}_)?index"\s*:\s*(\d+)|"item_id"\s*:\s*"([\w.-]+)')
_FIXED = frozenset({"type", "id", "item_id", "event_id", "object", "model", "role", "name", "obfuscation"})
"""Members of a delta that do not grow."""

Span = tuple[int, int]


class Segment(msgspec.Struct, frozen=True, gc=False):
    """A stretch of a view and where it comes from. ``whole``: an escape, which cannot be taken apart."""

    at: int
    start: int
    end: int
    whole: bool = False


class View(msgspec.Struct, frozen=True):
    """A text, and for each stretch of it the place in ``source``; no segments: it is the source."""

    text: str
    segments: list[Segment]
    source: View | None = None

    def origin(self, start: int, end: int) -> Iterator[Span]:
        """The stretches of the outermost text that ``start`` to ``end`` of this one stand for."""
        if self.source is None:
            yield start, end
            return
        place = bisect_right(self.segments, start, key=lambda segment: segment.at) - 1
        for segment in self.segments[max(place, 0) :]:
            if segment.at >= end:
                return
            if segment.whole:
                yield from self.source.origin(segment.start, segment.end)
                continue
            first = segment.start + max(0, start - segment.at)
            last = min(segment.end, segment.start + end - segment.at)
            if first < last:
                yield from self.source.origin(first, last)


def views(text: str) -> Iterator[View]:
    """The text itself, what its pieces amount to when they are joined, and both without their escapes."""
    whole = View(text, [])
    for begun in (whole, *_joined(whole)):
        view: View | None = begun
        for _ in range(DEPTH):
            if view is None:
                break
            yield view
            view = _unescaped(view)


def _unescaped(view: View) -> View | None:
    """The text that a string of JSON stands for; ``None`` if it has no escapes."""
    pieces: list[str] = []
    segments: list[Segment] = []
    at = done = 0
    for found in _ESCAPE.finditer(view.text):
        meant: str = _MEANT.get(found[0]) or json.loads(f'"{found[0]}"')
        if found.start() > done:
            segments.append(Segment(at, done, found.start()))
            at += found.start() - done
        segments.append(Segment(at, *found.span(), True))
        pieces += (view.text[done : found.start()], meant)
        at, done = at + len(meant), found.end()
    if not pieces:
        return None
    segments.append(Segment(at, done, len(view.text)))
    return View("".join((*pieces, view.text[done:])), segments, view)


def _joined(view: View) -> Iterator[View]:
    """For each text that grows by deltas, event by event: all of it."""
    if "delta" not in view.text:
        return
    grown: dict[tuple[str, ...], list[Span]] = {}
    start = 0
    for line in view.text.splitlines(keepends=True):
        if "delta" in line:
            place = tuple(index or item for index, item in _PLACE.findall(line))
            for pair in _PAIR.finditer(line):
                if pair[1] not in _FIXED and pair[2]:
                    span = (start + pair.start(2), start + pair.end(2))
                    grown.setdefault((pair[1], *place), []).append(span)
        start += len(line)
    for spans in grown.values():
        segments: list[Segment] = []
        at = 0
        for first, last in spans:
            segments.append(Segment(at, first, last))
            at += last - first
        yield View("".join(view.text[first:last] for first, last in spans), segments, view)
