"""The page picks, at any place, the last version of each thing. That must be the fold of the log so far."""

from __future__ import annotations

from typing import get_args

import msgspec
import pytest

from harness_durable import codec, fold
from harness_durable import events as ev
from harness_durable.journal.forking import close
from harness_durable.journal.writer import Decision
from harness_durable.state import Session
from harness_durable.view import items
from harness_durable.view.row import Row
from harness_durable.view.rows import rows
from tests.view.logs import asked, entries, everything, long, text, worker_lost


def told(entry: ev.Entry, state: Session) -> dict[int, Row]:
    """Every thing of a state as it looks now, made from the state alone."""
    found = [items.message(state, entry, name) for name in state.messages]
    found += [items.life(state, entry, name) for name in state.lives]
    found += [items.model(state, entry, name) for name in state.model_calls]
    found += [items.tool(state, entry, name) for name in state.tool_calls]
    found += [items.permission(state, entry, name) for name in state.permissions]
    return {one.item: one for one in found if one is not None}


def looks(one: Row) -> Row:
    """Without when and by which event."""
    return msgspec.structs.replace(one, seq=0, time=0, word="")


@pytest.mark.parametrize("log", [everything(), long(400)], ids=["everything", "long"])
def test_the_last_versions_are_the_fold_of_every_prefix(log: list[ev.AnyEvent]) -> None:
    state, last = Session(), dict[int, Row]()
    for entry in entries(log):
        fold.apply(state, entry)
        for one in rows(state, entry):
            last[one.item] = one
        for item, expected in told(entry, state).items():
            assert looks(last[item]) == looks(expected), f"after event {entry.seq}"


def test_each_event_gives_a_row_of_its_own_first_and_only_once() -> None:
    state = Session()
    for entry in entries(everything()):
        fold.apply(state, entry)
        found = rows(state, entry)
        assert [one.word for one in found] == [codec.kind_of(entry.event)] + [""] * (len(found) - 1)
        assert all(one.seq == entry.seq and one.item <= entry.seq for one in found)
        assert len({one.item for one in found}) == len(found)


def test_the_story_has_every_kind_that_a_log_can_have() -> None:
    seen = {type(event) for event in everything()}
    assert seen >= set(get_args(ev.AnyEvent)) - {
        ev.SessionForked,
        ev.SessionMoved,
        ev.SessionClosed,
        ev.TurnFailed,
        ev.TurnNeedsInput,
    }


def made() -> list[Row]:
    state, found = Session(), list[Row]()
    for entry in entries(everything()):
        fold.apply(state, entry)
        found += rows(state, entry)
    return found


def last_of(found: list[Row], item: int) -> Row:
    return [one for one in found if one.item == item][-1]


def test_a_crash_says_what_ran_and_when_the_last_step_was_recorded() -> None:
    end = next(one for one in made() if one.kind == "end" and one.state == "died")
    assert (end.title, end.text) == ("Life 1 died", "lost with its worker")
    assert end.badges == ("while deploy, order ran",)
    assert end.begun < end.over


def test_a_planned_stop_is_no_crash() -> None:
    ends = {one.life: one for one in made() if one.kind == "end"}
    assert {life: one.state for life, one in ends.items()} == {
        1: "died",
        2: "died",
        3: "stopped",
        4: "settled",
        5: "settled",
    }


def test_a_life_that_a_fork_has_of_its_parent_did_not_crash() -> None:
    wanted, parent = Decision(), fold.fold(entries(everything()[:5]))
    close(parent, wanted, ev.SessionForked("s", 5, "/own", "durable"))
    state, last = Session(), dict[int, Row]()
    for entry in entries([*everything()[:5], *wanted.events]):
        fold.apply(state, entry)
        last |= {one.item: one for one in rows(state, entry)}
    told = {(one.kind, one.state): one.text for one in last.values()}
    assert told["session", "forked"] == "from s, as it was at its event 5; from here on in /own"
    assert ("end", "stopped") in told and ("end", "died") not in told


def test_who_lost_its_worker_only_is_told_apart_from_who_died() -> None:
    state, found = Session(), list[Row]()
    for entry in entries(worker_lost()):
        fold.apply(state, entry)
        found += rows(state, entry)
    loss = next(one for one in found if one.kind == "attached")
    assert (loss.title, loss.badges) == ("The worker of life 1 was lost", ("while deploy ran",))
    assert loss.over - loss.begun == 250
    resumed = next(one for one in found if one.word == "turn.resumed")
    assert (resumed.kind, resumed.text) == ("log", "undisturbed")


def test_an_agent_that_gave_up_for_a_while_did_not_crash() -> None:
    log = [
        *everything()[:6],
        ev.LifeEnded("L1", "overloaded"),
        ev.TurnInterrupted("m-1", "overloaded", transient=True),
    ]
    state, found = Session(), list[Row]()
    for entry in entries(log):
        fold.apply(state, entry)
        found += rows(state, entry)
    end = found[-1]
    assert (end.kind, end.state, end.title) == ("end", "gave_up", "Life 1 gave up, for what may pass")


def test_a_message_for_later_says_from_when_on() -> None:
    state = Session()
    entry = ev.Entry(1, 5, 1, ev.MessageAccepted("m", text("Later."), not_before=9_000))
    fold.apply(state, entry)
    assert (rows(state, entry)[0].state, rows(state, entry)[0].begun) == ("queued", 9_000)


def test_who_answered_is_a_word_in_the_row() -> None:
    found = made()
    replay = next(one for one in found if one.kind == "replay")
    assert (replay.title, replay.life) == ("Model answer from the log", 2)
    settled = {one.title for one in found if one.kind == "settled"}
    assert settled == {"deploy: nobody knows if it happened", "order: its probe found out"}
    calls = {one.text: one for one in found if one.kind == "tool"}
    assert calls["cat deployments.log"].badges == ("run 2, same id",)
    states = {one.state for one in found if one.kind == "tool"}
    assert states >= {"unknown", "refused", "failed", "cancelled", "not_started", "completed"}


def test_files_that_a_step_changed_are_named() -> None:
    row = next(one for one in made() if one.kind == "files")
    assert (row.title, row.text, row.badges) == ("Files changed by Bash", "+new.txt ~prices.py", ("2 files",))


def test_a_long_input_is_shown_the_same_after_its_turn_was_settled() -> None:
    given = b'{"content": "' + b"x" * 5000 + b'"}'
    log = [*everything()[:8], asked("t", "Write", given, "c1"), ev.TurnCompleted("m-1", text("done"))]
    state, shown = Session(), list[str]()
    for entry in entries(log):
        fold.apply(state, entry)
        row = items.tool(state, entry, "t")
        shown += [row.text] if row is not None else []
    assert len(shown) == 2
    assert shown[0] == shown[1]
    assert shown[0].startswith('{"content": "xxx')
