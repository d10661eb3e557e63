"""Whole turns with both real binaries: tools, custom tools, permissions, stops, steers, further messages."""

from __future__ import annotations

from pathlib import Path

import anyio
import pytest

from harness_durable import tool
from harness_durable.events import TranscriptAppended
from harness_durable.journal import Inbox, Reader
from harness_durable.policy import CANCELLED
from harness_durable.testing.provider import HttpError, Reply, Request, Text, ToolUse, say
from harness_durable.testing.provider.messages import last_user_text
from harness_durable.testing.provider.policies.simple import Script
from tests.harness.claude_rig import tried
from tests.harness.opencode_rig import SESSION, VERSIONS, bash
from tests.harness.opencode_rig import OpenCodeRig as Rig

pytestmark = [pytest.mark.slow, pytest.mark.parametrize("version", tried(VERSIONS))]


async def test_a_message_is_answered_and_its_tools_are_recorded(tmp_path: Path, version: str) -> None:
    script = Script((Reply((Text("I look"), bash("echo out; echo err >&2", "call_1"))), say("done")))
    async with Rig.open(tmp_path, version, script, tools=None) as rig:
        state = await rig.say("look around")
        turn = state.turns["m-1"]
        assert (turn.status, turn.text and turn.text.text) == ("completed", "done")
        call = state.tool_calls["call_1"]
        assert (call.outcome, call.source, call.releases) == ("completed", "hook", 1)
        assert await rig.result_of("call_1", state) == rig.seen("call_1") == "out\nerr\n"
        assert state.messages["m-1"].status == "delivered"


async def test_calls_that_never_run_are_not_said_to_have_run(tmp_path: Path, version: str) -> None:
    calls = (ToolUse("nope", {}, id="call_none"), ToolUse("skill", {"name": "x"}, id="call_off"))
    async with Rig.open(tmp_path, version, Script((Reply(calls), say("done"))), tools=None) as rig:
        state = await rig.say("go")
        assert {call.outcome for call in state.tool_calls.values()} == {"not_started"}
        assert all(call.released_in is None for call in state.tool_calls.values())
        assert "unavailable tool 'nope'" in await rig.result_of("call_none", state)
        assert rig.seen("call_none") == await rig.result_of("call_none", state)


async def test_a_call_that_fails_is_a_failed_call(tmp_path: Path, version: str) -> None:
    calls = (
        ToolUse("read", {"filePath": "/no/such/file"}, id="call_1"),
        ToolUse("bash", {"cmd": 1}, id="call_2"),
    )
    async with Rig.open(tmp_path, version, Script((Reply(calls), say("done"))), tools=None) as rig:
        state = await rig.say("go")
        assert {call.outcome for call in state.tool_calls.values()} == {"failed"}
        assert "File not found" in await rig.result_of("call_1", state)


async def test_custom_tools_run_in_the_worker_once(tmp_path: Path, version: str) -> None:
    ran: list[str] = []

    @tool(replay="never")
    def deploy(version: str, times: int = 1) -> str:
        """Deploy."""
        ran.append(f"{version} {times}")
        if times > 1:
            raise ValueError("too often")
        return f"deployed {version}"

    use = ToolUse("durable_deploy", {"version": "7"}, id="call_1")
    bad = ToolUse("durable_deploy", {"version": "7", "times": 2}, id="call_2")
    script = Script((Reply((use,)), Reply((bad,)), say("done")))
    async with Rig.open(tmp_path, version, script, tools=None) as rig:
        rig.tools = (deploy,)
        state = await rig.say("deploy it")
        assert ran == ["7 1", "7 2"]
        assert (state.tool_calls["call_1"].outcome, rig.seen("call_1")) == ("completed", "deployed 7")
        assert state.tool_calls["call_2"].outcome == "failed"
        assert rig.seen("call_2") == await rig.result_of("call_2", state)
        offered = next(tool for tool in rig.requests[0].tools if tool.name == "durable_deploy")
        assert offered.takes("times")
        assert "durable_barrier" not in {tool.name for tool in rig.requests[0].tools}


async def test_a_second_message_goes_on_with_the_same_conversation(tmp_path: Path, version: str) -> None:
    script = Script((Reply((Text(" a "), bash("echo hi", "call_1"))), say("one"), say("two")))
    async with Rig.open(tmp_path, version, script, tools=None) as rig:
        await rig.say("first")
        state = await rig.say("second", "m-2")
        assert [turn.status for turn in state.turns.values()] == ["completed", "completed"]
        said = [block.text for message in rig.requests[-1].messages for block in message.blocks()]
        order = [text.strip() for text in said if text.strip() in ("first", "one", "second")]
        assert order == ["first", "one", "second"]
        assert rig.seen("call_1") == "hi\n"
        assert rig.paid() == 3


@pytest.mark.parametrize("text", ["/compact now", "!ls", "@README.md {file:/etc/passwd} @PORT@", '"quoted"'])
async def test_every_text_reaches_the_model(tmp_path: Path, version: str, text: str) -> None:
    async with Rig.open(tmp_path, version, Script((say("read"),)), tools=None) as rig:
        state = await rig.say(text)
        assert state.turns["m-1"].status == "completed"
        assert last_user_text(rig.requests[-1]).strip() == text


async def test_the_log_does_not_grow_with_each_piece_of_a_commands_output(
    tmp_path: Path, version: str
) -> None:
    """The harness itself writes the whole output so far with each of them: about 3 MB here."""
    chatty = bash(
        "for i in $(seq 150); do head -c 250 /dev/zero | tr '\\0' x; echo; sleep 0.02; done", "call_1"
    )
    async with Rig.open(tmp_path, version, Script((Reply((chatty,)), say("done"))), tools=None) as rig:
        state = await rig.say("go")
        [transcript] = state.transcripts.values()
        assert transcript.lines < 20
        assert len(rig.seen("call_1").split()) == 150
        written = [entry.event async for entry in Reader(rig.world, SESSION).entries()]
        assert sum(isinstance(event, TranscriptAppended) for event in written) <= transcript.lines
        assert len(written) < 50
        size = sum([len(blob) async for _, blob in rig.world.blobs(SESSION)])
        size += sum(len(record.body) for record in await rig.world.read(SESSION))
        assert size < 400_000


async def test_a_steer_reaches_the_running_turn(tmp_path: Path, version: str) -> None:
    script = Script((Reply((bash("sleep 2; echo slept", "call_1"),)), say("done"), say("done")))
    async with Rig.open(tmp_path, version, script, tools=None) as rig:
        await rig.inbox.accept("m-1", "work")
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(rig.work)
            await rig.until(lambda state: _released(state.tool_calls.get("call_1")))
            inbox = await Inbox.open(rig.world, SESSION)
            await inbox.accept("s-1", "look left", "steer")
        state = await rig.state()
        assert state.messages["s-1"].status == "delivered"
        assert list(state.turns) == ["m-1"]
        assert state.turns["m-1"].status == "completed"
        assert "look left" in str(rig.requests[-1].body)


def _released(call: object) -> bool:
    return call is not None and getattr(call, "released_in", None) is not None


async def test_a_stop_ends_the_turn_and_the_next_one_knows_what_ran(tmp_path: Path, version: str) -> None:
    both = Reply((bash("echo a > a; sleep 60", "call_1"), bash("echo b > b", "call_2")))
    async with Rig.open(tmp_path, version, Script((both, say("after"))), tools=None) as rig:
        await rig.inbox.accept("m-1", "work")
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(rig.work)
            await rig.until(lambda state: _released(state.tool_calls.get("call_1")))
            await (await Inbox.open(rig.world, SESSION)).request_stop("Ann")
        state = await rig.state()
        assert state.turns["m-1"].status == "cancelled"
        assert state.tool_calls["call_1"].outcome == "cancelled"
        assert not any(call.open for call in state.tool_calls.values())
        state = await rig.say("and now?", "m-2")
        assert state.turns["m-2"].status == "completed"
        assert rig.seen("call_1") == CANCELLED


async def test_a_person_is_asked_before_what_is_not_safe(tmp_path: Path, version: str) -> None:
    two = Reply((bash("echo a > a", "call_1"),)), Reply((bash("echo b > b", "call_2"),)), say("done")
    async with Rig.open(tmp_path, version, Script(two), tools=None, permission_mode="ask") as rig:
        await rig.inbox.accept("m-1", "work")
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(rig.work)
            await rig.until(lambda state: "call_1" in state.permissions)
            assert not (rig.workspace / "a").exists()
            await (await Inbox.open(rig.world, SESSION)).answer("call_1", allow=True, by="Ann")
            await rig.until(lambda state: "call_2" in state.permissions)
            await (await Inbox.open(rig.world, SESSION)).answer(
                "call_2", allow=False, by="Ann", reason="not today"
            )
        state = await rig.state()
        assert (rig.workspace / "a").exists()
        assert not (rig.workspace / "b").exists()
        assert state.tool_calls["call_2"].outcome == "not_started"
        assert "not today" in rig.seen("call_2")


async def test_an_api_error_fails_the_turn_with_its_code(tmp_path: Path, version: str) -> None:
    def refuse(request: Request) -> Reply:
        return Reply(faults=(HttpError(401, message="no such key"),))

    async with Rig.open(tmp_path, version, refuse, tools=None) as rig:
        state = await rig.say("go")
        assert (state.turns["m-1"].status, state.turns["m-1"].code) == ("failed", "api_401")


async def test_a_question_is_answered_by_its_id_also_while_nobody_works(tmp_path: Path, version: str) -> None:
    question: dict[str, object] = {"question": "Which?", "header": "Colour", "options": []}
    use = ToolUse("question", {"questions": [question, question]}, id="call_1")
    script = Script((Reply((use,)), say("done")))
    async with Rig.open(tmp_path, version, script, tools=("question",)) as rig:
        await rig.inbox.accept("m-1", "ask me")
        await rig.crashed("permission.asked")
        await (await Inbox.open(rig.world, SESSION)).answer(
            "call_1", allow=True, by="Ann", reason="blue\nred"
        )
        await rig.crashed("tool.completed", "machine")  # before the harness has heard of it
        state = await rig.finished()
        assert state.turns["m-1"].status == "completed"
        assert state.tool_calls["call_1"].outcome == "completed"
        assert set(state.permissions) == {"call_1"}
        assert '"Which?"="blue", "Which?"="red"' in rig.seen("call_1")
        assert await rig.result_of("call_1", state) == rig.seen("call_1")
        assert rig.paid() == 2


async def test_an_answered_question_is_told_in_the_words_of_the_harness(tmp_path: Path, version: str) -> None:
    """The log has them before the harness says them."""
    option: dict[str, object] = {"label": "blue", "description": "like the sky"}
    question: dict[str, object] = {"question": "Which?", "header": "Colour", "options": [option]}
    use = ToolUse("question", {"questions": [question]}, id="call_1")
    async with Rig.open(tmp_path, version, Script((Reply((use,)), say("done"))), tools=("question",)) as rig:
        await rig.inbox.accept("m-1", "ask me")
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(rig.work)
            await rig.until(lambda state: "call_1" in state.permissions)
            await (await Inbox.open(rig.world, SESSION)).answer("call_1", allow=True, by="Ann", reason="blue")
        state = await rig.state()
        assert await rig.result_of("call_1", state) == rig.seen("call_1")
        assert "blue" in rig.seen("call_1")


async def test_a_question_that_nobody_wants_to_answer_is_refused(tmp_path: Path, version: str) -> None:
    question: dict[str, object] = {"question": "Which?", "header": "Colour", "options": []}
    use = ToolUse("question", {"questions": [question]}, id="call_1")
    script = Script((Reply((use,)), say("done")))
    async with Rig.open(tmp_path, version, script, tools=("question",)) as rig:
        await rig.inbox.accept("m-1", "ask me")
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(rig.work)
            await rig.until(lambda state: "call_1" in state.permissions)
            await (await Inbox.open(rig.world, SESSION)).answer(
                "call_1", allow=False, by="Ann", reason="you know"
            )
        assert "you know" in rig.seen("call_1")


async def test_a_provider_that_is_busy_is_asked_again_by_the_harness(tmp_path: Path, version: str) -> None:
    script = Script((Reply((bash("echo hi", "call_1"),)), say("done")))
    failures = [HttpError(529, message="busy"), HttpError(500, message="oh")]

    def policy(request: Request) -> Reply:
        return Reply(faults=(failures.pop(),)) if failures else script(request)

    async with Rig.open(tmp_path, version, policy, tools=None) as rig:
        state = await rig.say("go")
        assert state.turns["m-1"].status == "completed"
        assert [call.status for call in state.model_calls.values()].count("failed") == 2
        assert len(state.lives) == 1
