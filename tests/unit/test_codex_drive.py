"""Driving a Codex that is not there: a double answers our requests, and says what it is told to."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import anyio
import pytest

from harness_durable import tool
from harness_durable.adapter import Harness, LifeContext, TurnEnd
from harness_durable.errors import HarnessDied, HarnessStuck
from harness_durable.events import Rung
from harness_durable.journal import Journal
from harness_durable.policy import UNKNOWN
from harness_durable.tools.host import ToolHost
from harness_durable_adapters.codex.drive import drive
from harness_durable_adapters.codex.naming import message_number, transcript_file
from harness_durable_adapters.codex.rollout import line_of
from harness_durable_adapters.common.shapes import Json, mapping
from tests.unit.memory_world import MemoryWorld
from tests.unit.session_kit import AGENT, SESSION, asked, begun
from tests.unit.test_claude_drive import Double, until

THREAD, TURN = "thread-1", "turn-1"


class Codex(Double):
    """Answers requests at once; a turn only begins."""

    async def write(self, frame: bytes) -> None:
        self.heard.extend(frame)
        said: Json = json.loads(frame)
        number = said.get("id")
        match said.get("method"):
            case "initialize" | "thread/inject_items" | "turn/steer" | "turn/interrupt":
                self.say({"id": number, "result": {}})
            case "thread/start":
                self.say({"id": number, "result": {"thread": {"id": THREAD}}})
            case "turn/start":
                self.say({"id": number, "result": {"turn": {"id": TURN}}})
            case _:
                return

    def methods(self) -> list[object]:
        return [frame.get("method") for frame in self.frames if "method" in frame]

    def answers(self, number: str) -> list[Json]:
        ours = (frame for frame in self.frames if "method" not in frame)
        return [mapping(frame.get("result")) for frame in ours if frame.get("id") == int(number)]

    def item(self, item: Json) -> None:
        self.say({"method": "rawResponseItem/completed", "params": {"turnId": TURN, "item": item}})

    def done(self, item: Json) -> None:
        self.say({"method": "item/completed", "params": {"turnId": TURN, "item": item}})

    def end(self, status: str = "completed", text: str = "done", **more: object) -> None:
        turn = {"id": TURN, "status": status, "items": [{"type": "agentMessage", "text": text}], **more}
        self.say({"method": "turn/completed", "params": {"turn": turn}})


def approval(number: int, call: str) -> Json:
    params = {"itemId": call, "turnId": TURN}
    return {"id": number, "method": "item/commandExecution/requestApproval", "params": params}


def ran(call: str, code: int = 0) -> Json:
    item: Json = {"type": "commandExecution", "id": call, "exitCode": code, "aggregatedOutput": "out"}
    return {**item, "status": "failed" if code else "completed"}


def context(journal: Journal, rung: Rung = "start") -> LifeContext:
    return LifeContext(
        session=SESSION,
        life="L1",
        turn="m-1",
        rung=rung,
        agent=AGENT,
        harness=Harness("", "0.171.0"),
        journal=journal,
        tools=ToolHost((), journal, SESSION, "L1", custom_name=lambda name: f"durable_{name}"),
        token="token",
        home="/home/agent",
        cwd="/ws",
        ready=anyio.Event(),
    )


@asynccontextmanager
async def driven(ctx: LifeContext, double: Codex) -> AsyncGenerator[list[TurnEnd]]:
    ends: list[TurnEnd] = []

    async def run() -> None:
        ends.append(await drive(ctx, double))

    with anyio.fail_after(20):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(run)
            yield ends


async def test_a_message_begins_the_turn_and_the_barrier_stands_before_it() -> None:
    journal, double = await begun(MemoryWorld()), Codex()
    ctx = context(journal)
    async with driven(ctx, double) as ends:
        await until(lambda: "turn/start" in double.methods())
        assert ctx.ready.is_set()
        number = message_number(journal.state.native_id, "m-1")
        double.done({"type": "userMessage", "clientId": number})
        await until(lambda: journal.state.messages["m-1"].status == "delivered")
        double.end()
    assert double.methods() == ["initialize", "initialized", "thread/start", "turn/start"]
    assert ends == [TurnEnd("completed", text="done")]


async def test_the_conversation_is_given_before_the_turn_is_begun() -> None:
    journal, double = await begun(MemoryWorld()), Codex()
    item: Json = {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "before"}]}
    file = transcript_file(journal.state.native_id)
    await journal.transcript_appended("L0", {file: [line_of(item)]}, offset=0)
    async with driven(context(journal), double):
        await until(lambda: "turn/start" in double.methods())
        double.end()
    given = next(frame for frame in double.frames if frame.get("method") == "thread/inject_items")
    assert given["params"] == {"threadId": THREAD, "items": [item]}


async def test_a_command_runs_only_after_its_release_and_its_outcome_is_kept() -> None:
    journal, double = await begun(MemoryWorld()), Codex()
    await asked(journal, ("c1", "exec_command", {}), origin="builtin")
    async with driven(context(journal), double):
        await until(lambda: "turn/start" in double.methods())
        double.say(approval(0, "c1"))
        await until(lambda: double.answers("0"))
        assert journal.state.tool_calls["c1"].released_in == "L1"
        double.done(ran("c1"))
        await until(lambda: not journal.state.tool_calls["c1"].open)
        double.end()
    assert double.answers("0") == [{"decision": "accept"}]
    assert journal.state.tool_calls["c1"].outcome == "completed"


async def test_a_call_that_nobody_knows_is_never_answered_and_costs_the_life() -> None:
    journal, double = await begun(MemoryWorld()), Codex()
    with pytest.raises(ExceptionGroup) as group:
        async with driven(context(journal), double):
            await until(lambda: "turn/start" in double.methods())
            double.say(approval(0, "strange"))
    assert group.group_contains(HarnessStuck, match="strange must not run")
    assert double.answers("0") == []


async def test_nothing_begins_beside_a_call_that_is_refused() -> None:
    """Its repeat comes in one response with another command."""
    journal, double = await begun(MemoryWorld()), Codex()
    await asked(journal, ("c0", "exec_command", {"cmd": "deploy"}), origin="builtin")
    await journal.tool_gate("c0", "L0")
    await journal.tool_closed("c0", "unknown", UNKNOWN)
    await asked(
        journal,
        ("c1", "exec_command", {"cmd": "ls"}),
        ("c2", "exec_command", {"cmd": "deploy"}),
        origin="builtin",
    )
    with pytest.raises(ExceptionGroup) as group:
        async with driven(context(journal), double):
            await until(lambda: "turn/start" in double.methods())
            double.say(approval(0, "c1"))
    assert group.group_contains(HarnessStuck, match="c2 must not run")
    assert journal.state.tool_calls["c1"].released_in is None
    assert journal.state.tool_calls["c2"].repeats == "c0"
    assert double.answers("0") == []


async def test_a_takeover_says_nothing_again_and_answers_what_is_open() -> None:
    journal, first = await begun(MemoryWorld()), Codex()
    await asked(journal, ("c1", "exec_command", {}), ("c2", "exec_command", {}), origin="builtin")
    async with driven(context(journal), first):
        await until(lambda: "turn/start" in first.methods())
        first.say(approval(0, "c1"))
        await until(lambda: first.answers("0"))
        first.end()
    second = Codex(bytes(first.heard))
    lines = first.output_bytes.splitlines(keepends=True)
    second.output_bytes = b"".join(line for line in lines if b"turn/completed" not in line)
    resolved: Json = {"method": "serverRequest/resolved", "params": {"requestId": 7}}
    second.say(approval(7, "c1"), resolved, approval(1, "c2"))
    async with driven(context(journal, "attach"), second) as ends:
        await until(lambda: second.answers("1"))
        second.end()
    assert [end.kind for end in ends] == ["completed"]
    assert second.methods() == first.methods()
    assert len(second.answers("0")) == len(second.answers("1")) == 1
    assert second.answers("7") == [], "it was taken back"


async def test_items_are_mirrored_once_and_frames_are_not() -> None:
    journal, double = await begun(MemoryWorld()), Codex()
    words: Json = {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "hi"}]}
    place: Json = {"type": "message", "role": "user"}
    place["content"] = [{"type": "input_text", "text": "<environment_context>"}]
    async with driven(context(journal), double):
        await until(lambda: "turn/start" in double.methods())
        double.item(place)
        double.item(words)
        double.end()
    again = Codex(bytes(double.heard))
    again.output_bytes = double.output_bytes
    async with driven(context(journal, "attach"), again):
        pass
    lines = [line async for line in journal.transcript_lines(transcript_file(journal.state.native_id))]
    assert lines == [line_of(words)]


async def test_arguments_that_are_nested_too_deeply_fail_the_call_and_nothing_else() -> None:
    ran: list[object] = []

    @tool(replay="never")
    def deploy(version: object) -> str:
        """Deploy."""
        ran.append(version)
        return "deployed"

    journal, double = await begun(MemoryWorld()), Codex()
    ctx = context(journal)
    name = "durable_deploy"
    ctx.tools = ToolHost((deploy,), journal, SESSION, "L1", custom_name=lambda one: f"durable_{one}")
    deep = b'{"version":' + b"[" * 300 + b"]" * 300 + b"}"
    await asked(journal, ("c1", name, deep), origin="builtin")
    head = b'{"id":3,"method":"item/tool/call","params":{"callId":"c1","tool":"durable_deploy","arguments":'
    async with driven(ctx, double) as ends:
        await until(lambda: "turn/start" in double.methods())
        double.say(head + deep + b"}}")
        await until(lambda: double.answers("3"))
        double.end()
    assert [end.kind for end in ends] == ["completed"]
    assert double.answers("3")[0]["success"] is False
    assert "nested" in str(double.answers("3")[0]["contentItems"])
    assert ran == []


async def test_a_harness_that_dies_is_told_with_its_last_words() -> None:
    journal, double = await begun(MemoryWorld()), Codex()
    with pytest.raises(ExceptionGroup) as group:
        async with driven(context(journal), double):
            await until(lambda: "turn/start" in double.methods())
            double.die(9)
    assert group.group_contains(HarnessDied, match="its last words")
