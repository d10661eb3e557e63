"""Whole turns with both real binaries: tools, custom tools, permissions, stops, steers, further messages."""

from __future__ import annotations

from pathlib import Path

import anyio
import pytest

from harness_durable import tool
from harness_durable.journal import Inbox
from harness_durable.policy import CANCELLED
from harness_durable.testing.provider import Reply, Request, Text, ToolUse, say
from harness_durable.testing.provider.messages import assistant_turns, last_user_text, results, tool_calls
from harness_durable.testing.provider.policies.simple import Script
from tests.harness.claude_rig import SESSION, VERSIONS, Rig

pytestmark = [pytest.mark.slow, pytest.mark.parametrize("version", VERSIONS)]


def bash(command: str, call: str = "") -> ToolUse:
    return ToolUse("Bash", {"command": command, "description": "test"}, id=call)


async def test_a_message_is_answered_and_its_tools_are_recorded(tmp_path: Path, version: str) -> None:
    script = Script((Reply((Text("I look"), bash("echo out; echo err >&2", "toolu_1"))), say("done")))
    async with Rig.open(tmp_path, version, script) as rig:
        state = await rig.say("look around")
        turn = state.turns["m-1"]
        assert (turn.status, turn.text and turn.text.text) == ("completed", "done")
        call = state.tool_calls["toolu_1"]
        assert (call.outcome, call.source, call.releases) == ("completed", "hook", 1)
        assert await rig.result_of("toolu_1", state) == rig.seen("toolu_1") == "out\nerr"
        assert state.messages["m-1"].status == "delivered"


async def test_calls_that_never_run_are_not_said_to_have_run(tmp_path: Path, version: str) -> None:
    calls = (ToolUse("Bash", {"cmd": 1}, id="toolu_bad"), ToolUse("Nope", {}, id="toolu_none"))
    async with Rig.open(tmp_path, version, Script((Reply(calls), say("done")))) as rig:
        state = await rig.say("go")
        assert {call.outcome for call in state.tool_calls.values()} == {"not_started"}
        assert all(call.released_in is None for call in state.tool_calls.values())
        assert "No such tool" in await rig.result_of("toolu_none", state)


async def test_a_failed_command_is_a_failed_call(tmp_path: Path, version: str) -> None:
    script = Script((Reply((bash("echo no; exit 3", "toolu_1"),)), say("done")))
    async with Rig.open(tmp_path, version, script) as rig:
        state = await rig.say("go")
        assert state.tool_calls["toolu_1"].outcome == "failed"
        assert "no" in await rig.result_of("toolu_1", state)


async def test_custom_tools_run_in_the_worker_once(tmp_path: Path, version: str) -> None:
    ran: list[str] = []

    @tool(replay="never")
    def deploy(version: str) -> str:
        """Deploy."""
        ran.append(version)
        return f"deployed {version}"

    use = ToolUse("mcp__durable__deploy", {"version": "7"}, id="toolu_1")
    async with Rig.open(tmp_path, version, Script((Reply((use,)), say("done")))) as rig:
        rig.tools = (deploy,)
        state = await rig.say("deploy it")
        assert ran == ["7"]
        assert (state.tool_calls["toolu_1"].outcome, rig.seen("toolu_1")) == ("completed", "deployed 7")


async def test_a_second_message_goes_on_with_the_same_conversation(tmp_path: Path, version: str) -> None:
    async with Rig.open(tmp_path, version, Script((say("one"), say("two")))) as rig:
        await rig.say("first")
        state = await rig.say("second", "m-2")
        assert [turn.status for turn in state.turns.values()] == ["completed", "completed"]
        said = [block.text for message in rig.requests[-1].messages for block in message.blocks()]
        order = [text.strip() for text in said if text.strip() in ("first", "one", "second")]
        assert order == ["first", "one", "second"]
        assert not any("No response requested" in text for text in said)


@pytest.mark.parametrize("text", ["/compact now", "/etc/passwd looks odd", "#note", "!ls", "-p"])
async def test_every_text_reaches_the_model(tmp_path: Path, version: str, text: str) -> None:
    async with Rig.open(tmp_path, version, Script((say("read"),))) as rig:
        state = await rig.say(text)
        assert state.turns["m-1"].status == "completed"
        assert last_user_text(rig.requests[-1]).strip() == text


async def test_a_steer_reaches_the_running_turn(tmp_path: Path, version: str) -> None:
    script = Script((Reply((bash("sleep 2; echo slept", "toolu_1"),)), say("done")))
    async with Rig.open(tmp_path, version, script) as rig:
        await rig.inbox.accept("m-1", "work")
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(rig.work)
            await rig.until(lambda state: _released(state.tool_calls.get("toolu_1")))
            inbox = await Inbox.open(rig.world, SESSION)
            await inbox.accept("s-1", "look left", "steer")
        state = await rig.state()
        assert state.messages["s-1"].status == "delivered"
        assert list(state.turns) == ["m-1"]
        assert "look left" in str(rig.requests[-1].body)


def _released(call: object) -> bool:
    return call is not None and getattr(call, "released_in", None) is not None


async def test_a_stop_ends_the_turn_and_the_next_one_knows_what_ran(tmp_path: Path, version: str) -> None:
    """C044: the next request has a result for each call."""
    both = Reply((bash("echo a > a; sleep 60", "toolu_1"), bash("echo b > b", "toolu_2")))
    async with Rig.open(tmp_path, version, Script((both, say("after")))) as rig:
        await rig.inbox.accept("m-1", "work")
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(rig.work)
            await rig.until(lambda state: _released(state.tool_calls.get("toolu_1")))
            await (await Inbox.open(rig.world, SESSION)).request_stop("Ann")
        state = await rig.state()
        assert state.turns["m-1"].status == "cancelled"
        assert state.tool_calls["toolu_1"].outcome == "cancelled"
        assert not any(call.open for call in state.tool_calls.values())
        state = await rig.say("and now?", "m-2")
        assert state.turns["m-2"].status == "completed"
        assert rig.seen("toolu_1") == CANCELLED
        assert "doesn't want to proceed" not in str(rig.requests[-1].body)


async def test_a_person_is_asked_before_what_is_not_safe(tmp_path: Path, version: str) -> None:
    """C067: the answer comes through the log, by the call's id."""
    two = Reply((bash("echo a > a", "toolu_1"),)), Reply((bash("echo b > b", "toolu_2"),)), say("done")
    async with Rig.open(tmp_path, version, Script(two), permission_mode="ask") as rig:
        await rig.inbox.accept("m-1", "work")
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(rig.work)
            await rig.until(lambda state: "toolu_1" in state.permissions)
            assert not (rig.workspace / "a").exists()
            await (await Inbox.open(rig.world, SESSION)).answer("toolu_1", allow=True, by="Ann")
            await rig.until(lambda state: "toolu_2" in state.permissions)
            await (await Inbox.open(rig.world, SESSION)).answer(
                "toolu_2", allow=False, by="Ann", reason="not today"
            )
        state = await rig.state()
        assert (rig.workspace / "a").exists()
        assert not (rig.workspace / "b").exists()
        assert state.tool_calls["toolu_2"].outcome == "not_started"
        assert "not today" in rig.seen("toolu_2")


async def test_c041_an_api_error_fails_the_turn_with_its_code(tmp_path: Path, version: str) -> None:
    from harness_durable.testing.provider import HttpError

    def refuse(request: Request) -> Reply:
        return Reply(faults=(HttpError(401, message="no such key"),))

    async with Rig.open(tmp_path, version, refuse) as rig:
        state = await rig.say("go")
        assert (state.turns["m-1"].status, state.turns["m-1"].code) == ("failed", "api_401")


async def test_a_subagent_is_recorded_and_gated_call_by_call(tmp_path: Path, version: str) -> None:
    def policy(request: Request) -> Reply:
        if "SUBTASK" in str(request.messages[0].blocks()[-1].text):
            if "toolu_inner" not in results(request):
                return Reply((bash("echo inner > inner", "toolu_inner"),))
            return say("inner done")
        if tool_calls(request):
            return say(f"turns {assistant_turns(request)}")
        prompt: dict[str, object] = {
            "description": "sub",
            "prompt": "SUBTASK do",
            "subagent_type": "general-purpose",
        }
        return Reply((ToolUse("Agent", prompt, id="toolu_agent"),))

    async with Rig.open(tmp_path, version, policy) as rig:
        state = await rig.say("delegate")
        assert state.turns["m-1"].status == "completed"
        assert state.tool_calls["toolu_inner"].agent is not None
        assert {call.outcome for call in state.tool_calls.values()} == {"completed"}
        assert any("subagents/" in file for file in state.transcripts)
