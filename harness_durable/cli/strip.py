"""The lives of a session in characters: a lane per life on one axis of time. Pure.

What surprises: the axis is not even. Time in which nobody lived takes a few cells, however long it was, and
says how long; else a night would leave a cell for all the work around it."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from itertools import pairwise

import msgspec
from rich.cells import cell_len, set_cell_size

from harness_durable.cli.common import one_line
from harness_durable.state import Life, Session

MOST_LANES = 20
GAP = 9
"""Cells of a gap, unless the axis has less for it at this scale."""
NARROWEST = 20
REASON = 24
"""Cells behind the axis that the reason of an end may take."""

ALIVE, MODEL, TOOL, UNKNOWN, DIED, ENDED, ATTACHED, GONE = "─▒█▲╳┤┼·"
LEGEND = (
    f"{ALIVE} alive  {MODEL} model call  {TOOL} tool call  {UNKNOWN} unknown  {ATTACHED} other workers came"
    f"  {ENDED} ended in order  {DIED} cut off  {GONE} nobody lives"
)
SETTLED = "the turn was settled"


class Stretch(msgspec.Struct, frozen=True):
    """Time from ``start`` to ``end`` (ms) on the cells from ``first`` to before ``last``."""

    start: int
    end: int
    first: int
    last: int

    def cell(self, time: int) -> int:
        length = max(1, self.end - self.start)
        return self.first + (time - self.start) * (self.last - 1 - self.first) // length


def strip(state: Session, width: int) -> list[str]:
    """The lines, each at most ``width`` cells wide; none for a session that never had a life."""
    lives = list(state.lives.values())[-MOST_LANES:]
    if not lives:
        return []
    label = max(len(f"life {life.number} ") for life in lives)
    width = max(width, label + NARROWEST)
    room = max(NARROWEST, width - label - REASON)
    axis = _axis(state, lives, room)
    lines = [" " * label + _times(axis, room)]
    if len(lives) < len(state.lives):
        lines.append(f"{len(state.lives) - len(lives)} lives before are not shown")
    for before, life in zip([None, *lives], lives, strict=False):
        lane = f"life {life.number}".ljust(label) + _lane(state, axis, before, life)
        lines.append(_fitted(lane, width))
    return [*lines, *_wrapped(LEGEND, width)]


def _axis(state: Session, lives: Sequence[Life], room: int) -> list[Stretch]:
    """Stretches of life and of gaps, in order."""
    spans: list[list[int]] = []
    for life in sorted(lives, key=lambda life: life.started):
        end = max(life.started, state.updated if life.ended is None else life.ended)
        if spans and life.started <= spans[-1][1]:
            spans[-1][1] = max(spans[-1][1], end)
        else:
            spans.append([life.started, end])
    total = sum(end - start for start, end in spans)
    gaps = [_cells(one[1], other[0], room // (3 * len(spans))) for one, other in pairwise(spans)]
    free = room - sum(gaps) - 2 * len(spans)
    axis: list[Stretch] = []
    place = spent = 0
    for number, (start, end) in enumerate(spans):
        spent += end - start
        share = max(0, free) * spent // max(1, total) + 2 * (number + 1)
        last = max(place + 2, share + sum(gaps[:number]))
        axis.append(Stretch(start, end, place, last))
        place = last
        if number < len(gaps):
            axis.append(Stretch(end, spans[number + 1][0], place, place + gaps[number]))
            place += gaps[number]
    return axis


def _cells(start: int, end: int, most: int) -> int:
    """Of a gap."""
    return max(1, min(GAP if end - start >= 1000 else 1, most))


def _lane(state: Session, axis: Sequence[Stretch], before: Life | None, life: Life) -> str:
    end = state.updated if life.ended is None else life.ended
    own = next(one for one in axis[::2] if one.start <= life.started <= one.end)
    cells = [" "] * own.last
    first, last = own.cell(life.started), own.cell(max(end, life.started))
    cells[first : last + 1] = ALIVE * (last + 1 - first)
    for start, stop, sign in _bars(state, life, end):
        cells[own.cell(start) : own.cell(stop) + 1] = sign * (own.cell(stop) + 1 - own.cell(start))
    for tool in state.tool_calls.values():
        if tool.outcome == "unknown" and tool.released_in == life.id and tool.released is not None:
            cells[max(first, min(own.cell(tool.released), last - 1))] = UNKNOWN
    gap = next((one for one in axis[1::2] if one.last == own.first), None)
    if gap is not None and before is not None and life.started == gap.end:
        cells[gap.first : gap.last] = _gap(gap)
    if len(life.workers) > 1:  # a state keeps who came, and not when
        cells[first] = ATTACHED
    drawn = "".join(cells).rstrip()
    if life.ended is None:
        return f"{drawn} …"
    if life.reason == SETTLED:
        return drawn[:last] + ENDED
    return f"{drawn[:last]}{DIED} {one_line(life.reason, 200)}"


def _bars(state: Session, life: Life, end: int) -> list[tuple[int, int, str]]:
    """The calls of a life, from when to when, the longest first, so that no short one is hidden."""
    models = [one for one in state.model_calls.values() if one.life == life.id]
    tools = [one for one in state.tool_calls.values() if one.released_in == life.id]
    bars = [(model.requested, model.finished, MODEL) for model in models]
    bars += [(tool.released or tool.requested, tool.finished, TOOL) for tool in tools]
    within = [
        (min(max(start, life.started), end), min(stop if stop is not None else end, end), sign)
        for start, stop, sign in bars
    ]
    return sorted(
        ((start, max(start, stop), sign) for start, stop, sign in within), key=lambda bar: bar[0] - bar[1]
    )


def _gap(gap: Stretch) -> str:
    size = gap.last - gap.first
    said = length(gap.end - gap.start)
    return f" {said} ".center(size, GONE) if len(said) + 2 <= size else GONE * size


def length(ms: int) -> str:
    """A length of time, short."""
    for unit, name in ((86_400_000, "d"), (3_600_000, "h"), (60_000, "min")):
        if ms >= unit:
            return f"{ms / unit:.0f} {name}"
    return f"{ms / 1000:.1f} s"


def _times(axis: Sequence[Stretch], room: int) -> str:
    begun, ended = (datetime.fromtimestamp(time / 1000) for time in (axis[0].start, axis[-1].end))
    shape = "%H:%M:%S" if begun.date() == ended.date() else "%m-%d %H:%M"
    first, last = begun.strftime(shape), ended.strftime(shape)
    return first + " " * max(1, room - len(first) - len(last)) + last


def _fitted(text: str, width: int) -> str:
    return text if cell_len(text) <= width else set_cell_size(text, width - 1).rstrip() + "…"


def _wrapped(text: str, width: int) -> list[str]:
    lines = [""]
    for part in text.split("  "):
        if lines[-1] and len(lines[-1]) + 2 + len(part) > width:
            lines.append("")
        lines[-1] += ("  " if lines[-1] else "") + part
    return lines
