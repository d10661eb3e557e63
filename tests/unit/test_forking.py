"""What a fork's log begins with, and which blobs a log needs."""

from __future__ import annotations

import pytest

from harness_durable import events as ev
from harness_durable import fold
from harness_durable.journal.forking import close
from harness_durable.journal.naming import blobs_of
from harness_durable.journal.writer import Decision
from harness_durable.payload import pack
from harness_durable.policy import told_of_fork
from harness_durable.recovery import Facts, plan
from harness_durable.state import Session
from tests.unit.log_kit import TEXT, Log, model, state, tool

FORKED = ev.SessionForked("s", 7, "/own", "durable")


def fork(*log: ev.AnyEvent) -> tuple[Session, Log]:
    """The state of a fork of a session whose first turn runs, with this after it; and what was written."""
    found, wanted = state(*log), Decision()
    close(found, wanted, FORKED)
    for seq, event in enumerate(wanted.events, found.seq + 1):
        fold.apply(found, ev.Entry(seq, 5000, 0, event))
    return found, wanted.events


def test_calls_without_an_outcome_get_the_one_that_is_true_of_them() -> None:
    log = [*model(), *tool("ran", released=True), *tool("asked"), *tool("done", done=True)]
    found, _ = fork(*log, *model("m2", done=False))
    assert [found.tool_calls[call].outcome for call in ("ran", "asked", "done")] == [
        "unknown",
        "not_started",
        "completed",
    ]
    assert (found.model_calls["m2"].status, found.turns["m-1"].status) == ("lost", "cancelled")


def test_nothing_is_left_to_do_and_no_life_to_look_for() -> None:
    found, _ = fork()
    assert (found.life, found.worker, found.due, found.status) == (None, "", None, "idle")
    assert plan(found, Facts(keeper_alive=True)).rung == "idle"


def test_what_was_waiting_is_taken_back_and_never_comes_again() -> None:
    waiting: Log = [
        ev.MessageAccepted("m-2", TEXT),
        ev.SteerAccepted("s-1", "m-1", TEXT),
        ev.SteerAccepted("ours", "m-1", TEXT, remark=True),
    ]
    found, written = fork(*waiting)
    statuses = {name: message.status for name, message in found.messages.items()}
    assert statuses == {"m-1": "started", "m-2": "withdrawn", "s-1": "withdrawn", "ours": "delivered"}
    assert (found.queued, found.steers("m-1")) == ([], [])
    said = [event.by for event in written if isinstance(event, ev.MessageWithdrawn)]
    assert said == ["the fork of s"] * 2


def test_a_person_who_was_asked_there_is_not_asked_here() -> None:
    asked = ev.PermissionRequested("p-1", "c-1", "Bash", "L1")
    found, _ = fork(*model(), *tool("c-1"), asked)
    assert (found.unanswered, found.status) == (frozenset(), "idle")


def test_a_turn_that_waits_for_a_person_is_over_here() -> None:
    found, _ = fork(ev.LifeEnded("L1", "x"), ev.TurnNeedsInput("m-1", "why"))
    assert (found.turns["m-1"].status, found.status) == ("cancelled", "idle")


def test_of_what_was_settled_nothing_is_written_but_where_it_comes_from() -> None:
    found, written = fork(ev.TurnCompleted("m-1", TEXT), ev.LifeEnded("L1", "settled"), ev.SessionClosed("x"))
    assert written == [FORKED]
    assert (found.turns["m-1"].status, found.closed) == ("completed", False)


def test_the_agent_works_in_the_forks_own_place_from_there_on() -> None:
    found, _ = fork()
    assert found.agent is not None and found.forked is not None
    assert (found.agent.workspace, found.agent.files, found.forked.workspace) == ("/own", "durable", "ws")


OWN: Log = [ev.MessageAccepted("m-2", TEXT), ev.TurnStarted("m-2")]


@pytest.mark.parametrize("had", [ev.MessageDelivered("m-2", "L2"), ev.TurnCompleted("m-2", TEXT)])
def test_the_model_is_told_with_each_message_until_the_harness_has_one(had: ev.AnyEvent) -> None:
    found, _ = fork(ev.MessageDelivered("m-1", "L1"))
    assert "in ws" in told_of_fork(found) and "work in /own" in told_of_fork(found)
    remark = [ev.SteerAccepted("ours", "m-2", TEXT, remark=True), ev.SteerDelivered("ours", "L2")]
    for event in (*OWN, *remark, ev.TurnNeedsInput("m-2", "why"), ev.TurnCancelled("m-2", "why"), had):
        assert told_of_fork(found)
        fold.apply(found, ev.Entry(found.seq + 1, 1, 0, event))
    assert told_of_fork(found) == "" == told_of_fork(state())


def test_a_fork_of_a_fork_whose_model_was_not_told_leads_away_from_the_first_one() -> None:
    found, _ = fork()
    again = ev.SessionForked("f", found.seq, "/other", "durable")
    fold.apply(found, ev.Entry(found.seq + 1, 1, 0, again))
    assert "in ws" in told_of_fork(found) and "work in /other" in told_of_fork(found)
    for seq, event in enumerate((*OWN, ev.MessageDelivered("m-2", "L2"), again), found.seq + 1):
        fold.apply(found, ev.Entry(seq, 1, 0, event))
    assert "in /other" in told_of_fork(found)


@pytest.mark.parametrize("skipped", ["", "error: they could not be looked at"])
def test_files_are_to_be_made_until_they_were(skipped: str) -> None:
    found, _ = fork(ev.WorkspaceCommitted("r", "", "turn_start"))
    assert found.unmade and not state().unmade and not fork()[0].unmade
    made = ev.WorkspaceCommitted("r", "r", "fork", skipped=skipped)
    fold.apply(found, ev.Entry(found.seq + 1, 1, 1, made))
    assert not found.unmade


def test_all_blobs_of_an_event_are_found_however_deep() -> None:
    large = [pack(bytes([number]) * 40_000) for number in range(4)]
    names = [name for packed in large for name in packed.blobs]
    one, two, three, four = (packed.payload for packed in large)
    asked = ev.ModelRequested("m1", "k", "L1", "anthropic", "x", "/", (TEXT, one, two))
    ended = ev.ToolCompleted("c", three, "hook", four)
    assert [*blobs_of(asked), *blobs_of(ended)] == names
