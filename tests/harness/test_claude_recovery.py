"""Kills in the middle of turns, with both real binaries: what is told, what runs, what is paid."""

from __future__ import annotations

import json
import signal
from pathlib import Path

import anyio
import pytest

from harness_durable.journal import Inbox, Reader
from harness_durable.policy import AGAIN, CANCELLED, NOT_STARTED, UNKNOWN
from harness_durable.state import Session
from harness_durable.testing.provider import Reply, Request, Style, Text, ToolUse, Usage, say
from harness_durable.testing.provider.messages import first_user_text, results, tool_calls
from harness_durable.testing.provider.policies.simple import Script
from tests.harness.claude_rig import SESSION, VERSIONS, Rig
from tests.unit.claude_samples import EVERY

pytestmark = [pytest.mark.slow, pytest.mark.parametrize("version", VERSIONS)]


def bash(command: str, call: str) -> ToolUse:
    return ToolUse("Bash", {"command": command, "description": "test"}, id=call)


async def begun(rig: Rig, text: str = "go") -> None:
    await rig.inbox.accept("m-1", text)


async def test_a_call_that_was_cut_off_is_unknown_and_its_sibling_not_started(
    tmp_path: Path, version: str
) -> None:
    both = Reply((Text("two"), bash("echo a >> a; sleep 5", "toolu_1"), bash("echo b >> b", "toolu_2")))
    async with Rig.open(tmp_path, version, Script((both, say("done")))) as rig:
        await begun(rig)
        await rig.crashed("tool.released")
        state = await rig.finished()
        assert state.turns["m-1"].status == "completed"
        assert rig.seen("toolu_1") == UNKNOWN
        assert rig.seen("toolu_2") == NOT_STARTED
        assert not (rig.workspace / "b").exists()
        assert rig.paid() == 2


async def test_c055_finished_calls_keep_their_results_and_are_paid_once(tmp_path: Path, version: str) -> None:
    both = Reply((bash("echo one >> a; echo ONE", "toolu_1"), bash("echo two >> a; sleep 3", "toolu_2")))
    async with Rig.open(tmp_path, version, Script((both, say("done")))) as rig:
        await begun(rig)
        await rig.crashed("tool.completed")
        state = await rig.finished()
        assert state.turns["m-1"].status == "completed"
        assert rig.seen("toolu_1") == "ONE"
        assert (rig.workspace / "a").read_text().split().count("one") == 1
        assert rig.paid() == 2


async def test_a_response_that_the_harness_never_got_is_replayed(tmp_path: Path, version: str) -> None:
    script = Script((Reply((bash("echo a >> a", "toolu_1"),)), say("done")))
    async with Rig.open(tmp_path, version, script) as rig:
        await begun(rig)
        await rig.crashed("model.completed", "machine")
        state = await rig.finished()
        assert state.turns["m-1"].status == "completed"
        assert (rig.workspace / "a").read_text() == "a\n"
        assert rig.paid() == 2


async def test_a_rude_stream_is_replayed_and_rebuilt_like_a_tidy_one(tmp_path: Path, version: str) -> None:
    rude = Style(
        seed=1, pretty=True, escape=True, split_text=2, split_input=2, split_bytes=7, pings=True, crlf=True
    )
    both = Reply(
        (Text("é 🙂 two"), bash("echo 'ü🙂'", "toolu_1"), bash("echo b; sleep 2", "toolu_2")), style=rude
    )
    async with Rig.open(tmp_path, version, Script((both, say("done")))) as rig:
        await begun(rig, "/slash first")
        await rig.crashed("tool.completed", "machine")
        state = await rig.finished()
        assert state.turns["m-1"].status == "completed"
        assert rig.seen("toolu_1") == "ü🙂"
        assert rig.paid() == 2


async def test_a_finished_turn_whose_end_was_not_recorded_is_only_closed(
    tmp_path: Path, version: str
) -> None:
    async with Rig.open(tmp_path, version, Script((say("the answer"),))) as rig:
        await begun(rig)
        await rig.crashed("turn.completing", "machine")
        state = await rig.finished()
        text = state.turns["m-1"].text
        assert (state.turns["m-1"].status, text and text.text) == ("completed", "the answer")
        assert rig.paid() == 1


async def test_a_running_command_survives_its_worker(tmp_path: Path, version: str) -> None:
    script = Script((Reply((bash("echo a >> a; sleep 3; echo slept", "toolu_1"),)), say("done")))
    async with Rig.open(tmp_path, version, script) as rig:
        await begun(rig)
        await rig.crashed("tool.released", "worker")
        state = await rig.finished()
        assert len(state.lives) == 1
        assert (state.tool_calls["toolu_1"].outcome, rig.seen("toolu_1")) == ("completed", "slept")
        assert (rig.workspace / "a").read_text() == "a\n"


async def test_a_read_that_was_cut_off_may_be_repeated(tmp_path: Path, version: str) -> None:
    def policy(request: Request) -> Reply:
        if not tool_calls(request):
            path: dict[str, object] = {"file_path": str(tmp_path / "work space" / "f")}
            return Reply((ToolUse("Read", path, id="toolu_1"),))
        return say("done")

    async with Rig.open(tmp_path, version, policy) as rig:
        (rig.workspace / "f").write_text("content\n")
        await begun(rig)
        await rig.crashed("tool.released")
        await rig.finished()
        assert rig.seen("toolu_1") == AGAIN


async def test_a_custom_tool_that_was_cut_off_is_unknown_and_ran_once(tmp_path: Path, version: str) -> None:
    use = ToolUse("mcp__durable__effect", {"token": "t"}, id="toolu_1")
    async with Rig.open(tmp_path, version, Script((Reply((use,)), say("done")))) as rig:
        await begun(rig)
        await rig.crashed("tool.effect_done")
        state = await rig.finished()
        assert rig.effects.read_text() == "t\n"
        assert state.tool_calls["toolu_1"].outcome == "unknown"
        assert rig.seen("toolu_1") == UNKNOWN


# ------------------------------------------------------------------------------------ subagents


def delegating(request: Request) -> Reply:
    """A main loop that delegates, and a subagent of three steps."""
    if "SUBTASK" in first_user_text(request):
        known = results(request)
        for number, nap in ((1, 0), (2, 0), (3, 3)):
            call = f"toolu_inner{number}"
            if call not in known:
                return Reply((bash(f"echo {number} >> inner; sleep {nap}; echo OUT{number}", call),))
        return say("sub result")
    if tool_calls(request):
        return say("end")
    prompt: dict[str, object] = {
        "description": "sub",
        "prompt": "SUBTASK do",
        "subagent_type": "general-purpose",
    }
    return Reply((Text("delegate"), ToolUse("Agent", prompt, id="toolu_agent")))


async def test_c052_a_subagent_goes_on_where_it_was_and_nothing_inside_runs_twice(
    tmp_path: Path, version: str
) -> None:
    async with Rig.open(tmp_path, version, delegating) as rig:
        await begun(rig, "go")
        process = rig.worker()
        await rig.until(lambda state: _running(state, "toolu_inner3"))
        process.kill()
        await anyio.to_thread.run_sync(process.wait)
        await rig.kill_life()
        paid = rig.paid()
        state = await rig.finished()
        assert state.turns["m-1"].status == "completed"
        assert (rig.workspace / "inner").read_text().split() in (["1", "2", "3"], ["1", "2"])
        assert state.tool_calls["toolu_inner3"].outcome == "unknown"
        assert [state.tool_calls[f"toolu_inner{n}"].outcome for n in (1, 2)] == ["completed"] * 2
        assert state.tool_calls["toolu_agent"].outcome == "completed"
        assert "sub result" in rig.seen("toolu_agent")
        # Two answers were still to come: the subagent's last one and the main loop's.
        assert rig.paid() - paid == 2


async def test_siblings_of_a_subagent_that_is_replayed_keep_their_exact_results(
    tmp_path: Path, version: str
) -> None:
    def policy(request: Request) -> Reply:
        if "SUBTASK" in first_user_text(request) or not tool_calls(request):
            reply = delegating(request)
            before = (bash("echo one >> m; echo ONE", "toolu_before"),)
            after = (bash("echo three >> m", "toolu_after"),)
            subtask = "SUBTASK" in first_user_text(request)
            return reply if subtask else Reply((*before, *reply.blocks, *after))
        return say("end")

    async with Rig.open(tmp_path, version, policy) as rig:
        await begun(rig)
        process = rig.worker()
        await rig.until(lambda state: _running(state, "toolu_inner3"))
        process.kill()
        await anyio.to_thread.run_sync(process.wait)
        await rig.kill_life()
        paid = rig.paid()
        state = await rig.finished()
        assert state.turns["m-1"].status == "completed"
        assert sorted((rig.workspace / "m").read_text().split()) == ["one", "three"]
        assert rig.seen("toolu_before") == "ONE"
        assert state.tool_calls["toolu_after"].outcome == "completed"
        assert rig.paid() - paid == 2


async def test_files_that_a_subagent_wrote_are_not_written_twice(tmp_path: Path, version: str) -> None:
    path = tmp_path / "work space" / "file"

    def policy(request: Request) -> Reply:
        if "SUBTASK" not in first_user_text(request):
            return delegating(request)
        known = results(request)
        if "toolu_write" not in known:
            content: dict[str, object] = {"file_path": str(path), "content": "first\n"}
            return Reply((ToolUse("Write", content, id="toolu_write"),))
        if not any("sleep" in str(call.input) for call in tool_calls(request)):
            return Reply((bash("echo more >> file; sleep 3", ""),))
        return say("sub result")

    async with Rig.open(tmp_path, version, policy) as rig:
        await begun(rig)
        process = rig.worker()
        await rig.until(lambda _: path.exists() and "more" in path.read_text())
        process.kill()
        await anyio.to_thread.run_sync(process.wait)
        await rig.kill_life()
        state = await rig.finished()
        assert state.turns["m-1"].status == "completed"
        assert state.tool_calls["toolu_write"].outcome == "completed"
        assert path.read_text().startswith("first\nmore\n")
        assert not any(call.open for call in state.tool_calls.values())


def _running(state: Session, call: str) -> bool:
    known = state.tool_calls.get(call)
    return known is not None and known.released_in is not None


# --------------------------------------------------------------------------------- stop and steer


async def test_a_stop_while_nobody_works_wins_over_recovery(tmp_path: Path, version: str) -> None:
    script = Script((Reply((bash("echo a >> a; sleep 5", "toolu_1"),)), say("after")))
    async with Rig.open(tmp_path, version, script) as rig:
        await begun(rig)
        await rig.crashed("tool.released")
        await (await Inbox.open(rig.world, SESSION)).request_stop("Ann")
        state = await rig.finished()
        assert state.turns["m-1"].status == "cancelled"
        await (await Inbox.open(rig.world, SESSION)).accept("m-2", "and now?")
        state = await rig.finished()
        assert state.turns["m-2"].status == "completed"
        assert rig.seen("toolu_1") == UNKNOWN
        said = [block.text.strip() for message in rig.requests[-1].messages for block in message.blocks()]
        assert [text for text in said if text in ("go", "and now?")] == ["go", "and now?"]


@pytest.mark.parametrize("how", ["live", "down", "given up"])
async def test_the_next_turn_reads_why_the_one_before_ended_and_nothing_made_up(
    tmp_path: Path, version: str, how: str
) -> None:
    script = Script((Reply((bash("echo a >> a; sleep 30", "toolu_1"),)), say("after")))
    async with Rig.open(tmp_path, version, script) as rig:
        await begun(rig)
        await _ended(rig, how)
        await (await Inbox.open(rig.world, SESSION)).accept("m-2", "and now?")
        state = await rig.finished()
        assert state.turns["m-2"].status == "completed"
        heard = str(rig.requests[-1].body["messages"])
        assert "No response requested" not in heard
        assert "interrupted by user" not in heard
        assert "Continue from where" not in heard
        reason = (
            "it was given up before its end (it is too hard), and the next message was sent instead"
            if how == "given up"
            else "it was stopped before its end, because Ann asked for a stop"
        )
        said = [block.text for message in rig.requests[-1].messages for block in message.blocks()]
        assert [reason in text for text in said if "Note by harness-durable" in text] == [True]
        assert rig.seen("toolu_1") == (CANCELLED if how == "live" else UNKNOWN)


async def _ended(rig: Rig, how: str) -> None:
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
        await rig.finished()
        return
    journal = await rig.journal()
    await journal.turn_needs_input("it is too hard")
    await rig.world.release(SESSION, journal.state.epoch)


async def test_a_steer_that_was_lost_with_the_harness_is_given_again(tmp_path: Path, version: str) -> None:
    first = Reply((bash("sleep 4; echo one", "toolu_1"),))
    second = Reply((bash("sleep 1; echo two", "toolu_2"),))
    async with Rig.open(tmp_path, version, Script((first, second, say("done")))) as rig:
        await begun(rig)
        process = rig.worker()
        await rig.until(lambda state: _running(state, "toolu_1"))
        await (await Inbox.open(rig.world, SESSION)).accept("s-1", "look left", "steer")
        process.kill()
        await anyio.to_thread.run_sync(process.wait)
        await rig.kill_life()
        state = await rig.finished()
        assert state.messages["s-1"].status == "delivered"
        assert "look left" in str(rig.requests[-1].body)
        assert state.turns["m-1"].status == "completed"


async def test_a_steer_that_an_answered_request_held_is_not_said_again(tmp_path: Path, version: str) -> None:
    """The harness was lost after it had sent the steer to the model, and before it had written that down."""
    first = Reply((bash("until [ -e said ]; do sleep 0.1; done; sleep 1; echo one", "toolu_1"),))
    second = Reply((bash("echo two", "toolu_2"),))
    third = Reply((bash("echo three", "toolu_3"),))
    async with Rig.open(tmp_path, version, Script((first, second, third, say("done")))) as rig:
        await begun(rig)
        process = rig.worker(
            HARNESS_DURABLE_CRASH_AT="model.completed:2", HARNESS_DURABLE_CRASH_DEATH="harness"
        )
        await rig.until(lambda state: _running(state, "toolu_1"))
        await (await Inbox.open(rig.world, SESSION)).accept("s-1", "look left", "steer")
        (rig.workspace / "said").touch()
        assert await anyio.to_thread.run_sync(process.wait) == -signal.SIGKILL, rig.tail()
        assert "look left" in str(rig.requests[-1].body)
        state = await rig.finished()
        assert state.messages["s-1"].status == "delivered"
        assert str(rig.requests[-1].body).count("look left") == 1
        assert state.turns["m-1"].status == "completed"


async def test_a_stop_cuts_off_a_custom_tool_that_runs(tmp_path: Path, version: str) -> None:
    arguments: dict[str, object] = {"token": "t", "nap": 60}
    use = ToolUse("mcp__durable__effect", arguments, id="toolu_1")
    async with Rig.open(tmp_path, version, Script((Reply((use,)), say("after")))) as rig:
        await begun(rig)
        process = rig.worker()
        await rig.until(lambda _: rig.effects.exists())
        await (await Inbox.open(rig.world, SESSION)).request_stop("Ann")
        assert await anyio.to_thread.run_sync(process.wait) == 0, rig.tail()
        state = await rig.state()
        assert state.turns["m-1"].status == "cancelled"
        assert state.tool_calls["toolu_1"].outcome == "cancelled"
        await (await Inbox.open(rig.world, SESSION)).accept("m-2", "and now?")
        await rig.finished()
        assert rig.seen("toolu_1") == CANCELLED


# ---------------------------------------------------------------------------- other ways to be lost


async def test_a_harness_that_dies_alone_is_replaced(tmp_path: Path, version: str) -> None:
    script = Script((Reply((bash("echo a >> a; sleep 30", "toolu_1"),)), say("done")))
    async with Rig.open(tmp_path, version, script) as rig:
        await begun(rig)
        process = rig.worker()
        await rig.until(lambda state: _running(state, "toolu_1"))
        rig.kill_harness()
        assert await anyio.to_thread.run_sync(process.wait) == 0, rig.tail()
        state = await rig.state()
        assert state.turns["m-1"].status == "completed"
        assert next(iter(state.lives.values())).code == -9
        assert rig.seen("toolu_1") == UNKNOWN


async def test_a_keeper_that_dies_under_a_living_worker_is_replaced(tmp_path: Path, version: str) -> None:
    script = Script((Reply((bash("echo a >> a; sleep 30", "toolu_1"),)), say("done")))
    async with Rig.open(tmp_path, version, script) as rig:
        await begun(rig)
        process = rig.worker()
        await rig.until(lambda state: _running(state, "toolu_1") and (rig.workspace / "a").exists())
        await rig.kill_life()
        assert await anyio.to_thread.run_sync(process.wait) == 0, rig.tail()
        state = await rig.state()
        assert (state.turns["m-1"].status, len(state.lives)) == ("completed", 2)
        assert (rig.workspace / "a").read_text() == "a\n"


@pytest.mark.parametrize("at", ["model.completed:5", "model.requested:6", "model.completed:6"])
async def test_a_compaction_survives_and_is_paid_once(
    tmp_path: Path, version: str, at: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CLAUDE_CODE_AUTO_COMPACT_WINDOW", "100000")

    def policy(request: Request) -> Reply:
        said = "".join(block.text for block in request.messages[-1].blocks())
        if "Respond with TEXT ONLY" in said:
            return say("<summary>SUMMARY</summary>")
        compacted, calls = "SUMMARY" in str(request.body), tool_calls(request)
        if compacted and any("nine" in str(call.input) for call in calls):
            return say("end")
        if compacted:
            return Reply((bash("echo nine >> a", ""),))
        usage = Usage(195_000 if len(calls) == 3 else 1000, 10)
        return Reply((bash(f"echo {len(calls)} >> a", ""),), usage=usage)

    async with Rig.open(tmp_path, version, policy) as rig:
        await begun(rig)
        await rig.crashed(at, "machine")
        state = await rig.finished()
        assert state.turns["m-1"].status == "completed"
        assert (rig.workspace / "a").read_text().split() == ["0", "1", "2", "3", "nine"]
        assert rig.paid() == 7


# ------------------------------------------------------------------------------- real transcripts


def conversations() -> list[tuple[str, list[bytes]]]:
    """Transcripts of real sessions where they are at hand, and made-up ones that are always there."""
    found = [
        (name, lines)
        for name, lines in EVERY.items()
        if not any(word in name for word in ("synthetic", "acompact", "trimmed"))
    ]
    line = {"timestamp": "2026-01-01T00:00:00.000Z", "isSidechain": False, "sessionId": "s"}
    orphan = {"type": "tool_use", "id": "toolu_old", "name": "Bash", "input": {"command": "x"}}
    damaged = [
        json.dumps({**line, "type": "user", "uuid": "a", "message": {"role": "user", "content": "hi"}}),
        '{"torn',
        json.dumps(
            {
                **line,
                "type": "assistant",
                "uuid": "b",
                "parentUuid": "gone",
                "message": {"id": "msg_old", "role": "assistant", "model": "m", "content": [orphan]},
            }
        ),
    ]
    return [*found, ("damaged", [entry.encode() for entry in damaged])]


async def test_transcripts_of_other_versions_and_damaged_ones_go_on(tmp_path: Path, version: str) -> None:
    for number, (name, lines) in enumerate(conversations()):
        root = tmp_path / str(number)
        root.mkdir()
        async with Rig.open(root, version, lambda _: say("read")) as rig:
            journal = await rig.journal()
            native = journal.state.native_id
            await journal.transcript_appended("imported", {f"{native}.jsonl": lines}, offset=0)
            await rig.world.release(SESSION, journal.state.epoch)
            state = await rig.say("what did we do?")
            assert state.turns["m-1"].status == "completed", (name, state.turns["m-1"].reason)
            assert [line.kind for line in rig.provider.ledger.tally().lines].count("refused") == 0, name
            kept = await Reader(rig.world, SESSION).load()
            assert kept.transcripts[f"{native}.jsonl"].lines > 0
