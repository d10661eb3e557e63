"""The plan after a crash: a table of logs, and what is done with each.

C065: when the worker is lost, only what a tool declares safe or idempotent is done again."""

from __future__ import annotations

from typing import get_args

import pytest

from harness_durable import events as ev
from harness_durable.recovery import MAX_FRUITLESS, Action, Facts, Step, plan
from harness_durable.state import Session
from tests.unit.log_kit import TEXT, Log, model, state, tool

GONE = Facts(keeper_alive=False)
ALIVE = Facts(keeper_alive=True)


def facts(alive: bool = False, **more: object) -> Facts:
    return Facts(keeper_alive=alive, **more)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]


PROBED = facts(probes=frozenset({"Bash"}))
STOP: Log = [ev.StopRequested("m-1", "anna")]

CALLS: dict[str, tuple[Log, Facts, dict[str, Action]]] = {
    "nothing of its response was released": (
        [*tool("a"), *tool("b", custom=True)],
        GONE,
        {"a": "replay", "b": "replay"},
    ),
    "a finished call needs no plan": (tool("a", done=True), GONE, {}),
    "C055, killed after the 2nd of 5": (
        [*tool("a", done=True), *tool("b", done=True), *tool("c", released=True), *tool("d"), *tool("e")],
        GONE,
        {"c": "unknown", "d": "not_started", "e": "not_started"},
    ),
    "C055, killed after the 2nd of 5 custom ones": (
        [
            *tool("a", custom=True, done=True),
            *tool("b", custom=True, done=True),
            *tool("c", custom=True, released=True),
            *tool("d", custom=True),
            *tool("e", custom=True),
        ],
        GONE,
        {"c": "unknown", "d": "run", "e": "run"},
    ),
    "never: unknown": (tool("a", released=True), GONE, {"a": "unknown"}),
    "idempotent: a built-in tool has no key, so unknown": (
        tool("a", "idempotent", released=True),
        GONE,
        {"a": "unknown"},
    ),
    "safe: the model may do it again": (tool("a", "safe", released=True), GONE, {"a": "again"}),
    "safe in a subagent: replayed": (tool("a", "safe", released=True, agent="g"), GONE, {"a": "replay"}),
    "never in a subagent: unknown": (tool("a", released=True, agent="g"), GONE, {"a": "unknown"}),
    "unasked siblings ran: no subagent gets its response again": (
        [
            *tool("a", "safe", name="Agent", released=True),
            *tool("b", released=True, request=1),
            *tool("c", custom=True),
        ],
        facts(containers=frozenset({"Agent"})),
        {"a": "again", "b": "unknown", "c": "run"},
    ),
    "recorded results are supplied: what never ran runs in the harness": (
        [*tool("a", done=True), *tool("b", released=True), *tool("c"), *tool("d", custom=True)],
        facts(supplies=True, asks=True),
        {"b": "unknown", "c": "replay", "d": "replay"},
    ),
    "recorded results are supplied: a safe call runs again": (
        [*tool("a", "safe", released=True), *tool("b", released=True)],
        facts(supplies=True),
        {"a": "replay", "b": "unknown"},
    ),
    "recorded results are supplied, but siblings ran unasked": (
        [*tool("a", released=True, request=1), *tool("b")],
        facts(supplies=True),
        {"a": "unknown", "b": "not_started"},
    ),
    "custom never: unknown": (tool("a", custom=True, released=True), GONE, {"a": "unknown"}),
    "custom never with a probe": (tool("a", custom=True, released=True), PROBED, {"a": "probe"}),
    "a probe is for custom tools only": (tool("a", released=True), PROBED, {"a": "unknown"}),
    "custom idempotent: run": (tool("a", "idempotent", custom=True, released=True), GONE, {"a": "run"}),
    "custom safe: run": (tool("a", "safe", custom=True, released=True), GONE, {"a": "run"}),
    "today stricter than the log": (
        tool("a", "safe", custom=True, released=True),
        facts(policies={"Bash": "never"}),
        {"a": "unknown"},
    ),
    "the log stricter than today": (
        tool("a", custom=True, released=True),
        facts(policies={"Bash": "safe"}),
        {"a": "unknown"},
    ),
    "never released beside a sibling that was": (
        [*tool("a", released=True), *tool("b"), *tool("c", custom=True)],
        GONE,
        {"a": "unknown", "b": "not_started", "c": "run"},
    ),
    "never released beside a sibling that is finished": (
        [*tool("a", done=True), *tool("b")],
        GONE,
        {"b": "not_started"},
    ),
    "responses are judged one by one": (
        [*tool("a", released=True), *model("m2"), *tool("b", model_call="m2")],
        GONE,
        {"a": "unknown", "b": "replay"},
    ),
    "a subagent's call that was never released": (
        [*tool("a", done=True, agent="g"), *tool("b", agent="g")],
        GONE,
        {"b": "replay"},
    ),
    "a subagent itself, and its sibling": (
        [*tool("a", name="Agent", released=True), *tool("b")],
        facts(containers=frozenset({"Agent"})),
        {"a": "replay", "b": "replay"},
    ),
    "attached: it goes on": ([*tool("a", released=True), *tool("b")], ALIVE, {"a": "wait", "b": "wait"}),
    "attached: a custom tool ran in the dead worker": (
        [*tool("a", custom=True, released=True), *tool("b", custom=True)],
        ALIVE,
        {"a": "unknown", "b": "wait"},
    ),
    "attached: idempotent runs again": (
        tool("a", "idempotent", custom=True, released=True),
        ALIVE,
        {"a": "run"},
    ),
    "stopped: only the truth is written": (
        [
            *tool("a", "safe", released=True),
            *tool("b"),
            *tool("c", "safe", custom=True, released=True),
            *STOP,
        ],
        GONE,
        {"a": "unknown", "b": "not_started", "c": "unknown"},
    ),
    "stopped: a probe may still be asked": (
        [*tool("a", custom=True, released=True), *STOP],
        PROBED,
        {"a": "probe"},
    ),
}


@pytest.mark.parametrize("case", CALLS)
def test_what_becomes_of_calls(case: str) -> None:
    log, known, expected = CALLS[case]
    found = plan(state(*model(), *log), known)
    assert {call.call: call.action for call in found.calls} == expected
    assert all(call.why for call in found.calls)


def test_the_table_has_every_action() -> None:
    planned = {action for _, _, expected in CALLS.values() for action in expected.values()}
    assert planned == set(get_args(Action)) - {"keep"}


def lives(count: int, *, progress_in: int = 0, planned: bool = False) -> Log:
    """``count`` lives in all, L1 among them, each of them over."""
    log: Log = []
    for number in range(1, count + 1):
        if number > 1:
            log.append(ev.LifeStarted(f"L{number}", "m-1", "local", "run", "here", "2.1.0"))
        if number == progress_in:
            log += model(f"m{number}")
        log.append(ev.LifeEnded(f"L{number}", "it crashed"))
        log.append(ev.TurnInterrupted("m-1", "it crashed", planned))
    return log


RUNGS: dict[str, tuple[Log, Facts, Step]] = {
    "the keeper is alive": ([], ALIVE, "attach"),
    "the keeper is gone": ([], GONE, "continue"),
    "the life is over, whatever the keeper says": ([ev.LifeEnded("L1", "x")], ALIVE, "continue"),
    "a stop wins over a living keeper": (STOP, ALIVE, "cancel"),
    "a stop wins over giving up": ([*lives(MAX_FRUITLESS), *STOP], GONE, "cancel"),
    "fruitless lives, one less than the limit": (lives(MAX_FRUITLESS - 1), GONE, "continue"),
    "fruitless lives": (lives(MAX_FRUITLESS), GONE, "needs_input"),
    "planned stops use up nothing": (lives(MAX_FRUITLESS + 3, planned=True), GONE, "continue"),
    "progress starts the count again": (lives(MAX_FRUITLESS + 1, progress_in=2), GONE, "continue"),
    "a person said go on": (
        [
            *lives(MAX_FRUITLESS),
            ev.TurnNeedsInput("m-1", "why"),
            ev.TurnResumed("m-1", "", "continue", (), True),
        ],
        GONE,
        "continue",
    ),
    "it waits for a person": ([*lives(MAX_FRUITLESS), ev.TurnNeedsInput("m-1", "why")], GONE, "idle"),
    "all is done": ([ev.TurnCompleted("m-1", TEXT)], GONE, "idle"),
    "the next message waits": (
        [ev.TurnFailed("m-1", "x", "y"), ev.MessageAccepted("m-2", TEXT)],
        GONE,
        "start",
    ),
    "nothing starts in a closed session": (
        [ev.TurnCancelled("m-1", "x"), ev.MessageAccepted("m-2", TEXT), ev.SessionClosed("x")],
        GONE,
        "idle",
    ),
    "a turn goes on where its session went": ([ev.SessionMoved("file:there", "running", 1)], GONE, "idle"),
    "a stop, too": (
        [ev.StopRequested("m-1", "anna"), ev.SessionMoved("file:there", "running", 1)],
        GONE,
        "idle",
    ),
}


@pytest.mark.parametrize("case", RUNGS)
def test_which_rung_of_the_ladder(case: str) -> None:
    log, known, expected = RUNGS[case]
    found = plan(state(*log), known)
    assert found.rung == expected
    assert found.reason


def test_the_table_has_every_rung() -> None:
    assert {rung for _, _, rung in RUNGS.values()} == set(get_args(Step))


def test_an_empty_session_has_nothing_to_do() -> None:
    assert plan(Session(), GONE).rung == "idle"


def test_the_plan_names_turn_message_life_and_lost_answers() -> None:
    found = plan(state(*model("m1"), *model("m2", done=False)), GONE)
    assert (found.turn, found.life, found.lost) == ("m-1", "L1", ("m2",))
    started = plan(state(ev.TurnCompleted("m-1", TEXT), ev.MessageAccepted("m-2", TEXT)), GONE)
    assert (started.turn, started.message) == ("m-2", "m-2")


def test_giving_up_says_how_the_last_life_ended() -> None:
    assert "it crashed" in plan(state(*lives(MAX_FRUITLESS)), GONE).reason


def test_a_plan_changes_nothing_and_is_the_same_twice() -> None:
    session = state(*model(), *tool("a", released=True))
    first = plan(session, GONE)
    assert plan(session, GONE) == first
    assert session == state(*model(), *tool("a", released=True))
