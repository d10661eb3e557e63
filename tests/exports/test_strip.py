"""The lives in characters: what died is seen, on any width, and without colours."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len

from harness_durable import events as ev
from harness_durable.cli.strip import LEGEND, length, strip
from harness_durable.fold import fold
from harness_durable.payload import pack_text
from harness_durable.state import Session

TEXT = pack_text("x").payload
SETTLED = "the turn was settled"
HOUR = 3_600_000


def session(*timed: tuple[int, ev.AnyEvent]) -> Session:
    """One whose events happened at these times (ms)."""
    begun: list[tuple[int, ev.AnyEvent]] = [(0, ev.MessageAccepted("m-1", TEXT)), (0, ev.TurnStarted("m-1"))]
    return fold(ev.Entry(seq, time, 1, event) for seq, (time, event) in enumerate([*begun, *timed], 1))


def started(name: str) -> ev.AnyEvent:
    return ev.LifeStarted(name, "m-1", "local", "run", "here", "1")


def called(name: str, life: str, start: int) -> list[tuple[int, ev.AnyEvent]]:
    asked = ev.ToolRequested(name, "Bash", TEXT, "m1", "never", "builtin")
    return [(start, asked), (start, ev.ToolReleased(name, life))]


DEATH = [
    (0, started("L1")),
    (0, ev.ModelRequested("m1", "k", "L1", "anthropic", "x", "/", (TEXT,))),
    (2000, ev.ModelCompleted("m1", 200, "json", TEXT)),
    *called("c1", "L1", 5000),
    (10_000, ev.LifeEnded("L1", "killed by signal 9")),
    (10_000 + HOUR, ev.ToolUnknown("c1", TEXT)),
    (10_000 + HOUR, started("L2")),
    *called("c2", "L2", 12_000 + HOUR),
    (18_000 + HOUR, ev.ToolCompleted("c2", TEXT, "hook")),
    (20_000 + HOUR, ev.LifeEnded("L2", SETTLED)),
]


def test_a_session_without_a_life_has_no_strip() -> None:
    assert strip(session(), 80) == []


def test_a_death_a_gap_and_an_orderly_end_are_drawn_to_time() -> None:
    _, first, second, *legend = strip(session(*DEATH), 80)
    assert re.match(r"life 1 ▒{3,6}─{4,6}▲█{8,9}╳", first)
    assert first.endswith("╳ killed by signal 9")
    assert second.startswith("life 2 ")
    assert "· 1 h ·" in second
    assert re.search(r"█─{2,4}┤$", second)
    assert second.index("·") == first.index("╳") + 1
    assert "  ".join(legend) == LEGEND


def test_a_life_that_goes_on_has_no_edge_and_who_attached_is_marked() -> None:
    state = session(
        (0, started("L1")), (50, ev.LifeAttached("L1", "w-2")), (100, ev.StopRequested("m-1", "you"))
    )
    _, lane, *_ = strip(state, 80)
    assert lane.endswith("─ …")
    assert lane.startswith("life 1 ┼─")


@pytest.mark.parametrize("width", [1, 40, 60, 80, 200])
def test_no_line_is_wider_than_the_terminal(width: int) -> None:
    state = session(*DEATH[:-1], (20_000 + HOUR, ev.LifeEnded("L2", "死んだ " * 30 + "\x1b[31m")))
    lines = strip(state, width)
    assert all(cell_len(line) <= max(width, 48) for line in lines)
    assert all(line.isprintable() for line in lines)


def test_of_many_lives_the_last_are_shown_and_the_others_counted() -> None:
    timed: list[tuple[int, ev.AnyEvent]] = []
    for number in range(50):
        timed += [
            (number * 100, started(f"L{number}")),
            (number * 100 + 50, ev.LifeEnded(f"L{number}", "gone")),
        ]
    lines = strip(session(*timed), 100)
    assert lines[1] == "30 lives before are not shown"
    lanes = [line for line in lines if line.startswith("life ")]
    assert [lane.split()[1] for lane in lanes] == [str(number) for number in range(31, 51)]
    assert all("╳" in lane for lane in lanes)


@given(st.lists(st.integers(-1000, 100_000), min_size=2, max_size=12), st.integers(1, 120))
def test_clocks_that_do_not_agree_are_drawn_somehow(steps: list[int], width: int) -> None:
    timed: list[tuple[int, ev.AnyEvent]] = []
    time = 10_000_000
    for number, step in enumerate(steps):
        timed += [(time, started(f"L{number}")), *called(f"c{number}", f"L{number}", time - step)]
        timed.append((time := time + step, ev.LifeEnded(f"L{number}", "gone")))
    lanes = [line for line in strip(session(*timed), width) if line.startswith("life ")]
    assert len(lanes) == len(steps)


@pytest.mark.parametrize(
    ("ms", "said"), [(0, "0.0 s"), (1500, "1.5 s"), (60_000, "1 min"), (HOUR * 5, "5 h"), (HOUR * 49, "2 d")]
)
def test_lengths_are_short(ms: int, said: str) -> None:
    assert length(ms) == said
