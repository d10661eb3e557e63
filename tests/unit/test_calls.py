"""The calls of a session: few are decoded, and copies of a state share what does not change."""

from __future__ import annotations

import zlib
from collections.abc import Callable

import msgspec
import pytest

from harness_durable import events as ev
from harness_durable import fold
from harness_durable.calls import Calls
from harness_durable.state import ModelCall, Session, ToolCall
from tests.unit.log_kit import TEXT, Log, model, state, tool

CALLS: Log = [*model("m1"), *tool("a", done=True), *tool("b"), ev.ToolUnknown("b", TEXT)]
SETTLED: Log = [*CALLS, ev.TurnCompleted("m-1", TEXT), ev.LifeEnded("L1", "done")]
AGAIN: Log = [
    ev.MessageAccepted("m-2", TEXT),
    ev.TurnStarted("m-2"),
    ev.LifeStarted("L2", "m-2", "local", "run", "here", "2.1.0"),
]
OPEN: Log = [*SETTLED, *AGAIN, *model("m2"), *tool("c", released=True, model_call="m2")]
LATE: Log = [ev.ModelReplayed("m1", "L9"), ev.ToolReleased("a", "L9"), ev.ToolCompleted("c", TEXT, "hook")]


def loaded(session: Session) -> Session:
    found = fold.load(fold.dump(session))
    assert found is not None
    return found


def raw(session: Session) -> list[str]:
    stored = {**session.model_calls.stored, **session.tool_calls.stored}
    return [name for name, call in stored.items() if isinstance(call, msgspec.Raw)]


def late(session: Session) -> Session:
    return fold.fold((ev.Entry(100 + n, 2000, 1, event) for n, event in enumerate(LATE)), session)


def test_calls_of_settled_turns_are_not_decoded_before_somebody_asks() -> None:
    session = loaded(state(*OPEN))
    assert raw(session) == ["m1", "a", "b"]
    again = loaded(fold.copy(session))
    assert raw(session) == raw(again) == ["m1", "a", "b"]
    assert again.tool_calls["a"].outcome == "completed"
    assert raw(again) == ["m1", "b"]
    assert again == session == state(*OPEN)


@pytest.mark.parametrize(
    "kept", [lambda: state(*OPEN), lambda: loaded(state(*OPEN))], ids=["folded", "loaded"]
)
def test_a_copy_and_its_original_go_their_own_ways(kept: Callable[[], Session]) -> None:
    first = kept()
    second = fold.copy(first)
    assert late(second) == late(state(*OPEN)) != first
    assert first == state(*OPEN)
    assert late(first) == second


def test_a_call_of_the_open_turn_stays_one_object_through_all_changes() -> None:
    session = loaded(state(*OPEN))
    held = session.tool_calls["c"]
    fold.copy(session)
    late(session)
    assert held is session.tool_calls["c"] and held.outcome == "completed"


def test_they_are_like_a_dict() -> None:
    calls = loaded(state(*OPEN)).tool_calls
    assert "a" in calls and "x" not in calls and calls.get("x") is None
    assert list(calls) == [call.id for call in calls.values()] == [name for name, _ in calls.items()]
    assert [call.id for call in reversed(calls.values())] == list(reversed(calls)) == ["c", "b", "a"]
    assert list(calls.only(lambda call: call.outcome is None)) == ["c"]
    assert len(calls) == 3 and calls != Calls(ToolCall) and Calls(ToolCall) == Calls(ToolCall)


def test_a_log_of_settled_turns_costs_a_copy_nothing_for_its_calls() -> None:
    """They are the same objects, not equal ones."""
    session = state(*SETTLED)
    twin = fold.copy(session)
    assert all(twin.tool_calls[name] is call for name, call in session.tool_calls.items())


def test_whoever_changes_the_shape_of_a_call_makes_another_version_of_snapshots() -> None:
    """Their fields go by their places, and are decoded late: an old snapshot must be known by its version."""
    shapes = [zlib.crc32(",".join(kind.__struct_fields__).encode()) for kind in (ToolCall, ModelCall)]
    assert (fold.VERSION, *shapes) == (4, 1988831231, 13048295)


def test_the_calls_that_a_repeat_is_compared_with_are_kept_by_name() -> None:
    refused: Log = [*tool("d"), ev.ToolRefused("d", "b", TEXT), *tool("e"), ev.ToolCancelled("e", TEXT)]
    session = state(*SETTLED, *AGAIN, *refused)
    assert (session.cut_off, session.refused) == (["b", "e"], ["d"])
