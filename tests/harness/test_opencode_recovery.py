"""Kills in the middle of turns, with both real binaries: what is told, what runs, what is paid."""

from __future__ import annotations

from pathlib import Path

import anyio
import pytest

from harness_durable.journal import Inbox
from harness_durable.policy import AGAIN, CANCELLED, NOT_STARTED, UNKNOWN
from harness_durable.state import Session
from harness_durable.testing.provider import Reply, Request, Style, Text, ToolUse, Usage, say
from harness_durable.testing.provider.messages import tool_calls
from harness_durable.testing.provider.policies.simple import Script
from tests.harness.claude_rig import tried
from tests.harness.opencode_rig import SESSION, VERSIONS, bash
from tests.harness.opencode_rig import OpenCodeRig as Rig

pytestmark = [pytest.mark.slow, pytest.mark.parametrize("version", tried(VERSIONS))]


async def begun(rig: Rig, text: str = "go") -> None:
    await rig.inbox.accept("m-1", text)


def _running(state: Session, call: str) -> bool:
    known = state.tool_calls.get(call)
    return known is not None and known.released_in is not None


async def test_a_call_that_was_cut_off_is_unknown_and_its_sibling_not_started(
    tmp_path: Path, version: str
) -> None:
    both = Reply((Text("two"), bash("echo a >> a; sleep 5", "call_1"), bash("echo b >> b", "call_2")))
    async with Rig.open(tmp_path, version, Script((both, say("done"))), tools=None) as rig:
        await begun(rig)
        await rig.crashed("tool.released")
        state = await rig.finished()
        assert state.turns["m-1"].status == "completed"
        assert sorted((rig.seen("call_1"), rig.seen("call_2"))) == sorted((UNKNOWN, NOT_STARTED))
        assert rig.paid() == 2


async def test_finished_calls_keep_their_results_and_are_paid_once(tmp_path: Path, version: str) -> None:
    both = Reply((bash("echo one >> a; echo ONE", "call_1"), bash("echo two >> a; sleep 3", "call_2")))
    async with Rig.open(tmp_path, version, Script((both, say("done"))), tools=None) as rig:
        await begun(rig)
        await rig.crashed("tool.completed")
        state = await rig.finished()
        assert state.turns["m-1"].status == "completed"
        assert rig.seen("call_1") == "ONE\n"
        assert rig.seen("call_2") in (UNKNOWN, NOT_STARTED)
        assert (rig.workspace / "a").read_text().split().count("one") == 1
        assert rig.paid() == 2


async def test_a_slow_sibling_is_unknown_and_the_quick_one_keeps_its_result(
    tmp_path: Path, version: str
) -> None:
    both = Reply((bash("echo slow >> a; sleep 60", "call_1"), bash("sleep 1; echo QUICK", "call_2")))
    async with Rig.open(tmp_path, version, Script((both, say("done"))), tools=None) as rig:
        await begun(rig)
        process = rig.worker()
        await rig.until(lambda state: "call_2" in state.tool_calls and not state.tool_calls["call_2"].open)
        process.kill()
        await anyio.to_thread.run_sync(process.wait)
        await rig.kill_life()
        state = await rig.finished()
        assert state.turns["m-1"].status == "completed"
        assert (rig.seen("call_1"), rig.seen("call_2")) == (UNKNOWN, "QUICK\n")
        assert (rig.workspace / "a").read_text() == "slow\n"


@pytest.mark.parametrize("death", ["harness", "machine"])
@pytest.mark.parametrize("at", ["model.completed", "model.requested", "model.forwarding"])
async def test_a_response_that_the_harness_never_got_is_replayed(
    tmp_path: Path, version: str, at: str, death: str
) -> None:
    script = Script((Reply((Text("  I look "), bash("echo a >> a", "call_1"))), say("done")))
    async with Rig.open(tmp_path, version, script, tools=None) as rig:
        await begun(rig)
        await rig.crashed(at, death)
        state = await rig.finished()
        assert state.turns["m-1"].status == "completed"
        assert (rig.workspace / "a").read_text() == "a\n"
        assert rig.paid() == 2


@pytest.mark.parametrize("at", ["model.completed:2", "model.completed:3", "transcript.appended:4"])
async def test_later_responses_are_replayed_too(tmp_path: Path, version: str, at: str) -> None:
    """What was rebuilt is the same to the model, so that a recorded answer still fits."""
    script = Script(
        (
            Reply((Text(" I look \n"), bash("echo a >> a; echo A", "call_1"), bash("echo b >> a", "call_2"))),
            Reply((Text("more"), bash("echo c >> a", "call_3"))),
            say("done"),
        )
    )
    async with Rig.open(tmp_path, version, script, tools=None) as rig:
        await begun(rig)
        await rig.crashed(at, "machine")
        state = await rig.finished()
        assert state.turns["m-1"].status == "completed"
        assert sorted((rig.workspace / "a").read_text().split()) == ["a", "b", "c"]
        # An answer may be on its way just when the worker dies; what is recorded is never paid again.
        statuses = [call.status for call in state.model_calls.values()]
        assert statuses.count("completed") == 3
        assert rig.paid() <= 3 + statuses.count("lost")


async def test_a_rude_stream_is_replayed_and_rebuilt_like_a_tidy_one(tmp_path: Path, version: str) -> None:
    rude = Style(
        seed=1, pretty=True, escape=True, split_text=2, split_input=2, split_bytes=7, pings=True, crlf=True
    )
    both = Reply(
        (Text("é 🙂 two"), bash("echo 'ü🙂'", "call_1"), bash("echo b; sleep 2", "call_2")), style=rude
    )
    async with Rig.open(tmp_path, version, Script((both, say("done"))), tools=None) as rig:
        await begun(rig, "/slash first")
        await rig.crashed("tool.completed", "machine")
        state = await rig.finished()
        assert state.turns["m-1"].status == "completed"
        assert rig.seen("call_1") == "ü🙂\n"
        assert rig.paid() == 2


async def test_a_finished_turn_whose_end_was_not_recorded_is_only_closed(
    tmp_path: Path, version: str
) -> None:
    async with Rig.open(tmp_path, version, Script((say("the answer"),)), tools=None) as rig:
        await begun(rig)
        await rig.crashed("turn.completing", "machine")
        state = await rig.finished()
        text = state.turns["m-1"].text
        assert (state.turns["m-1"].status, text and text.text) == ("completed", "the answer")
        assert rig.paid() == 1


@pytest.mark.parametrize("at", ["tool.released", "model.completed", "transcript.appended", "life.started"])
async def test_a_harness_survives_its_worker(tmp_path: Path, version: str, at: str) -> None:
    script = Script((Reply((bash("echo a >> a; sleep 10; echo slept", "call_1"),)), say("done")))
    async with Rig.open(tmp_path, version, script, tools=None) as rig:
        await begun(rig)
        await rig.crashed(at, "worker")
        state = await rig.finished()
        assert len(state.lives) == (2 if at == "life.started" else 1)
        assert (state.tool_calls["call_1"].outcome, rig.seen("call_1")) == ("completed", "slept\n")
        assert (rig.workspace / "a").read_text() == "a\n"
        assert rig.paid() == 2


async def test_a_command_that_ends_while_nobody_works_keeps_its_result(tmp_path: Path, version: str) -> None:
    script = Script((Reply((bash("sleep 1; echo a >> a; echo slept", "call_1"),)), say("done")))
    async with Rig.open(tmp_path, version, script, tools=None) as rig:
        await begun(rig)
        process = rig.worker()
        await rig.until(lambda state: _running(state, "call_1"))
        process.kill()
        await anyio.to_thread.run_sync(process.wait)
        await rig.until(lambda _: (rig.workspace / "a").exists())
        await anyio.sleep(1.0)  # the harness asks for the gate now, and waits
        state = await rig.finished()
        assert len(state.lives) == 1
        assert (state.tool_calls["call_1"].outcome, rig.seen("call_1")) == ("completed", "slept\n")


async def test_a_read_that_was_cut_off_may_be_repeated(tmp_path: Path, version: str) -> None:
    def policy(request: Request) -> Reply:
        if not tool_calls(request):
            path: dict[str, object] = {"filePath": str(tmp_path / "work space" / "f")}
            return Reply((ToolUse("read", path, id="call_1"),))
        return say("done")

    async with Rig.open(tmp_path, version, policy, tools=None) as rig:
        (rig.workspace / "f").write_text("content\n")
        await begun(rig)
        await rig.crashed("tool.released")
        await rig.finished()
        assert rig.seen("call_1") == AGAIN


@pytest.mark.parametrize("death", ["worker", "harness"])
async def test_a_custom_tool_that_was_cut_off_is_unknown_and_ran_once(
    tmp_path: Path, version: str, death: str
) -> None:
    use = ToolUse("durable_effect", {"token": "t"}, id="call_1")
    async with Rig.open(tmp_path, version, Script((Reply((use,)), say("done"))), tools=None) as rig:
        await begun(rig)
        await rig.crashed("tool.effect_done", death)
        state = await rig.finished()
        assert rig.effects.read_text() == "t\n"
        assert state.tool_calls["call_1"].outcome == "unknown"
        assert rig.seen("call_1") == UNKNOWN
        assert rig.paid() == 2


# --------------------------------------------------------------------------------- stop and steer


async def test_a_stop_while_nobody_works_wins_over_recovery(tmp_path: Path, version: str) -> None:
    script = Script((Reply((bash("echo a >> a; sleep 5", "call_1"),)), say("after")))
    async with Rig.open(tmp_path, version, script, tools=None) as rig:
        await begun(rig)
        await rig.crashed("tool.released")
        await (await Inbox.open(rig.world, SESSION)).request_stop("Ann")
        state = await rig.finished()
        assert state.turns["m-1"].status == "cancelled"
        await (await Inbox.open(rig.world, SESSION)).accept("m-2", "and now?")
        state = await rig.finished()
        assert state.turns["m-2"].status == "completed"
        assert rig.seen("call_1") == UNKNOWN
        said = [block.text.strip() for message in rig.requests[-1].messages for block in message.blocks()]
        assert [text for text in said if text in ("go", "and now?")] == ["go", "and now?"]
        assert any("Ann asked for a stop" in text for text in said)


async def test_a_steer_that_was_lost_with_the_harness_is_given_again(tmp_path: Path, version: str) -> None:
    first = Reply((bash("sleep 4; echo one", "call_1"),))
    second = Reply((bash("sleep 1; echo two", "call_2"),))
    script = Script((first, second, say("done"), say("done")))
    async with Rig.open(tmp_path, version, script, tools=None) as rig:
        await begun(rig)
        process = rig.worker()
        await rig.until(lambda state: _running(state, "call_1"))
        await (await Inbox.open(rig.world, SESSION)).accept("s-1", "look left", "steer")
        process.kill()
        await anyio.to_thread.run_sync(process.wait)
        await rig.kill_life()
        state = await rig.finished()
        assert state.messages["s-1"].status == "delivered"
        assert str(rig.requests[-1].body).count("look left") == 1
        assert state.turns["m-1"].status == "completed"


async def test_a_stop_cuts_off_a_custom_tool_that_runs(tmp_path: Path, version: str) -> None:
    use = ToolUse("durable_effect", {"token": "t", "nap": 60}, id="call_1")
    async with Rig.open(tmp_path, version, Script((Reply((use,)), say("after"))), tools=None) as rig:
        await begun(rig)
        process = rig.worker()
        await rig.until(lambda _: rig.effects.exists())
        await (await Inbox.open(rig.world, SESSION)).request_stop("Ann")
        assert await anyio.to_thread.run_sync(process.wait) == 0, rig.tail()
        state = await rig.state()
        assert state.turns["m-1"].status == "cancelled"
        assert state.tool_calls["call_1"].outcome == "cancelled"
        await (await Inbox.open(rig.world, SESSION)).accept("m-2", "and now?")
        await rig.finished()
        assert rig.seen("call_1") == CANCELLED


# ---------------------------------------------------------------------------- other ways to be lost


async def test_a_harness_that_dies_alone_is_replaced(tmp_path: Path, version: str) -> None:
    script = Script((Reply((bash("echo a >> a; sleep 30", "call_1"),)), say("done")))
    async with Rig.open(tmp_path, version, script, tools=None) as rig:
        await begun(rig)
        process = rig.worker()
        await rig.until(lambda state: _running(state, "call_1") and (rig.workspace / "a").exists())
        rig.kill_harness()
        assert await anyio.to_thread.run_sync(process.wait) == 0, rig.tail()
        state = await rig.state()
        assert state.turns["m-1"].status == "completed"
        assert next(iter(state.lives.values())).code == -9
        assert rig.seen("call_1") == UNKNOWN


@pytest.mark.parametrize("at", ["model.completed:4", "model.requested:5", "model.completed:5"])
async def test_a_compaction_survives_and_is_paid_once(
    tmp_path: Path, version: str, at: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HARNESS_DURABLE_OPENCODE_CONTEXT", "100000")

    def policy(request: Request) -> Reply:
        if not request.tools:
            return say("SUMMARY")
        compacted, calls = "SUMMARY" in str(request.body), tool_calls(request)
        if compacted and any("nine" in str(call.input) for call in calls):
            return say("end")
        if compacted:
            return Reply((bash("echo nine >> a", ""),))
        usage = Usage(95_000 if len(calls) == 3 else 1000, 10)
        return Reply((bash(f"echo {len(calls)} >> a", ""),), usage=usage)

    async with Rig.open(tmp_path, version, policy, tools=None) as rig:
        await begun(rig)
        await rig.crashed(at, "machine")
        state = await rig.finished()
        assert state.turns["m-1"].status == "completed"
        assert (rig.workspace / "a").read_text().split() == ["0", "1", "2", "3", "nine"]
        assert rig.paid() == 7


async def test_a_workspace_that_becomes_a_repository_loses_nothing(tmp_path: Path, version: str) -> None:
    """The harness files a session under its repository; the next life's is another one."""
    command = "git init -q . && git -c user.name=a -c user.email=a@b commit -q --allow-empty -m x; echo INIT"
    script = Script((Reply((bash(command, "call_1"),)), Reply((bash("echo a >> a", "call_2"),)), say("done")))
    async with Rig.open(tmp_path, version, script, tools=None) as rig:
        await begun(rig)
        await rig.crashed("model.completed:2", "machine")
        state = await rig.finished()
        assert (rig.workspace / ".git").exists()
        assert state.turns["m-1"].status == "completed"
        assert (rig.seen("call_1"), rig.paid()) == ("INIT\n", 3)


async def test_a_session_stays_with_its_version(tmp_path: Path, version: str) -> None:
    """Each turn is a life of its own, and all have the binary that the session began with."""
    async with Rig.open(tmp_path, version, Script((say("one"), say("two"))), tools=None) as rig:
        await rig.say("first")
        state = await rig.say("second", "m-2")
        assert {life.harness_version for life in state.lives.values()} == {version}
        assert len(state.lives) == 2
