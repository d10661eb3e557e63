"""Kills in the middle of turns, with each real harness: what is told, what runs, what is paid.

What only one of them does is in a file of its own."""

from __future__ import annotations

from pathlib import Path

import anyio
import pytest

from harness_durable import NOT_HAPPENED, tool
from harness_durable.policy import AGAIN, CANCELLED, NOT_STARTED, UNKNOWN
from harness_durable.testing.provider import Reply, Style, Text, say
from harness_durable.testing.provider.policies.simple import Script
from tests.harness.rig import SESSION, Rig, does, running
from tests.harness.rigs import RIGS, ClaudeRig, CodexRig, Kind, OpenCodeRig, PiRig, each, some, thorough

pytestmark = pytest.mark.slow


# ------------------------------------------------------------------------------------ tool calls


@each(short=RIGS, older=True)
async def test_a_call_that_was_cut_off_is_unknown_and_the_one_behind_it_never_began(
    tmp_path: Path, kind: Kind
) -> None:
    """Where results can be supplied, that one runs now; else the model hears that it did not."""
    both = does(Text("two"), kind.rig.shell("echo a >> a; sleep 5", "call_1"), kind.rig.behind("call_2"))
    async with kind.open(tmp_path, Script((both, say("done")))) as rig:
        await rig.go()
        await rig.crashed("tool.released")
        state = await rig.finished()
        assert state.turns["m-1"].status == "completed"
        told = (rig.seen("call_1"), rig.seen("call_2"))
        if rig.supplies:
            assert (told[0], state.tool_calls["call_2"].outcome) == (UNKNOWN, "completed")
            assert (rig.workspace / "b").read_text() == "b\n"
        else:
            assert set(told) == {UNKNOWN, NOT_STARTED}
            late = f"call_{1 + told.index(NOT_STARTED)}"
            assert state.tool_calls[late].released_in is None
            assert not (rig.workspace / {"call_1": "a", "call_2": "b"}[late]).exists()
        assert rig.paid() == 2


@each()
async def test_c055_finished_calls_keep_their_results_and_are_paid_once(tmp_path: Path, kind: Kind) -> None:
    quick = kind.rig.shell("echo one >> a; echo ONE", "call_1")
    both = does(quick, kind.rig.shell("echo two >> a; sleep 3", "call_2"))
    async with kind.open(tmp_path, Script((both, say("done")))) as rig:
        await rig.go()
        await rig.crashed("tool.completed")
        state = await rig.finished()
        assert state.turns["m-1"].status == "completed"
        assert rig.printed(rig.seen("call_1"), "ONE")
        assert (rig.workspace / "a").read_text().split().count("one") == 1
        if rig.supplies:
            assert state.tool_calls["call_2"].outcome == "completed"
        else:
            assert rig.seen("call_2") in (UNKNOWN, NOT_STARTED)
        assert rig.paid() == 2


@each(CodexRig, OpenCodeRig)
async def test_a_slow_sibling_is_unknown_and_the_quick_one_keeps_its_result(
    tmp_path: Path, kind: Kind
) -> None:
    slow = kind.rig.shell("echo slow >> a; sleep 60", "call_1")
    quick = kind.rig.shell("until [ -s a ]; do sleep 0.05; done; echo QUICK", "call_2")
    async with kind.open(tmp_path, Script((does(slow, quick), say("done")))) as rig:
        await rig.go()
        worker = rig.worker()
        await rig.until(lambda state: "call_2" in state.tool_calls and not state.tool_calls["call_2"].open)
        await rig.kill(worker)
        state = await rig.finished()
        assert state.turns["m-1"].status == "completed"
        assert rig.seen("call_1") == UNKNOWN
        assert rig.printed(rig.seen("call_2"), "QUICK")
        assert (rig.workspace / "a").read_text() == "slow\n"


@each(ClaudeRig, CodexRig, OpenCodeRig)
async def test_a_look_that_was_cut_off_may_be_repeated(tmp_path: Path, kind: Kind) -> None:
    look = kind.rig.look(tmp_path / "work space" / "f", "call_1")
    async with kind.open(tmp_path, Script((does(look), say("done")))) as rig:
        (rig.workspace / "f").write_text("content\n")
        await rig.go()
        await rig.crashed("tool.released")
        await rig.finished()
        assert rig.seen("call_1") == AGAIN


# ------------------------------------------------------------------------------------- responses


@pytest.mark.parametrize("death", some(("machine",), "harness"))
@pytest.mark.parametrize(
    "at", some(("model.completed",), "model.requested", "model.forwarding", "tool.requested")
)
@each()
async def test_a_response_that_the_harness_never_got_is_replayed(
    tmp_path: Path, kind: Kind, at: str, death: str
) -> None:
    script = Script((does(Text("  I look "), kind.rig.shell("echo a >> a", "call_1")), say("done")))
    async with kind.open(tmp_path, script) as rig:
        await rig.go()
        await rig.crashed(at, death)
        state = await rig.finished()
        assert state.turns["m-1"].status == "completed"
        assert (rig.workspace / "a").read_text() == "a\n"
        assert rig.paid() == 2


@pytest.mark.parametrize("at", some(("model.completed:2",), "model.completed:3", "model.requested:3"))
@each(short=(CodexRig, OpenCodeRig, PiRig))
async def test_later_responses_are_replayed_too(tmp_path: Path, kind: Kind, at: str) -> None:
    """What was rebuilt is the same to the model, so that a recorded answer still fits."""
    bash = kind.rig.shell
    first = does(Text(" I look \n"), bash("echo a >> a; echo A", "call_1"), bash("echo b >> a", "call_2"))
    script = Script((first, does(Text("more"), bash("echo c >> a", "call_3")), say("done")))
    async with kind.open(tmp_path, script) as rig:
        await rig.go()
        await rig.crashed(at, "machine")
        state = await rig.finished()
        assert state.turns["m-1"].status == "completed"
        assert sorted((rig.workspace / "a").read_text().split()) == ["a", "b", "c"]
        # An answer may be on its way just when the worker dies; what is recorded is never paid again.
        statuses = [call.status for call in state.model_calls.values()]
        assert statuses.count("completed") == 3
        assert rig.paid() <= 3 + statuses.count("lost")


@each()
async def test_a_rude_stream_is_replayed_and_rebuilt_like_a_tidy_one(tmp_path: Path, kind: Kind) -> None:
    rude = Style(
        seed=1, pretty=True, escape=True, split_text=2, split_input=2, split_bytes=7, pings=True, crlf=True
    )
    calls = (kind.rig.shell("echo 'ü🙂'", "call_1"), kind.rig.shell("echo b; sleep 2", "call_2"))
    both = Reply((Text("é 🙂 two"), *calls), style=rude)
    async with kind.open(tmp_path, Script((both, say("done")))) as rig:
        await rig.go("/slash first")
        await rig.crashed("tool.completed", "machine")
        state = await rig.finished()
        assert state.turns["m-1"].status == "completed"
        assert rig.printed(rig.seen("call_1"), "ü🙂")
        assert rig.paid() == 2


@each()
async def test_a_finished_turn_whose_end_was_not_recorded_is_only_closed(tmp_path: Path, kind: Kind) -> None:
    async with kind.open(tmp_path, Script((say("the answer"),))) as rig:
        await rig.go()
        await rig.crashed("turn.completing", "machine")
        state = await rig.finished()
        text = state.turns["m-1"].text
        assert (state.turns["m-1"].status, text and text.text) == ("completed", "the answer")
        assert rig.paid() == 1


@pytest.mark.parametrize(
    "at",
    some(
        ("transcript.appended:2",),
        "life.started",
        "model.requested",
        "model.completed",
        "tool.requested",
        "tool.released",
        "tool.completed",
    ),
)
@each()
async def test_a_worker_that_dies_alone_is_not_noticed(tmp_path: Path, kind: Kind, at: str) -> None:
    """A worker that dies before it has spoken with the harness leaves one that knows nothing."""
    slow = kind.rig.shell("echo a >> a; sleep 3; echo slept", "call_1")
    async with kind.open(tmp_path, Script((does(slow), say("done")))) as rig:
        await rig.go()
        await rig.crashed(at, "worker")
        state = await rig.finished()
        assert state.turns["m-1"].status == "completed"
        assert len(state.lives) == 1 or at == "life.started"
        assert state.tool_calls["call_1"].outcome == "completed"
        assert rig.printed(rig.seen("call_1"), "slept")
        assert (rig.workspace / "a").read_text() == "a\n"
        assert rig.paid() == 2


# ---------------------------------------------------------------------------------- custom tools


def custom(kind: Kind) -> Script:
    return Script((does(kind.rig.own("effect", "call_1", token="t")), say("done")))


@pytest.mark.parametrize("death", some(("worker", "harness"), "machine"))
@each()
async def test_a_custom_tool_that_was_cut_off_is_unknown_and_ran_once(
    tmp_path: Path, kind: Kind, death: str
) -> None:
    async with kind.open(tmp_path, custom(kind)) as rig:
        await rig.go()
        await rig.crashed("tool.effect_done", death)
        state = await rig.finished()
        assert rig.effects.read_text() == "t\n"
        assert state.tool_calls["call_1"].outcome == "unknown"
        assert rig.seen("call_1") == UNKNOWN
        assert len(state.lives) == (1 if death == "worker" else 2)
        assert rig.paid() == 2


@pytest.mark.parametrize(("policy", "death"), [("safe", "machine"), ("idempotent", "harness")])
@each(short=(PiRig,))
async def test_a_custom_tool_that_may_run_again_does_so_with_the_same_key(
    tmp_path: Path, kind: Kind, policy: str, death: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RIG_REPLAY", policy)
    async with kind.open(tmp_path, custom(kind)) as rig:
        await rig.go()
        await rig.crashed("tool.effect_done", death)
        before = (await rig.state()).tool_calls["call_1"]
        call = (await rig.finished()).tool_calls["call_1"]
        assert rig.effects.read_text().split() == ["t", "t"]
        assert (call.policy, call.origin) == (policy, "custom")
        assert (call.outcome, call.source) == ("completed", "recovery")
        assert (call.key, call.releases, before.releases) == (before.key, 2, 1)
        assert before.key
        assert (rig.seen("call_1"), rig.paid()) == ("did t", 2)


@pytest.mark.parametrize("happened", [True, False])
@each(short=(PiRig,))
async def test_a_custom_tool_is_asked_whether_it_happened(
    tmp_path: Path, kind: Kind, *, happened: bool
) -> None:
    ran: list[str] = []

    def look(token: str) -> object:
        return f"found {token}" if happened else NOT_HAPPENED

    @tool(replay="never", probe=look)
    def effect(token: str) -> str:
        """The effect."""
        ran.append(token)
        return f"did {token}"

    async with kind.open(tmp_path, custom(kind)) as rig:
        await rig.go()
        await rig.crashed("tool.running")
        rig.tools = (effect,)
        state = await rig.work()
        call = state.tool_calls["call_1"]
        assert (call.outcome, call.releases) == ("completed", 1 if happened else 2)
        assert rig.seen("call_1") == ("found t" if happened else "did t")
        assert ran == ([] if happened else ["t"])
        assert rig.paid() == 2


# --------------------------------------------------------------------- stops, steers, and people


@pytest.mark.parametrize("how", ["live", "down", "given up"])
@each()
async def test_the_next_turn_reads_why_the_one_before_ended_and_nothing_made_up(
    tmp_path: Path, kind: Kind, how: str
) -> None:
    """Stopped while it ran, or while nobody worked, which wins over recovery; or given up."""
    script = Script((does(kind.rig.shell("echo a >> a; sleep 30", "call_1")), say("after")))
    async with kind.open(tmp_path, script) as rig:
        await rig.go()
        await _cut_short(rig, how)
        state = await rig.next()
        assert state.turns["m-2"].status == "completed"
        heard = str(rig.requests[-1].body)
        for made_up in ("No response requested", "interrupted by user", "interrupted the previous turn"):
            assert made_up not in heard
        assert "Continue from where" not in heard
        reason = (
            "it was given up before its end (it is too hard), and the next message was sent instead"
            if how == "given up"
            else "it was stopped before its end, because Ann asked for a stop"
        )
        assert [reason in note for note in rig.notes()] == [True]
        said = [text.strip() for text in rig.texts_of_last()]
        assert [text for text in said if text in ("go", "and now?")] == ["go", "and now?"]
        assert rig.seen("call_1") == (CANCELLED if how == "live" else UNKNOWN)


async def _cut_short(rig: Rig, how: str) -> None:
    if how == "live":
        worker = rig.worker()
        await rig.until(lambda state: running("call_1")(state) and (rig.workspace / "a").exists())
        await rig.stop()
        await rig.ended(worker)
        return
    await rig.crashed("tool.released")
    if how == "down":
        await rig.stop()
        assert (await rig.finished()).turns["m-1"].status == "cancelled"
        return
    journal = await rig.journal()
    await journal.turn_needs_input("it is too hard")
    await rig.world.release(SESSION, journal.state.epoch)


@each()
async def test_a_stop_cuts_off_a_custom_tool_that_runs(tmp_path: Path, kind: Kind) -> None:
    use = kind.rig.own("effect", "call_1", token="t", nap=60)
    async with kind.open(tmp_path, Script((does(use), say("after")))) as rig:
        await rig.go()
        worker = rig.worker()
        await rig.until(lambda _: rig.effects.exists())
        await rig.stop()
        state = await rig.ended(worker)
        assert (state.turns["m-1"].status, len(state.lives)) == ("cancelled", 1)
        assert state.tool_calls["call_1"].outcome == "cancelled"
        await rig.next()
        assert rig.seen("call_1") == CANCELLED


@pytest.mark.parametrize("life", some((True,), False))
@each(short=(ClaudeRig,))
async def test_a_steer_that_was_lost_is_given_again_and_once(
    tmp_path: Path, kind: Kind, *, life: bool
) -> None:
    """``life``: with the harness, or on its way to it."""
    bash = kind.rig.shell
    script = Script(
        (
            does(bash("sleep 3; echo one", "call_1")),
            does(bash("sleep 1; echo two", "call_2")),
            *[say("done")] * 2,
        )
    )
    async with kind.open(tmp_path, script) as rig:
        await rig.go()
        worker = rig.worker()
        await rig.until(running("call_1"))
        await rig.steer("look left")
        await rig.kill(worker, life=life)
        state = await rig.finished()
        assert state.messages["s-1"].status == "delivered"
        assert str(rig.requests[-1].body).count("look left") == 1
        assert (state.turns["m-1"].status, len(state.lives)) == ("completed", 2 if life else 1)


@thorough
@each(CodexRig, OpenCodeRig, PiRig)
async def test_a_steer_that_was_taken_is_not_given_again(tmp_path: Path, kind: Kind) -> None:
    bash = kind.rig.shell
    script = Script(
        (
            does(bash("sleep 2; echo one", "call_1")),
            does(bash("sleep 9; echo two", "call_2")),
            *[say("done")] * 2,
        )
    )
    async with kind.open(tmp_path, script) as rig:
        await rig.go()
        worker = rig.worker()
        await rig.until(running("call_1"))
        await rig.steer("look left")
        await rig.until(running("call_2"))
        await rig.kill(worker)
        state = await rig.finished()
        assert state.messages["s-1"].status == "delivered"
        assert str(rig.requests[-1].body).count("look left") == 1
        assert rig.paid() == 3


@pytest.mark.parametrize(("allow", "death"), some(((True, "worker"),), (True, "harness"), (False, "machine")))
@each(short=(CodexRig, PiRig))
async def test_an_answer_that_came_while_nobody_worked_is_used(
    tmp_path: Path, kind: Kind, *, allow: bool, death: str
) -> None:
    """The request is durable before anything can have run, keeps its id, and is not made again."""
    script = Script((does(kind.rig.shell("echo a >> a; echo A", "call_1")), say("done")))
    async with kind.open(tmp_path, script, permission_mode="ask") as rig:
        await rig.go()
        await rig.crashed("permission.asked", death)
        assert list((await rig.state()).permissions) == ["call_1"]
        assert not (rig.workspace / "a").exists()
        await rig.answer("call_1", "" if allow else "not today", allow=allow)
        state = await rig.finished()
        assert (state.turns["m-1"].status, list(state.permissions)) == ("completed", ["call_1"])
        assert (rig.workspace / "a").exists() == allow
        assert ("A" if allow else "not today") in str(rig.requests[-1].body)
        assert state.tool_calls["call_1"].outcome == ("completed" if allow else "not_started")
        assert rig.paid() == 2


# ------------------------------------------------------------------------- other ways to be lost


@each()
async def test_a_harness_that_dies_alone_is_replaced(tmp_path: Path, kind: Kind) -> None:
    script = Script((does(kind.rig.shell("echo a >> a; sleep 30", "call_1")), say("done")))
    async with kind.open(tmp_path, script) as rig:
        await rig.go()
        worker = rig.worker()
        await rig.until(lambda state: running("call_1")(state) and (rig.workspace / "a").exists())
        await anyio.to_thread.run_sync(rig.kill_harness)
        state = await rig.ended(worker)
        assert (state.turns["m-1"].status, len(state.lives)) == ("completed", 2)
        assert next(iter(state.lives.values())).code == -9
        assert rig.seen("call_1") == UNKNOWN


@each(short=(ClaudeRig,))
async def test_a_keeper_that_dies_under_a_living_worker_is_replaced(tmp_path: Path, kind: Kind) -> None:
    script = Script((does(kind.rig.shell("echo a >> a; sleep 30", "call_1")), say("done")))
    async with kind.open(tmp_path, script) as rig:
        await rig.go()
        worker = rig.worker()
        await rig.until(lambda state: running("call_1")(state) and (rig.workspace / "a").exists())
        await rig.kill_life()
        state = await rig.ended(worker)
        assert (state.turns["m-1"].status, len(state.lives)) == ("completed", 2)
        assert (rig.workspace / "a").read_text() == "a\n"


@each(short=(PiRig,))
async def test_another_version_does_not_take_over_a_session(
    tmp_path: Path, kind: Kind, monkeypatch: pytest.MonkeyPatch
) -> None:
    pinned = kind.rig.pinned
    other = next(one for one in pinned.supported if one != kind.version)
    async with kind.open(tmp_path, Script((say("done"),))) as rig:
        await rig.go()
        await rig.crashed("model.completed", "machine")
        monkeypatch.setenv(pinned.binary_variable, (await pinned.install(other)).path)
        state = await rig.work()
        assert state.turns["m-1"].status == "needs_input"
        assert f"pinned to {pinned.name} {kind.version}" in state.turns["m-1"].reason
