"""Driving a harness that is not there: a double says what it is told to, and writes down what it hears."""

from __future__ import annotations

import json
import logging
import time
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager

import anyio
import pytest
from anyio.abc import ByteStream

from harness_durable import clock
from harness_durable.adapter import Harness, LifeContext, TurnEnd
from harness_durable.errors import HarnessDied, HarnessStuck
from harness_durable.events import Rung
from harness_durable.journal import Inbox, Journal
from harness_durable.sandbox import Exit, Request
from harness_durable.tools.host import ToolHost
from harness_durable_adapters.claude_code.drive import drive
from harness_durable_adapters.claude_code.naming import message_uuid
from harness_durable_adapters.common.conversation import SILENCE_SECONDS
from harness_durable_adapters.common.shapes import Json, mapping
from harness_durable_adapters.common.spoken import GRACE_SECONDS
from tests.unit.memory_world import MemoryWorld
from tests.unit.session_kit import AGENT, SESSION, asked, begun


class Double:
    """A link to a harness whose output is a list of frames."""

    def __init__(self, said: bytes = b"") -> None:
        self.output_bytes = b""
        self.heard = bytearray(said)
        self.exit: Exit | None = None
        self._changed = anyio.Event()

    token = "token"

    @property
    def stdin_offset(self) -> int:
        return len(self.heard)

    def say(self, *frames: Json | bytes) -> None:
        for frame in frames:
            self.output_bytes += (frame if isinstance(frame, bytes) else json.dumps(frame).encode()) + b"\n"
        self._changed.set()
        self._changed = anyio.Event()

    def die(self, code: int) -> None:
        self.exit = Exit(code)
        self.say()

    @property
    def frames(self) -> list[Json]:
        return [json.loads(line) for line in bytes(self.heard).splitlines()]

    def answers(self, number: str) -> list[Json]:
        found = [mapping(frame.get("response")) for frame in self.frames]
        return [response for response in found if response.get("request_id") == number]

    async def said(self) -> bytes:
        return bytes(self.heard)

    async def write(self, frame: bytes) -> None:
        self.heard += frame
        for line in frame.splitlines():
            if json.loads(line).get("request_id") == "durable-init":
                self.say(INITIALIZED)

    async def output(self, offset: int = 0) -> AsyncIterator[tuple[int, bytes]]:
        while True:
            while offset < len(self.output_bytes):
                chunk = self.output_bytes[offset : offset + 1000]
                offset += len(chunk)
                yield offset, chunk
            if self.exit is not None:
                return
            await self._changed.wait()

    async def errors(self, tail: int = 4096) -> bytes:
        return b"its last words"

    async def requests(self) -> AsyncIterator[Request]:
        for request in list[Request]():
            yield request

    async def dial(self, port: int) -> ByteStream:
        raise anyio.ClosedResourceError(f"nobody listens at {port}")

    async def pid(self) -> int:
        return 1

    async def shutdown(self) -> None: ...
    async def aclose(self) -> None: ...


INITIALIZED: Json = {
    "type": "control_response",
    "response": {"subtype": "success", "request_id": "durable-init", "response": {}},
}
RESULT: Json = {"type": "result", "subtype": "success", "is_error": False, "result": "done"}


def hook(number: str, name: str, call: str, **event: object) -> Json:
    return {
        "type": "control_request",
        "request_id": number,
        "request": {
            "subtype": "hook_callback",
            "callback_id": name,
            "input": {"hook_event_name": name, "tool_name": "Bash", "tool_use_id": call, **event},
        },
    }


def echo(journal: Journal) -> Json:
    """The harness has taken the turn's message up."""
    return {"type": "user", "uuid": message_uuid(journal.state.native_id, "m-1"), "isReplay": True}


def context(journal: Journal, rung: Rung = "start") -> LifeContext:
    return LifeContext(
        session=SESSION,
        life="L1",
        turn="m-1",
        rung=rung,
        agent=AGENT,
        harness=Harness("", "2.1.332"),
        journal=journal,
        tools=ToolHost((), journal, SESSION, "L1", custom_name=lambda name: f"mcp__durable__{name}"),
        token="token",
        home="/home/agent",
        cwd="/ws",
        ready=anyio.Event(),
    )


@asynccontextmanager
async def driven(ctx: LifeContext, double: Double) -> AsyncGenerator[list[TurnEnd]]:
    """The driver works on the double while the body runs; its end is in the list afterwards."""
    ends: list[TurnEnd] = []

    async def run() -> None:
        ends.append(await drive(ctx, double))

    with anyio.fail_after(20):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(run)
            yield ends


async def until(condition: Callable[[], object]) -> None:
    deadline = time.monotonic() + 10
    while not condition():
        assert time.monotonic() < deadline, "waited in vain"
        await anyio.sleep(0.005)


async def test_a_message_is_sent_once_and_the_barrier_stands_before_it() -> None:
    journal, double = await begun(MemoryWorld()), Double()
    ctx = context(journal)
    async with driven(ctx, double) as ends:
        await until(lambda: any(frame["type"] == "user" for frame in double.frames))
        assert ctx.ready.is_set()
        double.say(echo(journal), RESULT)
    assert [frame["type"] for frame in double.frames] == ["control_request", "user"]
    assert ends == [TurnEnd("completed", text="done")]
    assert journal.state.messages["m-1"].status == "delivered"


async def test_a_takeover_sends_nothing_again_and_answers_what_is_open() -> None:
    journal = await begun(MemoryWorld())
    await asked(journal, ("toolu_1", "Bash", {}), ("toolu_2", "Bash", {}), origin="builtin")
    first = Double()
    async with driven(context(journal), first) as _:
        await until(lambda: any(frame["type"] == "user" for frame in first.frames))
        first.say(echo(journal), hook("h1", "PreToolUse", "toolu_1"))
        await until(lambda: first.answers("h1"))
        first.say(RESULT)
    second = Double(bytes(first.heard))
    second.output_bytes = first.output_bytes.replace(json.dumps(RESULT).encode() + b"\n", b"")
    second.say(hook("h2", "PreToolUse", "toolu_2"))
    async with driven(context(journal, "attach"), second):
        await until(lambda: second.answers("h2"))
        second.say(RESULT)
    assert len(second.answers("h1")) == len(second.answers("h2")) == 1
    assert sum(frame["type"] == "user" for frame in second.frames) == 1


async def test_a_request_that_was_taken_back_releases_nothing() -> None:
    journal = await begun(MemoryWorld())
    await asked(journal, ("toolu_1", "Bash", {}), origin="builtin")
    double = Double(b'{"type":"control_request","request_id":"durable-init","request":{}}\n')
    cancel: Json = {"type": "control_cancel_request", "request_id": "h1"}
    double.say(INITIALIZED, hook("h1", "PreToolUse", "toolu_1"), cancel)
    async with driven(context(journal, "attach"), double):
        await until(lambda: any(frame["type"] == "user" for frame in double.frames))
        double.say(echo(journal), RESULT)
    assert double.answers("h1") == []
    assert journal.state.tool_calls["toolu_1"].released_in is None


async def test_garbage_on_the_output_is_reported_and_passed_over(caplog: pytest.LogCaptureFixture) -> None:
    journal, double = await begun(MemoryWorld()), Double()
    with caplog.at_level(logging.WARNING):
        async with driven(context(journal), double) as ends:
            double.say(b"\0\0\0", b"{torn", b"[1]", {"type": "of a later version"}, echo(journal))
            await until(lambda: journal.state.messages["m-1"].status == "delivered")
            double.say(RESULT)
    assert ends[0].kind == "completed"
    assert caplog.text.count("unreadable output: 3 lines") == 1


async def test_an_unknown_request_is_refused_and_not_left_waiting() -> None:
    journal, double = await begun(MemoryWorld()), Double()
    async with driven(context(journal), double):
        double.say({"type": "control_request", "request_id": "x", "request": {"subtype": "novel"}})
        await until(lambda: double.answers("x"))
        await until(lambda: any(frame["type"] == "user" for frame in double.frames))
        double.say(echo(journal), RESULT)
    assert double.answers("x")[0]["subtype"] == "error"


async def test_a_call_that_is_not_in_the_log_is_denied() -> None:
    journal, double = await begun(MemoryWorld()), Double()
    async with driven(context(journal), double):
        double.say(hook("h1", "PreToolUse", "toolu_never"))
        await until(lambda: double.answers("h1"))
        await until(lambda: any(frame["type"] == "user" for frame in double.frames))
        double.say(echo(journal), RESULT)
    assert "deny" in json.dumps(double.answers("h1"))


async def test_background_work_is_brought_to_the_foreground() -> None:
    journal, double = await begun(MemoryWorld()), Double()
    await asked(journal, ("toolu_1", "Bash", {}), origin="builtin")
    async with driven(context(journal), double):
        double.say(
            hook("h1", "PreToolUse", "toolu_1", tool_input={"command": "x", "run_in_background": True})
        )
        await until(lambda: double.answers("h1"))
        await until(lambda: any(frame["type"] == "user" for frame in double.frames))
        double.say(echo(journal), RESULT)
    assert '"run_in_background": false' in json.dumps(double.answers("h1"))


async def test_c032_what_the_harness_did_not_write_down_is_taken_from_its_output() -> None:
    journal, double = await begun(MemoryWorld()), Double()
    native = journal.state.native_id
    said: Json = {"id": "msg_1", "role": "assistant", "content": [{"type": "text", "text": "done"}]}
    async with driven(context(journal), double):
        await until(lambda: any(frame["type"] == "user" for frame in double.frames))
        double.say(echo(journal), {"type": "assistant", "uuid": "a-1", "message": said}, RESULT)
    lines = [json.loads(line) async for line in journal.transcript_lines(f"{native}.jsonl")]
    assert [(line["uuid"], line["message"]) for line in lines] == [("a-1", said)]


async def test_c073_lines_of_another_session_go_into_a_file_of_their_own() -> None:
    journal, double = await begun(MemoryWorld()), Double()
    native = journal.state.native_id
    lines: Sequence[Json] = [{"type": "mode", "sessionId": native}, {"type": "mode", "sessionId": "other"}]
    async with driven(context(journal), double):
        await until(lambda: any(frame["type"] == "user" for frame in double.frames))
        path = f"/home/agent/claude/projects/x/{native}.jsonl"
        double.say({"type": "transcript_mirror", "filePath": path, "entries": lines}, echo(journal), RESULT)
    assert set(journal.state.transcripts) == {f"{native}.jsonl", "other.jsonl"}


async def test_a_harness_that_ends_without_a_result_has_died() -> None:
    journal, double = await begun(MemoryWorld()), Double()
    double.die(-9)
    with pytest.raises(HarnessDied, match="its last words") as died:
        await drive(context(journal), double)
    assert died.value.code == -9


async def test_a_takeover_does_not_end_the_turn_with_what_came_before_a_steer() -> None:
    """The harness ended, took a steer up, and works on it: its first end is no end any more."""
    world = MemoryWorld()
    journal = await begun(world)
    steer = await steered(world, journal)
    said: Sequence[Json] = [
        {"type": "control_request", "request_id": "durable-init", "request": {}},
        {"type": "user", "uuid": echo(journal)["uuid"]},
        {"type": "user", "uuid": steer["uuid"]},
    ]
    line: Json = {"type": "user", "uuid": steer["uuid"], "message": {"role": "user", "content": "left"}}
    path = f"{journal.state.native_id}.jsonl"
    await journal.transcript_appended("L1", {path: [json.dumps(line).encode()]}, offset=1)
    double = Double(b"".join(json.dumps(frame).encode() + b"\n" for frame in said))
    double.say(INITIALIZED, echo(journal), RESULT, steer)
    async with driven(context(journal, "attach"), double) as ends:
        await until(lambda: journal.state.messages["s-1"].status == "delivered")
        double.say({**RESULT, "result": "went left"})
    assert ends == [TurnEnd("completed", text="went left")]


async def test_a_steer_that_was_taken_up_has_all_the_time_it_needs(monkeypatch: pytest.MonkeyPatch) -> None:
    now, looks = 0.0, 0

    async def quick(seconds: float) -> None:
        nonlocal looks
        looks += 1
        await anyio.sleep(0.001)

    monkeypatch.setattr(clock, "monotonic", lambda: now)
    monkeypatch.setattr(clock, "sleep", quick)
    world = MemoryWorld()
    journal, double = await begun(world), Double()
    async with driven(context(journal), double) as ends:
        await until(lambda: any(frame["type"] == "user" for frame in double.frames))
        steer = await steered(world, journal)
        double.say(echo(journal), {"type": "assistant", "uuid": "a-1", "parent_tool_use_id": "x"})
        await until(lambda: any(frame.get("uuid") == steer["uuid"] for frame in double.frames))
        double.say(RESULT, steer)
        await until(lambda: journal.state.messages["s-1"].status == "delivered")
        now, seen = GRACE_SECONDS + 1, looks
        await until(lambda: looks > seen + 3)
        double.say({**RESULT, "result": "went left"})
    assert ends == [TurnEnd("completed", text="went left")]


@asynccontextmanager
async def aging(
    monkeypatch: pytest.MonkeyPatch, ctx: LifeContext, double: Double
) -> AsyncGenerator[Callable[[float], Awaitable[bool]]]:
    """A life whose time is ours: the function lets it pass, and says whether the harness is still waited
    for."""
    now, looks = 0.0, 0

    async def quick(seconds: float) -> None:
        nonlocal looks
        looks += 1
        await anyio.sleep(0.001)

    monkeypatch.setattr(clock, "monotonic", lambda: now)
    monkeypatch.setattr(clock, "sleep", quick)
    stuck = list[HarnessStuck]()

    async def run() -> None:
        try:
            await drive(ctx, double)
        except HarnessStuck as error:
            stuck.append(error)

    async def passed(seconds: float) -> bool:
        nonlocal now
        now, seen = now + seconds, looks
        await until(lambda: stuck or looks > seen + 3)
        return not stuck

    with anyio.fail_after(20):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(run)
            await until(lambda: any(frame["type"] == "user" for frame in double.frames))
            yield passed
            tasks.cancel_scope.cancel()


@pytest.mark.parametrize(("tool", "waited_for"), [("Bash", True), ("Agent", False), ("Task", False)])
async def test_a_harness_that_is_silent_within_a_subagent_is_found(
    monkeypatch: pytest.MonkeyPatch, tool: str, waited_for: bool
) -> None:
    journal, double = await begun(MemoryWorld()), Double()
    await asked(journal, ("toolu_1", tool, {}), origin="builtin")
    async with aging(monkeypatch, context(journal), double) as passed:
        double.say(echo(journal), hook("h1", "PreToolUse", "toolu_1"))
        await until(lambda: double.answers("h1"))
        assert await passed(SILENCE_SECONDS + 1) == waited_for


async def test_a_provider_that_asks_to_wait_is_not_taken_for_a_harness_that_hangs(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """C145: a life is not given up while it waits to ask again."""
    journal, double = await begun(MemoryWorld()), Double()
    retry: Json = {"type": "system", "subtype": "api_retry", "error_status": 429, "retry_delay_ms": 3_600_000}
    async with aging(monkeypatch, context(journal), double) as passed:
        double.say(retry, echo(journal))
        await until(lambda: journal.state.messages["m-1"].status == "delivered")
        assert await passed(3600 + SILENCE_SECONDS - 1)
        assert not await passed(2)


@pytest.mark.parametrize(("error", "transient"), [("server_error", True), ("", False)])
async def test_c145_the_harness_s_own_retries_are_shown_and_a_good_answer_ends_them(
    error: str, transient: bool
) -> None:
    """C151: an end after its tries is one that may pass; with a good answer since, they are forgotten."""
    retry: Json = {
        "type": "system",
        "subtype": "api_retry",
        "attempt": 1,
        "max_retries": 15,
        "retry_delay_ms": 600,
        "error_status": 529,
        "error": "overloaded",
    }
    own: Json = {"type": "assistant", "uuid": "a-1", **({"error": error} if error else {})}
    failure: Json = {**RESULT, "is_error": True, "api_error_status": 529, "result": "API Error: 529"}
    journal, double, said = await begun(MemoryWorld()), Double(), list[str]()
    ctx = context(journal)
    ctx.progress = said.append
    async with driven(ctx, double) as ends:
        await until(lambda: any(frame["type"] == "user" for frame in double.frames))
        double.say(echo(journal), retry, own, failure)
    assert said == ["waiting 1 s before attempt 2 of 16: 529 overloaded"]
    assert (ends[0].kind, ends[0].code, ends[0].transient) == ("failed", "api_529", transient)


async def test_c145_what_is_not_tried_again_is_not_said_to_be_waited_for() -> None:
    journal, double, said = await begun(MemoryWorld()), Double(), list[str]()
    ctx = context(journal)
    ctx.progress = said.append
    retry: Json = {
        "type": "system",
        "subtype": "api_retry",
        "attempt": 1,
        "max_retries": 15,
        "error_status": 401,
    }
    async with driven(ctx, double) as ends:
        double.say(retry)
    assert (ends[0].code, ends[0].transient, said) == ("api_401", False, [])


async def steered(world: MemoryWorld, journal: Journal) -> Json:
    """A steer is accepted; the frame with which the harness takes it up."""
    await (await Inbox.open(world, SESSION)).accept("s-1", "left", "steer")
    await journal.still_ours()
    return {"type": "user", "uuid": message_uuid(journal.state.native_id, "s-1"), "isReplay": True}
