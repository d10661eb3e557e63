"""Events to state."""

from __future__ import annotations

import pytest

from harness_durable import events as ev
from harness_durable import fold as folding
from harness_durable.fold import fold
from harness_durable.payload import pack_text
from harness_durable.state import Move, Segment, Session
from tests.unit.log_kit import AGENT, BEGIN, TEXT, Log, model, state, tool


def entries(log: Log) -> list[ev.Entry]:
    return [ev.Entry(place, 1000 + place, 1, event) for place, event in enumerate(log, 1)]


FULL: Log = [
    *BEGIN,
    ev.MessageDelivered("m-1", "L1"),
    *model(),
    *tool("a", done=True),
    *tool("b", released=True),
    ev.TranscriptAppended("main", "L1", TEXT, 3, 120),
    ev.PermissionRequested("p1", "b", "Bash", "L1"),
    ev.PermissionResolved("p1", True, "anna"),
    ev.SteerAccepted("m-2", "m-1", TEXT),
    ev.LifeEnded("L1", "it died", -9, "oom", 2),
    ev.TurnInterrupted("m-1", "it died"),
    ev.SessionClaimed(2, "w2", "here", 2),
    ev.ToolUnknown("b", TEXT),
    ev.LifeStarted("L2", "m-1", "local", "run", "here", "2.1.0"),
    ev.TurnResumed("m-1", "L2", "continue", ("b was cut off",)),
    ev.TranscriptReplaced("main", 2, TEXT, 1, "rebuilt"),
    ev.ModelReplayed("m1", "L2"),
    ev.SteerDelivered("m-2", "L2"),
    ev.TurnCompleted("m-1", TEXT),
    ev.LifeEnded("L2", "done", 0),
    ev.SessionReleased("done"),
]


def test_a_whole_turn_with_a_crash_in_it() -> None:
    session = fold(entries(FULL))
    assert (session.seq, session.epoch, session.worker, session.status) == (len(FULL), 2, "", "idle")
    assert (session.agent, session.native_id) == (AGENT, "native")
    turn = session.turns["m-1"]
    assert (turn.status, turn.lives, turn.told, turn.tool_calls) == (
        "completed",
        ["L1", "L2"],
        ["b was cut off"],
        ["a", "b"],
    )
    assert [m.status for m in session.messages.values()] == ["delivered", "delivered"]
    assert [(life.number, life.reason, life.rung) for life in session.lives.values()] == [
        (1, "it died", "start"),
        (2, "done", "continue"),
    ]
    assert [(life.code, life.why, life.oom_kills) for life in session.lives.values()] == [
        (-9, "oom", 2),
        (0, "", 0),
    ]
    assert [call.outcome for call in session.tool_calls.values()] == ["completed", "unknown"]
    assert session.model_calls["m1"].replays == ["L2"]
    assert session.transcripts["main"].lines == 3
    assert session.permissions["p1"].allow is True


@pytest.mark.parametrize("cut", range(len(FULL) + 1))
def test_folding_in_two_steps_or_over_a_snapshot_gives_the_same_state(cut: int) -> None:
    log = entries(FULL)
    whole = fold(log)
    loaded = folding.load(folding.dump(fold(log[:cut])))
    assert loaded is not None
    assert fold(log[cut:], loaded) == whole


def test_states_do_not_share_anything() -> None:
    log = entries(FULL)
    first, second = fold(log[:10]), fold(log[:10])
    fold(log[10:], first)
    assert second == fold(log[:10])
    assert Session() == Session(messages={}, turns={})


@pytest.mark.parametrize("data", [b"", b"nonsense", folding.dump(Session())[:-3]])
def test_a_broken_snapshot_is_ignored(data: bytes) -> None:
    assert folding.load(data) is None


def test_a_snapshot_of_another_version_is_ignored(monkeypatch: pytest.MonkeyPatch) -> None:
    data = folding.dump(Session(title="x"))
    monkeypatch.setattr(folding, "VERSION", folding.VERSION + 1)
    assert folding.load(data) is None


def test_the_first_outcome_counts_whatever_comes_later() -> None:
    log = [*model(), *tool("a", done=True), ev.ToolUnknown("a", TEXT), ev.ToolFailed("a", TEXT, "transcript")]
    call = state(*log).tool_calls["a"]
    assert (call.outcome, call.source) == ("completed", "hook")


def test_the_first_message_and_the_first_answer_count() -> None:
    other = pack_text("other").payload
    session = state(
        ev.MessageAccepted("m-1", other),
        ev.PermissionRequested("p", "a", "Bash", "L1"),
        ev.PermissionResolved("p", False, "anna"),
        ev.PermissionResolved("p", True, "bob"),
    )
    assert session.messages["m-1"].text == TEXT
    assert (session.permissions["p"].allow, session.permissions["p"].by) == (False, "anna")


def test_a_tool_id_that_comes_twice_is_one_call() -> None:
    session = state(*model(), *tool("a", done=True), *tool("a"))
    assert session.tool_calls["a"].outcome == "completed"
    assert session.turns["m-1"].tool_calls == ["a"]


def test_events_about_what_is_not_known_change_nothing_else() -> None:
    strangers: Log = [
        ev.MessageDelivered("x", "L1"),
        ev.TurnCompleted("x", TEXT),
        ev.LifeEnded("x", "y"),
        ev.LifeAttached("x", "w"),
        ev.ModelCompleted("x", 200, "json", TEXT),
        ev.ToolReleased("x", "L1"),
        ev.ToolCompleted("x", TEXT, "hook"),
        ev.PermissionResolved("x", True, "anna"),
    ]
    before, after = state(), state(*strangers)
    after.seq, after.updated = before.seq, before.updated
    assert after == before


@pytest.mark.parametrize(
    ("log", "status"),
    [
        ([], "running"),
        ([ev.TurnInterrupted("m-1", "x")], "running"),
        ([ev.TurnNeedsInput("m-1", "x")], "needs_input"),
        ([ev.TurnFailed("m-1", "c", "x")], "idle"),
        ([ev.TurnFailed("m-1", "c", "x"), ev.MessageAccepted("m-2", TEXT)], "queued"),
        ([ev.SessionClosed("x")], "closed"),
        ([ev.SessionMoved("file:there", "running", 1)], "closed"),
    ],
)
def test_one_word_says_how_a_session_is(log: Log, status: str) -> None:
    assert state(*log).status == status


def test_a_session_that_was_moved_is_due_nowhere_here_and_the_first_move_counts() -> None:
    session = state(ev.SessionMoved("file:there", "running", 7), ev.SessionMoved("file:else", "idle", None))
    assert session.due is None
    assert session.turn is not None
    assert session.moved == Move("file:there", session.seq - 1, "running", 7)


@pytest.mark.parametrize(
    ("keep", "segments"),
    [(0, []), (2, [(1, 2)]), (3, [(1, 3)]), (4, [(1, 3), (2, 1)]), (99, [(1, 3), (2, 2)])],
)
def test_a_transcript_is_cut_to_its_first_lines(keep: int, segments: list[tuple[int, int]]) -> None:
    log: Log = [
        ev.TranscriptAppended("main", "L1", TEXT, 3, 10),
        ev.TranscriptAppended("main", "L1", TEXT, 2, 20),
        ev.TranscriptReplaced("main", keep, TEXT, 0, "x"),
    ]
    session = fold(entries(log))
    assert session.transcripts["main"].segments == [Segment(*segment) for segment in segments]
    assert session.offsets == {"L1": 20}


def test_usage_and_outcome_of_model_calls() -> None:
    session = state(
        *model("m1", done=False),
        ev.ModelFailed("m1", None, "lost"),
        *model("m2", done=False),
        ev.ModelFailed("m2", 529, "overloaded"),
        *model("m3"),
    )
    assert [call.status for call in session.model_calls.values()] == ["lost", "failed", "completed"]
    assert session.lives["L1"].progress == 1
