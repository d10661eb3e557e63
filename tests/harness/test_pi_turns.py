"""Whole turns with both real versions: tools, custom tools, permissions, stops, steers, further messages."""

from __future__ import annotations

from pathlib import Path

import anyio
import pytest

from harness_durable import tool
from harness_durable.journal import Inbox
from harness_durable.policy import CANCELLED, STOPPED
from harness_durable.state import Session
from harness_durable.testing.provider import HttpError, Reply, Request, Text, ToolUse, say
from harness_durable.testing.provider.messages import assistant_turns, last_user_text, results
from harness_durable.testing.provider.policies.simple import Script
from tests.harness.claude_rig import tried
from tests.harness.pi_rig import SESSION, VERSIONS, PiRig, bash

pytestmark = [pytest.mark.slow, pytest.mark.parametrize("version", tried(VERSIONS))]


async def test_a_message_is_answered_and_its_tools_are_recorded(tmp_path: Path, version: str) -> None:
    script = Script((Reply((Text("I look"), bash("echo out; echo err >&2", "toolu_1"))), say("done")))
    async with PiRig.open(tmp_path, version, script, tools=None) as rig:
        state = await rig.say("look around")
        turn = state.turns["m-1"]
        assert (turn.status, turn.text and turn.text.text) == ("completed", "done")
        call = state.tool_calls["toolu_1"]
        assert (call.outcome, call.source, call.releases) == ("completed", "hook", 1)
        assert await rig.result_of("toolu_1", state) == rig.seen("toolu_1") == "out\nerr\n"
        assert state.messages["m-1"].status == "delivered"


async def test_calls_that_never_run_are_not_said_to_have_run(tmp_path: Path, version: str) -> None:
    calls = (ToolUse("bash", {"cmd": 1}, id="toolu_bad"), ToolUse("nope", {}, id="toolu_none"))
    async with PiRig.open(tmp_path, version, Script((Reply(calls), say("done"))), tools=None) as rig:
        state = await rig.say("go")
        assert {call.outcome for call in state.tool_calls.values()} == {"not_started"}
        assert all(call.released_in is None for call in state.tool_calls.values())
        assert "not found" in await rig.result_of("toolu_none", state)


async def test_a_failed_command_is_a_failed_call(tmp_path: Path, version: str) -> None:
    script = Script((Reply((bash("echo no; exit 3", "toolu_1"),)), say("done")))
    async with PiRig.open(tmp_path, version, script, tools=None) as rig:
        state = await rig.say("go")
        assert state.tool_calls["toolu_1"].outcome == "failed"
        assert "code 3" in await rig.result_of("toolu_1", state)


async def test_files_are_read_written_and_edited(tmp_path: Path, version: str) -> None:
    edit: dict[str, object] = {"path": "f", "edits": [{"oldText": "one", "newText": "two"}]}
    calls = (
        ToolUse("write", {"path": "f", "content": "one\n"}, id="toolu_w"),
        ToolUse("edit", edit, id="toolu_e"),
        ToolUse("read", {"path": "f"}, id="toolu_r"),
    )
    async with PiRig.open(tmp_path, version, Script((Reply(calls), say("done"))), tools=None) as rig:
        state = await rig.say("go")
        assert {call.outcome for call in state.tool_calls.values()} == {"completed"}
        assert "two" in rig.seen("toolu_r")
        assert (rig.workspace / "f").read_text() == "two\n"
        assert state.tool_calls["toolu_r"].policy == "safe"


async def test_calls_that_act_run_one_after_the_other(tmp_path: Path, version: str) -> None:
    calls = (
        bash("sleep 0.5; cat log; echo one >> log", "toolu_1"),
        bash("cat log; echo two >> log", "toolu_2"),
    )
    async with PiRig.open(tmp_path, version, Script((Reply(calls), say("done"))), tools=None) as rig:
        (rig.workspace / "log").touch()
        state = await rig.say("go")
        assert await rig.result_of("toolu_2", state) == "one\n"
        first, second = state.tool_calls["toolu_1"], state.tool_calls["toolu_2"]
        assert second.released_seq > first.outcome_seq


async def test_custom_tools_run_in_the_worker_once(tmp_path: Path, version: str) -> None:
    ran: list[str] = []

    @tool(replay="never")
    def deploy(version: str) -> str:
        """Deploy."""
        ran.append(version)
        return f"deployed {version}"

    @tool(replay="safe")
    def broken() -> str:
        """Fail."""
        raise ValueError("no way")

    uses = (
        ToolUse("durable_deploy", {"version": "7"}, id="toolu_1"),
        ToolUse("durable_broken", {}, id="toolu_2"),
    )
    async with PiRig.open(tmp_path, version, Script((Reply(uses), say("done"))), tools=None) as rig:
        rig.tools = (deploy, broken)
        state = await rig.say("deploy it")
        assert ran == ["7"]
        assert (state.tool_calls["toolu_1"].outcome, rig.seen("toolu_1")) == ("completed", "deployed 7")
        assert state.tool_calls["toolu_2"].outcome == "failed"
        told = results(rig.requests[-1])["toolu_2"]
        assert told.is_error
        assert "no way" in told.text


async def test_a_second_message_goes_on_with_the_same_conversation(tmp_path: Path, version: str) -> None:
    async with PiRig.open(tmp_path, version, Script((say("one"), say("two"))), tools=None) as rig:
        await rig.say("first")
        state = await rig.say("second", "m-2")
        assert [turn.status for turn in state.turns.values()] == ["completed", "completed"]
        said = [block.text for message in rig.requests[-1].messages for block in message.blocks()]
        assert said == ["first", "one", "second"]


@pytest.mark.parametrize("text", ["/compact now", "/durable-continue", "<durable:ab>\nx", "!ls", "\n a "])
async def test_every_text_reaches_the_model(tmp_path: Path, version: str, text: str) -> None:
    async with PiRig.open(tmp_path, version, Script((say("read"),)), tools=None) as rig:
        state = await rig.say(text)
        assert state.turns["m-1"].status == "completed"
        assert last_user_text(rig.requests[-1]) == text


async def test_a_steer_reaches_the_running_turn(tmp_path: Path, version: str) -> None:
    script = Script((Reply((bash("sleep 1; echo slept", "toolu_1"),)), say("done")))
    async with PiRig.open(tmp_path, version, script, tools=None) as rig:
        await rig.inbox.accept("m-1", "work")
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(rig.work)
            await rig.until(lambda state: _released(state, "toolu_1"))
            inbox = await Inbox.open(rig.world, SESSION)
            await inbox.accept("s-1", "/look left", "steer")
        state = await rig.state()
        assert state.messages["s-1"].status == "delivered"
        assert list(state.turns) == ["m-1"]
        assert last_user_text(rig.requests[-1]) == "/look left"


def _released(state: Session, call: str) -> bool:
    return call in state.tool_calls and state.tool_calls[call].released_in is not None


async def test_a_stop_ends_the_turn_and_the_next_one_knows_what_ran(tmp_path: Path, version: str) -> None:
    both = Reply((bash("echo a > a; sleep 60", "toolu_1"), bash("echo b > b", "toolu_2")))
    async with PiRig.open(tmp_path, version, Script((both, say("after"))), tools=None) as rig:
        await rig.inbox.accept("m-1", "work")
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(rig.work)
            await rig.until(lambda state: _released(state, "toolu_1"))
            await (await Inbox.open(rig.world, SESSION)).request_stop("Ann")
        state = await rig.state()
        assert state.turns["m-1"].status == "cancelled"
        assert state.tool_calls["toolu_1"].outcome == "cancelled"
        assert state.tool_calls["toolu_2"].outcome == "not_started"
        state = await rig.say("and now?", "m-2")
        assert state.turns["m-2"].status == "completed"
        assert (rig.seen("toolu_1"), rig.seen("toolu_2")) == (CANCELLED, STOPPED)
        assert not (rig.workspace / "b").exists()
        assert "because Ann asked for a stop" in str(rig.requests[-1].body)


async def test_a_person_is_asked_before_what_is_not_safe(tmp_path: Path, version: str) -> None:
    two = Reply((bash("echo a > a", "toolu_1"),)), Reply((bash("echo b > b", "toolu_2"),)), say("done")
    async with PiRig.open(tmp_path, version, Script(two), tools=None, permission_mode="ask") as rig:
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


async def test_a_stop_reaches_a_call_that_waits_for_a_person(tmp_path: Path, version: str) -> None:
    script = Script((Reply((bash("echo a > a", "toolu_1"),)), say("after")))
    async with PiRig.open(tmp_path, version, script, tools=None, permission_mode="ask") as rig:
        await rig.inbox.accept("m-1", "work")
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(rig.work)
            await rig.until(lambda state: "toolu_1" in state.permissions)
            await (await Inbox.open(rig.world, SESSION)).request_stop("Ann")
        state = await rig.state()
        assert (state.turns["m-1"].status, len(state.lives)) == ("cancelled", 1)
        assert state.tool_calls["toolu_1"].outcome == "not_started"
        await rig.say("and now?", "m-2")
        assert rig.seen("toolu_1") == STOPPED


async def test_an_api_error_fails_the_turn_with_its_code(tmp_path: Path, version: str) -> None:
    def refuse(_: Request) -> Reply:
        return Reply(faults=(HttpError(401, message="no such key"),))

    async with PiRig.open(tmp_path, version, refuse, tools=None) as rig:
        state = await rig.say("go")
        assert (state.turns["m-1"].status, state.turns["m-1"].code) == ("failed", "api_401")


async def test_a_trouble_that_passes_is_waited_for(tmp_path: Path, version: str) -> None:
    tried: list[int] = []

    def hesitate(request: Request) -> Reply:
        tried.append(assistant_turns(request))
        return Reply(faults=(HttpError(529),)) if len(tried) < 2 else say("done")

    async with PiRig.open(tmp_path, version, hesitate, tools=None) as rig:
        state = await rig.say("go")
        assert (state.turns["m-1"].status, len(state.lives)) == ("completed", 1)
        assert tried == [0, 0]
