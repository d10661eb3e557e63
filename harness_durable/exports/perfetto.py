"""A session for ``ui.perfetto.dev``, in the JSON trace format of Chrome, which it and others open.

Each life is a process there, with its own name and place, and in it the life itself, the model calls and the
tool calls; what overlaps lies on rows of its own, since slices of one row must nest. What surprises: nothing
takes less than a microsecond, as an arrow is tied to whatever slice lies at its time."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec

from harness_durable.codec import kind_of
from harness_durable.exports import genai
from harness_durable.exports.material import Material
from harness_durable.exports.spans import Span, Spans
from harness_durable.payload import clean

SESSION = 1
"""The process of what belongs to no life. That of life n is n + 1; 0 is the idle process."""

_LOWEST = {"life": 1, "turn": 1, "session": 1, "model": 10, "tool": 1000}
"""The first row of each kind; rows are numbered up from there."""
_ROWS = {"life": "life", "turn": "turns", "session": "session", "model": "model calls", "tool": "tool calls"}
EVENTS = 5000
"""The row of the session's events."""

_ARROW = {"name": "goes on in", "cat": "succession"}
"""From a lost run to the one that took its place."""

Event = dict[str, Any]


def perfetto(material: Material) -> Iterator[bytes]:
    """The file, in pieces."""
    yield b'{"displayTimeUnit":"ms","traceEvents":[\n'
    first = True
    for event in _events(material):
        yield (b"" if first else b",\n") + msgspec.json.encode(event)
        first = False
    yield b"\n]}\n"


def _events(material: Material) -> Iterator[Event]:
    spans = [span for span in Spans(material).all() if span.kind != "session"]
    spans.sort(key=lambda span: (span.start, span.seq))
    begun = min((entry.time for entry in material.entries), default=0)
    yield from _named(SESSION, f"session {material.session}", 0)
    yield _thread(SESSION, EVENTS, "events")
    for life in material.state.lives.values():
        yield from _named(SESSION + life.number, f"life {life.number}", life.number)
    rows = _Rows()
    arriving: dict[tuple[str, int], list[int]] = {}
    for number, span in enumerate(spans, 1):
        process, row, fresh = rows.place(span)
        if fresh:
            yield _thread(process, row, _ROWS[span.kind])
        place = {"pid": process, "tid": row}
        start = (span.start - begun) * 1000
        length = max(1, (span.end - span.start) * 1000)
        yield {"ph": "X", "ts": start, "dur": length, **place, **_slice(material, span)}
        for arrow in arriving.get((span.kind, span.seq), ()):
            yield {"ph": "f", "bp": "e", "ts": start, "id": arrow, **place, **_ARROW}
        later = span.successor
        if later is not None and (later.start, later.seq) > (span.start, span.seq):  # clocks may disagree
            arriving.setdefault((later.kind, later.seq), []).append(number)
            leaves = min(start + length - 1, max(start, (later.start - begun) * 1000))
            yield {"ph": "s", "ts": leaves, "id": number, **place, **_ARROW}
    for entry in material.entries:
        yield {
            "ph": "i", "s": "t", "pid": SESSION, "tid": EVENTS, "ts": (entry.time - begun) * 1000,
            "name": kind_of(entry.event), "cat": "event", "args": {"seq": entry.seq, "epoch": entry.epoch},
        }  # fmt: skip


def _slice(material: Material, span: Span) -> Event:
    values = genai.attributes(material, span)
    args = {name: _plain(value) for name, value in values.items() if value is not None}
    if span.reason:
        args["reason"] = clean(span.reason)
    word = "" if span.word in ("", "completed", "ended") else f" ({span.word})"
    return {"name": clean(span.name + word), "cat": span.kind, "args": args}


class _Rows:
    """Which row is free when a slice begins."""

    def __init__(self) -> None:
        self._busy: dict[tuple[int, str], list[int]] = {}

    def place(self, span: Span) -> tuple[int, int, bool]:
        """The process and the row of a span, and whether the row is new. Spans come in order of time."""
        process = SESSION + span.lane
        ends = self._busy.setdefault((process, span.kind), [])
        ended = max(span.start * 1000 + 1, span.end * 1000)
        for number, end in enumerate(ends):
            if end <= span.start * 1000:
                ends[number] = ended
                return process, _LOWEST[span.kind] + number, False
        ends.append(ended)
        return process, _LOWEST[span.kind] + len(ends) - 1, True


def _named(process: int, name: str, place: int) -> Iterator[Event]:
    yield {"ph": "M", "pid": process, "tid": 0, "name": "process_name", "args": {"name": clean(name)}}
    yield {"ph": "M", "pid": process, "tid": 0, "name": "process_sort_index", "args": {"sort_index": place}}


def _thread(process: int, row: int, name: str) -> Event:
    return {"ph": "M", "pid": process, "tid": row, "name": "thread_name", "args": {"name": name}}


def _plain(value: Any) -> Any:
    if isinstance(value, list):
        return [clean(str(one)) for one in value]  # pyright: ignore[reportUnknownVariableType,reportUnknownArgumentType]
    return clean(value) if isinstance(value, str) else value
