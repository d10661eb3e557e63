"""Kills in the middle of turns, with both real versions: what is told, what runs, what is paid."""

from __future__ import annotations

import subprocess
from pathlib import Path

import anyio
import pytest

from harness_durable import NOT_HAPPENED, tool
from harness_durable.journal import Inbox
from harness_durable.policy import CANCELLED, UNKNOWN
from harness_durable.state import Session
from harness_durable.testing.provider import Policy, Reply, Request, Style, Text, ToolUse, Usage, say
from harness_durable.testing.provider.messages import last_user_text, tool_calls
from harness_durable.testing.provider.policies.simple import Script
from harness_durable_adapters.pi.launch import SETTINGS
from tests.harness.claude_rig import tried
from tests.harness.pi_rig import SESSION, VERSIONS, PiRig, bash

pytestmark = [pytest.mark.slow, pytest.mark.parametrize("version", tried(VERSIONS))]


async def begun(rig: PiRig, text: str = "go") -> None:
    await rig.inbox.accept("m-1", text)


def _running(state: Session, call: str) -> bool:
    known = state.tool_calls.get(call)
    return known is not None and known.released_in is not None


async def killed(rig: PiRig, process: subprocess.Popen[bytes], *, life: bool = True) -> None:
    process.kill()
    await anyio.to_thread.run_sync(process.wait)
    if life:
        await rig.kill_life()


# ------------------------------------------------------------------------------------ tool calls


async def test_a_call_that_was_cut_off_is_unknown_and_its_sibling_runs(tmp_path: Path, version: str) -> None:
    both = Reply(
        (Text("two"), bash("echo a >> a; sleep 5", "toolu_1"), bash("echo b >> b; echo B", "toolu_2"))
    )
    async with PiRig.open(tmp_path, version, Script((both, say("done"))), tools=None) as rig:
        await begun(rig)
        await rig.crashed("tool.released")
        state = await rig.finished()
        assert state.turns["m-1"].status == "completed"
        assert rig.seen("toolu_1") == UNKNOWN
        assert rig.seen("toolu_2") == "B\n"
        assert (rig.workspace / "b").read_text() == "b\n"
        assert rig.paid() == 2


async def test_finished_calls_keep_their_exact_results_and_are_paid_once(
    tmp_path: Path, version: str
) -> None:
    both = Reply((bash("echo one >> a; echo ONE", "toolu_1"), bash("echo two >> a; sleep 3", "toolu_2")))
    async with PiRig.open(tmp_path, version, Script((both, say("done"))), tools=None) as rig:
        await begun(rig)
        await rig.crashed("tool.completed", "machine")
        state = await rig.finished()
        assert state.turns["m-1"].status == "completed"
        assert rig.seen("toolu_1") == "ONE\n"
        assert (rig.workspace / "a").read_text().split() == ["one", "two"]
        assert state.tool_calls["toolu_2"].outcome == "completed"
        assert rig.paid() == 2


async def test_a_response_that_the_harness_never_got_is_replayed(tmp_path: Path, version: str) -> None:
    script = Script((Reply((bash("echo a >> a", "toolu_1"),)), say("done")))
    async with PiRig.open(tmp_path, version, script, tools=None) as rig:
        await begun(rig)
        await rig.crashed("model.completed", "machine")
        state = await rig.finished()
        assert state.turns["m-1"].status == "completed"
        assert (rig.workspace / "a").read_text() == "a\n"
        assert rig.paid() == 2


async def test_a_rude_stream_is_replayed_like_a_tidy_one(tmp_path: Path, version: str) -> None:
    rude = Style(
        seed=1, pretty=True, escape=True, split_text=2, split_input=2, split_bytes=7, pings=True, crlf=True
    )
    both = Reply(
        (Text("é 🙂 two"), bash("echo 'ü🙂'", "toolu_1"), bash("echo b; sleep 2", "toolu_2")), style=rude
    )
    async with PiRig.open(tmp_path, version, Script((both, say("done"))), tools=None) as rig:
        await begun(rig, "/slash first")
        await rig.crashed("tool.completed", "machine")
        state = await rig.finished()
        assert state.turns["m-1"].status == "completed"
        assert rig.seen("toolu_1") == "ü🙂\n"
        assert rig.paid() == 2


async def test_reads_run_side_by_side_and_one_that_was_cut_off_runs_again(
    tmp_path: Path, version: str
) -> None:
    calls = (ToolUse("read", {"path": "f"}, id="toolu_1"), ToolUse("read", {"path": "g"}, id="toolu_2"))
    async with PiRig.open(tmp_path, version, Script((Reply(calls), say("done"))), tools=None) as rig:
        (rig.workspace / "f").write_text("F\n")
        (rig.workspace / "g").write_text("G\n")
        await begun(rig)
        await rig.crashed("tool.released:2")
        state = await rig.finished()
        assert {call.outcome for call in state.tool_calls.values()} == {"completed"}
        assert (rig.seen("toolu_1"), rig.seen("toolu_2")) == ("F\n", "G\n")
        assert rig.paid() == 2


async def test_a_turn_that_was_over_is_only_closed(tmp_path: Path, version: str) -> None:
    async with PiRig.open(tmp_path, version, Script((say("the answer"),)), tools=None) as rig:
        await begun(rig)
        await rig.crashed("turn.completing", "machine")
        state = await rig.finished()
        text = state.turns["m-1"].text
        assert (state.turns["m-1"].status, text and text.text) == ("completed", "the answer")
        assert rig.paid() == 1


async def test_a_turn_goes_on_without_a_made_up_message(tmp_path: Path, version: str) -> None:
    script = Script((Reply((bash("echo a", "toolu_1"),)), say("done")))
    async with PiRig.open(tmp_path, version, script, tools=None) as rig:
        await begun(rig)
        await rig.crashed("model.requested:2", "machine")
        await rig.finished()
        said = [message for message in rig.requests[-1].messages if message.role == "user"]
        assert [len(message.blocks()) for message in said] == [1, 1]
        assert last_user_text(rig.requests[-1]) == "go"


# ------------------------------------------------------------------------------------ the worker alone


async def test_a_command_of_ten_seconds_survives_its_worker(tmp_path: Path, version: str) -> None:
    script = Script((Reply((bash("echo a >> a; sleep 10; echo slept", "toolu_1"),)), say("done")))
    async with PiRig.open(tmp_path, version, script, tools=None) as rig:
        await begun(rig)
        process = rig.worker()
        await rig.until(lambda _: (rig.workspace / "a").exists())
        await killed(rig, process, life=False)
        state = await rig.finished()
        assert len(state.lives) == 1
        assert (state.tool_calls["toolu_1"].outcome, rig.seen("toolu_1")) == ("completed", "slept\n")
        assert (rig.workspace / "a").read_text() == "a\n"


@pytest.mark.parametrize(
    "at", ["model.completed", "tool.requested", "transcript.appended:2", "tool.completed"]
)
async def test_a_worker_that_dies_alone_is_not_noticed(tmp_path: Path, version: str, at: str) -> None:
    script = Script((Reply((bash("echo a >> a; echo A", "toolu_1"),)), say("done")))
    async with PiRig.open(tmp_path, version, script, tools=None) as rig:
        await begun(rig)
        await rig.crashed(at, "worker")
        state = await rig.finished()
        assert (state.turns["m-1"].status, len(state.lives)) == ("completed", 1)
        assert rig.seen("toolu_1") == "A\n"
        assert (rig.workspace / "a").read_text() == "a\n"
        assert rig.paid() == 2


# -------------------------------------------------------------------------------------- custom tools


async def test_a_custom_tool_that_was_cut_off_is_unknown_and_ran_once(tmp_path: Path, version: str) -> None:
    use = ToolUse("durable_effect", {"token": "t"}, id="toolu_1")
    async with PiRig.open(tmp_path, version, Script((Reply((use,)), say("done"))), tools=None) as rig:
        await begun(rig)
        await rig.crashed("tool.effect_done")
        state = await rig.finished()
        assert rig.effects.read_text() == "t\n"
        assert state.tool_calls["toolu_1"].outcome == "unknown"
        assert rig.seen("toolu_1") == UNKNOWN


async def test_a_custom_tool_that_ran_in_a_dead_worker_is_settled_beside_the_living_harness(
    tmp_path: Path, version: str
) -> None:
    use = ToolUse("durable_effect", {"token": "t"}, id="toolu_1")
    async with PiRig.open(tmp_path, version, Script((Reply((use,)), say("done"))), tools=None) as rig:
        await begun(rig)
        await rig.crashed("tool.effect_done", "worker")
        state = await rig.finished()
        assert (rig.effects.read_text(), len(state.lives)) == ("t\n", 1)
        assert rig.seen("toolu_1") == UNKNOWN


@pytest.mark.parametrize(("policy", "death"), [("safe", "machine"), ("idempotent", "harness")])
async def test_a_custom_tool_that_may_run_again_does_so_with_the_same_key(
    tmp_path: Path, version: str, policy: str, death: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RIG_REPLAY", policy)
    use = ToolUse("durable_effect", {"token": "t"}, id="toolu_1")
    async with PiRig.open(tmp_path, version, Script((Reply((use,)), say("done"))), tools=None) as rig:
        await begun(rig)
        await rig.crashed("tool.effect_done", death)
        before = (await rig.state()).tool_calls["toolu_1"]
        state = await rig.finished()
        call = state.tool_calls["toolu_1"]
        assert rig.effects.read_text().split() == ["t", "t"]
        assert (call.policy, call.origin, call.outcome, call.source) == (
            policy,
            "custom",
            "completed",
            "recovery",
        )
        assert (call.key, call.releases, before.releases) == (before.key, 2, 1)
        assert before.key
        assert rig.seen("toolu_1") == "did t"
        assert rig.paid() == 2


@pytest.mark.parametrize("happened", [True, False])
async def test_a_custom_tool_is_asked_whether_it_happened(
    tmp_path: Path, version: str, *, happened: bool
) -> None:
    ran: list[str] = []

    def look(token: str) -> object:
        return f"found {token}" if happened else NOT_HAPPENED

    @tool(replay="never", probe=look)
    def effect(token: str) -> str:
        """The effect."""
        ran.append(token)
        return f"did {token}"

    use = ToolUse("durable_effect", {"token": "t"}, id="toolu_1")
    async with PiRig.open(tmp_path, version, Script((Reply((use,)), say("done"))), tools=None) as rig:
        await begun(rig)
        await rig.crashed("tool.running")
        rig.tools = (effect,)
        state = await rig.work()
        assert state.tool_calls["toolu_1"].outcome == "completed"
        assert rig.seen("toolu_1") == ("found t" if happened else "did t")
        assert ran == ([] if happened else ["t"])


async def test_a_parallel_batch_with_a_slow_sibling_loses_no_result(tmp_path: Path, version: str) -> None:
    """Ours may run side by side; the first is done and recorded while the second is cut off."""
    uses = (
        ToolUse("durable_effect", {"token": "quick"}, id="toolu_1"),
        ToolUse("durable_effect", {"token": "slow", "nap": 60}, id="toolu_2"),
        ToolUse("read", {"path": "f"}, id="toolu_3"),
    )
    async with PiRig.open(tmp_path, version, Script((Reply(uses), say("done"))), tools=None) as rig:
        (rig.workspace / "f").write_text("F\n")
        await begun(rig)
        process = rig.worker()
        await rig.until(lambda state: _running(state, "toolu_2") and not state.tool_calls["toolu_1"].open)
        await rig.until(lambda _: "slow" in rig.effects.read_text())
        await killed(rig, process)
        state = await rig.finished()
        assert sorted(rig.effects.read_text().split()) == ["quick", "slow"]
        assert (rig.seen("toolu_1"), rig.seen("toolu_2")) == ("did quick", UNKNOWN)
        assert state.tool_calls["toolu_3"].outcome == "completed"
        assert rig.paid() == 2


# --------------------------------------------------------------------------------- stop and steer


@pytest.mark.parametrize("how", ["live", "down", "given up"])
async def test_the_next_turn_reads_why_the_one_before_ended(tmp_path: Path, version: str, how: str) -> None:
    script = Script((Reply((bash("echo a >> a; sleep 30", "toolu_1"),)), say("after")))
    async with PiRig.open(tmp_path, version, script, tools=None) as rig:
        await begun(rig)
        await _ended(rig, how)
        await (await Inbox.open(rig.world, SESSION)).accept("m-2", "and now?")
        state = await rig.finished()
        assert state.turns["m-2"].status == "completed"
        reason = (
            "it was given up before its end (it is too hard), and the next message was sent instead"
            if how == "given up"
            else "it was stopped before its end, because Ann asked for a stop"
        )
        said = [block.text for message in rig.requests[-1].messages for block in message.blocks()]
        assert [reason in text for text in said if "Note by harness-durable" in text] == [True]
        assert [text for text in said if text in ("go", "and now?")] == ["go", "and now?"]
        assert rig.seen("toolu_1") == (CANCELLED if how == "live" else UNKNOWN)


async def _ended(rig: PiRig, how: str) -> None:
    """The turn ends before its end: stopped while it runs, or while nobody works; or given up."""
    if how == "live":
        process = rig.worker()
        await rig.until(lambda state: _running(state, "toolu_1") and (rig.workspace / "a").exists())
        await (await Inbox.open(rig.world, SESSION)).request_stop("Ann")
        assert await anyio.to_thread.run_sync(process.wait) == 0, rig.tail()
        return
    await rig.crashed("tool.released")
    if how == "down":
        await (await Inbox.open(rig.world, SESSION)).request_stop("Ann")
        state = await rig.finished()
        assert state.turns["m-1"].status == "cancelled"
        return
    journal = await rig.journal()
    await journal.turn_needs_input("it is too hard")
    await rig.world.release(SESSION, journal.state.epoch)


async def test_a_stop_cuts_off_a_custom_tool_that_runs(tmp_path: Path, version: str) -> None:
    arguments: dict[str, object] = {"token": "t", "nap": 60}
    use = ToolUse("durable_effect", arguments, id="toolu_1")
    async with PiRig.open(tmp_path, version, Script((Reply((use,)), say("after"))), tools=None) as rig:
        await begun(rig)
        process = rig.worker()
        await rig.until(lambda _: rig.effects.exists())
        await (await Inbox.open(rig.world, SESSION)).request_stop("Ann")
        assert await anyio.to_thread.run_sync(process.wait) == 0, rig.tail()
        state = await rig.state()
        assert (state.turns["m-1"].status, len(state.lives)) == ("cancelled", 1)
        assert state.tool_calls["toolu_1"].outcome == "cancelled"
        await (await Inbox.open(rig.world, SESSION)).accept("m-2", "and now?")
        await rig.finished()
        assert rig.seen("toolu_1") == CANCELLED


@pytest.mark.parametrize("life", [True, False])
async def test_a_steer_that_was_lost_is_given_again_and_once(
    tmp_path: Path, version: str, *, life: bool
) -> None:
    first = Reply((bash("sleep 3; echo one", "toolu_1"),))
    second = Reply((bash("sleep 1; echo two", "toolu_2"),))
    async with PiRig.open(tmp_path, version, Script((first, second, say("done"))), tools=None) as rig:
        await begun(rig)
        process = rig.worker()
        await rig.until(lambda state: _running(state, "toolu_1"))
        await (await Inbox.open(rig.world, SESSION)).accept("s-1", "look left", "steer")
        await killed(rig, process, life=life)
        state = await rig.finished()
        assert state.messages["s-1"].status == "delivered"
        said = [block.text for message in rig.requests[-1].messages for block in message.blocks()]
        assert said.count("look left") == 1
        assert (state.turns["m-1"].status, len(state.lives)) == ("completed", 2 if life else 1)


@pytest.mark.parametrize(("allow", "death"), [(True, "harness"), (False, "machine"), (True, "worker")])
async def test_an_answer_that_came_while_nobody_worked_is_used(
    tmp_path: Path, version: str, *, allow: bool, death: str
) -> None:
    """The request is durable before anything can have run, keeps its id, and is not made again."""
    script = Script((Reply((bash("echo a >> a; echo A", "toolu_1"),)), say("done")))
    async with PiRig.open(tmp_path, version, script, tools=None, permission_mode="ask") as rig:
        await begun(rig)
        await rig.crashed("permission.asked", death)
        assert list((await rig.state()).permissions) == ["toolu_1"]
        assert not (rig.workspace / "a").exists()
        inbox = await Inbox.open(rig.world, SESSION)
        await inbox.answer("toolu_1", allow=allow, by="Ann", reason="" if allow else "not today")
        state = await rig.finished()
        assert (state.turns["m-1"].status, list(state.permissions)) == ("completed", ["toolu_1"])
        assert (rig.workspace / "a").exists() == allow
        assert ("A\n" if allow else "not today") in rig.seen("toolu_1")
        assert rig.paid() == 2


async def test_a_steer_at_the_last_answer_goes_on_with_the_turn(tmp_path: Path, version: str) -> None:
    last = Reply((Text("the task is done"),), start_delay=2.0)
    script = Script((last, Reply((bash("sleep 2; echo more", "toolu_1"),)), say("all is done")))
    async with PiRig.open(tmp_path, version, script, tools=None) as rig:
        await begun(rig)
        process = rig.worker()
        await rig.until(lambda state: bool(state.model_calls))
        await (await Inbox.open(rig.world, SESSION)).accept("s-1", "one more thing", "steer")
        await rig.until(lambda state: _running(state, "toolu_1"))
        await killed(rig, process)
        state = await rig.finished()
        text = state.turns["m-1"].text
        assert (list(state.turns), text and text.text) == (["m-1"], "all is done")
        said = [block.text for message in rig.requests[-1].messages for block in message.blocks()]
        assert [one for one in said if one] == ["go", "the task is done", "one more thing"]


# ---------------------------------------------------------------------------- other ways to be lost


async def test_a_harness_that_dies_alone_is_replaced(tmp_path: Path, version: str) -> None:
    script = Script((Reply((bash("echo a >> a; sleep 30", "toolu_1"),)), say("done")))
    async with PiRig.open(tmp_path, version, script, tools=None) as rig:
        await begun(rig)
        process = rig.worker()
        await rig.until(lambda state: _running(state, "toolu_1") and (rig.workspace / "a").exists())
        rig.kill_harness()
        assert await anyio.to_thread.run_sync(process.wait) == 0, rig.tail()
        state = await rig.state()
        assert (state.turns["m-1"].status, len(state.lives)) == ("completed", 2)
        assert next(iter(state.lives.values())).code == -9
        assert rig.seen("toolu_1") == UNKNOWN


async def test_another_version_does_not_take_over_a_session(
    tmp_path: Path, version: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = next(one for one in VERSIONS if one != version)
    async with PiRig.open(tmp_path, version, Script((say("done"),)), tools=None) as rig:
        await begun(rig)
        await rig.crashed("model.completed", "machine")
        monkeypatch.setenv("HARNESS_DURABLE_PI_BINARY", (await rig.install(other)).path)
        state = await rig.work()
        assert state.turns["m-1"].status == "needs_input"
        assert f"pinned to pi {version}" in state.turns["m-1"].reason


def fills_its_window(request: Request) -> Reply:
    """Calls, of which the third is said to have filled the window; a summary; one more call; the end."""
    if not request.tools:
        return say("SUMMARY of it all")
    compacted, calls = "SUMMARY" in str(request.body), tool_calls(request)
    if compacted and any("nine" in str(call.input) for call in calls):
        return say("end")
    if compacted:
        return Reply((bash("echo nine >> a"),))
    return Reply((bash(f"echo {len(calls)} >> a"),), usage=Usage(195_000 if len(calls) == 2 else 1000, 10))


_WINDOW: Policy = fills_its_window


@pytest.mark.parametrize(
    "at", ["model.completed:3", "model.requested:4", "model.completed:4", "model.requested:5"]
)
async def test_a_compaction_survives_and_is_paid_once(
    tmp_path: Path, version: str, at: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    window = '{"compaction": {"reserveTokens": 50000, "keepRecentTokens": 20}}'
    monkeypatch.setenv(SETTINGS, window)
    async with PiRig.open(tmp_path, version, _WINDOW, tools=None) as rig:
        await begun(rig)
        await rig.crashed(at, "machine")
        state = await rig.finished()
        assert state.turns["m-1"].status == "completed"
        assert (rig.workspace / "a").read_text().split() == ["0", "1", "2", "nine"]
        assert rig.paid() == 6
