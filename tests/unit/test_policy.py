"""What may be done with one call: the barrier's answers."""

from __future__ import annotations

import itertools

import pytest

from harness_durable import events as ev
from harness_durable import policy
from harness_durable.events import ReplayPolicy
from harness_durable.fold import fold
from harness_durable.payload import Payload, pack, pack_text
from harness_durable.state import Session

POLICIES: tuple[ReplayPolicy, ...] = ("safe", "idempotent", "never")


def state(*log: ev.AnyEvent) -> Session:
    return fold(ev.Entry(place, 1000 + place, 1, event) for place, event in enumerate(log, 1))


def requested(
    call: str,
    *,
    arguments: bytes = b"{}",
    name: str = "Bash",
    replay: ReplayPolicy = "never",
    response: str = "",
) -> ev.AnyEvent:
    """By default each call is of a response of its own."""
    payload = pack(arguments).payload
    return ev.ToolRequested(call, name, payload, response or f"m-{call}", replay, "builtin")


def text(words: str = "x") -> Payload:
    return pack_text(words).payload


def verdict(session: Session, call: str = "c1", life: str = "L1") -> policy.Verdict:
    return policy.gate(session, session.tool_calls[call], life)


@pytest.mark.parametrize("replay", POLICIES)
def test_a_call_that_was_only_asked_for_may_run(replay: ReplayPolicy) -> None:
    assert verdict(state(requested("c1", replay=replay))) == policy.Verdict("release")


@pytest.mark.parametrize(
    "outcome", [ev.ToolCompleted("c1", text(), "hook"), ev.ToolFailed("c1", text(), "hook")]
)
def test_a_finished_call_is_supplied_in_every_life(outcome: ev.AnyEvent) -> None:
    session = state(requested("c1"), ev.ToolReleased("c1", "L1"), outcome)
    assert verdict(session).action == verdict(session, life="L2").action == "supply"


@pytest.mark.parametrize(
    ("outcome", "words"),
    [
        (ev.ToolUnknown("c1", text("cut off")), "cut off"),
        (ev.ToolCancelled("c1", text("stopped")), "stopped"),
        (ev.ToolNotStarted("c1", text("never ran")), "never ran"),
        (ev.ToolRefused("c1", "c0", text("refused")), "refused"),
        (ev.ToolUnknown("c1", Payload(9, blob="ab")), policy.UNKNOWN),
        (ev.ToolCancelled("c1", Payload(9, blob="ab")), policy.CANCELLED),
        (ev.ToolNotStarted("c1", Payload(9, blob="ab")), policy.NOT_STARTED),
    ],
)
def test_a_call_with_another_outcome_is_denied_with_what_was_told(outcome: ev.AnyEvent, words: str) -> None:
    assert verdict(state(requested("c1"), outcome)) == policy.Verdict("deny", words)


@pytest.mark.parametrize("replay", POLICIES)
def test_released_in_this_life_is_said_to_be_so(replay: ReplayPolicy) -> None:
    session = state(requested("c1", replay=replay), ev.ToolReleased("c1", "L1"))
    assert verdict(session) == policy.Verdict("release", already=True)


@pytest.mark.parametrize(
    ("replay", "action"), [("safe", "release"), ("idempotent", "deny"), ("never", "deny")]
)
def test_released_in_another_life_runs_again_only_if_safe(replay: ReplayPolicy, action: str) -> None:
    session = state(requested("c1", replay=replay), ev.ToolReleased("c1", "L1"))
    assert verdict(session, life="L2").action == action


def test_the_first_identical_repeat_of_an_unknown_call_is_refused_and_the_second_is_not() -> None:
    log = [
        requested("c1", arguments=b'{"a":1,"b":2}'),
        ev.ToolReleased("c1", "L1"),
        ev.ToolUnknown("c1", text()),
    ]
    log += [requested("c2", arguments=b'{ "b":2, "a":1 }'), requested("c3", arguments=b'{"a":1,"b":2}')]
    first = verdict(state(*log), "c2")
    assert (first.action, first.repeats, first.text) == ("refuse", "c1", policy.REFUSED)
    log += [ev.ToolRefused("c2", "c1", text())]
    assert verdict(state(*log), "c3").action == "release"


def test_a_refusal_that_the_model_has_not_read_yet_does_not_count() -> None:
    log = [requested("c1"), ev.ToolReleased("c1", "L1"), ev.ToolUnknown("c1", text())]
    log += [requested("c2", response="m9"), requested("c3", response="m9"), requested("c4", response="m10")]
    log += [ev.ToolRefused("c2", "c1", text())]
    assert verdict(state(*log), "c3").action == "refuse"
    assert verdict(state(*log), "c4").action == "release"


def test_each_unknown_call_has_its_own_refusal() -> None:
    log: list[ev.AnyEvent] = []
    for call in ("c1", "c2"):
        log += [requested(call), ev.ToolReleased(call, "L1"), ev.ToolUnknown(call, text())]
    log += [requested("c3"), ev.ToolRefused("c3", "c1", text()), requested("c4")]
    assert verdict(state(*log), "c4").repeats == "c2"


@pytest.mark.parametrize(
    "other",
    [
        requested("c2", arguments=b'{"a":2}'),
        requested("c2", arguments=b'{"a":1}', name="Other"),
        requested("c2", arguments=b'{"a":"1"}'),
        requested("c2", arguments=b"{"),
    ],
)
def test_another_call_is_no_repeat(other: ev.AnyEvent) -> None:
    log = [
        requested("c1", arguments=b'{"a":1}'),
        ev.ToolReleased("c1", "L1"),
        ev.ToolUnknown("c1", text()),
        other,
    ]
    assert verdict(state(*log), "c2").action == "release"


def test_repeats_are_recognised_when_arguments_are_in_blobs_or_are_no_json() -> None:
    for arguments in (b'{"text":"' + b"x" * 40_000 + b'"}', b"\xff{", b"[" * 20_000):
        log = [
            requested("c1", arguments=arguments),
            ev.ToolReleased("c1", "L1"),
            ev.ToolUnknown("c1", text()),
        ]
        assert verdict(state(*log, requested("c2", arguments=arguments)), "c2").action == "refuse"


def test_a_completed_twin_refuses_nothing() -> None:
    outcome = ev.ToolCompleted("c1", text(), "hook")
    log = [requested("c1"), ev.ToolReleased("c1", "L1"), outcome, requested("c2")]
    assert verdict(state(*log), "c2").action == "release"


def test_the_first_repeat_of_a_call_that_was_stopped_while_it_ran_is_refused() -> None:
    log = [requested("c1"), ev.ToolReleased("c1", "L1"), ev.ToolCancelled("c1", text()), requested("c2")]
    assert verdict(state(*log), "c2").action == "refuse"


def test_integers_over_2_53_are_not_the_same_call() -> None:
    assert policy.identity("f", b'{"id":9007199254740992}') != policy.identity(
        "f", b'{"id":9007199254740993}'
    )


@pytest.mark.parametrize(("one", "other"), list(itertools.product(POLICIES, POLICIES)))
def test_the_stricter_policy_counts(one: ReplayPolicy, other: ReplayPolicy) -> None:
    expected = (
        "never" if "never" in (one, other) else "idempotent" if "idempotent" in (one, other) else "safe"
    )
    assert policy.strictest(one, other) == expected
