"""C119 at the live edge: what a harness says on its output may be nested more deeply than a parser can
follow. It is kept as it came, what it asks is answered, and a call with such an input does not run."""

from __future__ import annotations

import dataclasses
import json
import logging

import pytest

from harness_durable.events import ToolCompleted
from harness_durable.journal import Journal
from harness_durable.tools import tool
from harness_durable.tools.arguments import MAX_DEPTH, too_deep
from harness_durable_adapters.claude_code.frames import outlined
from harness_durable_adapters.claude_code.gate import TOO_DEEP
from harness_durable_adapters.claude_code.naming import main_file
from harness_durable_adapters.common.shapes import Json, decode, mapping
from tests.unit.memory_world import MemoryWorld
from tests.unit.session_kit import asked, begun, host
from tests.unit.test_claude_drive import INITIALIZED, RESULT, Double, context, driven, echo, hook, until

DEPTHS = [MAX_DEPTH, 900, 1000, 10_000]
"""Just too deep together with what is around it; near the edge of Python's own parser; far beyond it."""

_SHAPES = {"lists": (b"[", b"]"), "objects": (b'{"a":', b"}"), "both": (b'[{"a":', b"}]")}


def nested(depth: int, shape: str = "both") -> bytes:
    opening, closing = _SHAPES[shape]
    levels = depth // 2 if shape == "both" else depth
    return opening * levels + b"1" + closing * levels


def spelled(frame: Json, deep: bytes) -> bytes:
    """The frame with a deep value in the place of ``"DEEP"``."""
    return json.dumps(frame).encode().replace(b'"DEEP"', deep)


def call(number: str, id: str, arguments: object) -> Json:  # noqa: A002 (the protocol's word)
    """A call of a custom tool."""
    params = {"name": "note", "arguments": arguments, "_meta": {"claudecode/toolUseId": id}}
    message: Json = {"jsonrpc": "2.0", "id": 7, "method": "tools/call", "params": params}
    body: Json = {"subtype": "mcp_message", "server_name": "durable", "message": message}
    return {"type": "control_request", "request_id": number, "request": body}


async def lines(journal: Journal) -> list[bytes]:
    return [line async for line in journal.transcript_lines(main_file(journal.state.native_id))]


async def finish(journal: Journal, double: Double) -> None:
    await until(lambda: any(frame["type"] == "user" for frame in double.frames))
    double.say(echo(journal), RESULT)


@pytest.mark.parametrize("depth", DEPTHS)
async def test_c119_a_hook_for_a_deep_call_is_answered_and_the_call_does_not_run(
    depth: int, caplog: pytest.LogCaptureFixture
) -> None:
    journal, double = await begun(MemoryWorld()), Double()
    await asked(journal, ("toolu_1", "Bash", nested(depth)), origin="builtin")
    question = hook("h1", "PreToolUse", "toolu_1", tool_input={"command": "DEEP"})
    with caplog.at_level(logging.WARNING):
        async with driven(context(journal), double) as ends:
            double.say(spelled(question, nested(depth)))
            await until(lambda: double.answers("h1"))
            await finish(journal, double)
    (answer,) = double.answers("h1")
    decision = mapping(mapping(answer["response"])["hookSpecificOutput"])
    assert (decision["permissionDecision"], decision["permissionDecisionReason"]) == ("deny", TOO_DEEP)
    known = journal.state.tool_calls["toolu_1"]
    assert (known.outcome, known.released_in) == ("not_started", None)
    assert ends[0].kind == "completed"
    assert "1 frames were nested too deeply" in caplog.text


async def test_c119_a_takeover_answers_a_deep_request_too_and_once() -> None:
    journal = await begun(MemoryWorld())
    await asked(journal, ("toolu_1", "Bash", nested(10_000)), origin="builtin")
    double = Double(b'{"type":"control_request","request_id":"durable-init","request":{}}\n')
    question = spelled(hook("h1", "PreToolUse", "toolu_1", tool_input=["DEEP"]), nested(10_000))
    cancelled = spelled(hook("h2", "PreToolUse", "toolu_1", tool_input=["DEEP"]), nested(10_000))
    double.say(
        INITIALIZED,
        question,
        cancelled,
        {"type": "control_cancel_request", "request_id": "h2"},
    )
    async with driven(context(journal, "attach"), double):
        await until(lambda: double.answers("h1"))
        await finish(journal, double)
    assert (len(double.answers("h1")), len(double.answers("h2"))) == (1, 0)
    again = Double(bytes(double.heard))
    again.output_bytes = double.output_bytes
    async with driven(context(journal, "attach"), again):
        pass
    assert len(again.answers("h1")) == 1


@pytest.mark.parametrize("depth", DEPTHS)
async def test_c119_a_deep_result_of_a_tool_that_ran_is_its_outcome_as_it_came(depth: int) -> None:
    world = MemoryWorld()
    journal, double = await begun(world), Double()
    await asked(journal, ("toolu_1", "Bash", {}), origin="builtin")
    async with driven(context(journal), double):
        double.say(hook("h1", "PreToolUse", "toolu_1"))
        await until(lambda: double.answers("h1"))
        after = hook("h2", "PostToolUse", "toolu_1", tool_response={"stdout": "DEEP"})
        double.say(spelled(after, nested(depth)))
        await until(lambda: double.answers("h2"))
        await finish(journal, double)
    assert double.answers("h2")[0]["subtype"] == "success"
    event = await journal.reader.event(journal.state.tool_calls["toolu_1"].outcome_seq)
    assert isinstance(event, ToolCompleted)
    assert nested(depth) in await journal.reader.content(event.result)
    assert event.detail is None


@pytest.mark.parametrize("depth", DEPTHS)
async def test_c119_deep_arguments_of_a_custom_tool_are_an_error_of_that_call(depth: int) -> None:
    ran: list[object] = []

    @tool(replay="never")
    def note(text: object) -> str:
        ran.append(text)
        return "noted"

    journal, double = await begun(MemoryWorld()), Double()
    arguments = b'{"text":' + nested(depth) + b"}"
    await asked(journal, ("toolu_1", "note", arguments))
    ctx = dataclasses.replace(context(journal), tools=host(journal, [note]))
    async with driven(ctx, double):
        double.say(spelled(call("c1", "toolu_1", {"text": "DEEP"}), nested(depth)))
        await until(lambda: double.answers("c1"))
        await finish(journal, double)
    reply = json.dumps(double.answers("c1")[0])
    assert '"isError": true' in reply
    assert "levels deep" in reply
    assert ran == []
    assert journal.state.tool_calls["toolu_1"].outcome == "failed"


async def test_c119_arguments_that_are_only_deep_together_with_their_frame_run() -> None:
    ran: list[object] = []

    @tool(replay="never")
    def note(text: object) -> str:
        ran.append(text)
        return "noted"

    journal, double = await begun(MemoryWorld()), Double()
    inner = nested(MAX_DEPTH - 2, "lists")
    await asked(journal, ("toolu_1", "note", b'{"text":' + inner + b"}"))
    ctx = dataclasses.replace(context(journal), tools=host(journal, [note]))
    async with driven(ctx, double):
        double.say(spelled(call("c1", "toolu_1", {"text": "DEEP"}), inner))
        await until(lambda: double.answers("c1"))
        await finish(journal, double)
    assert ran == [json.loads(inner)]


@pytest.mark.parametrize("shape", _SHAPES)
@pytest.mark.parametrize("depth", DEPTHS)
async def test_c119_a_deep_line_of_the_transcript_is_kept_byte_for_byte(depth: int, shape: str) -> None:
    journal, double = await begun(MemoryWorld()), Double()
    native = journal.state.native_id
    line: Json = {"type": "user", "uuid": echo(journal)["uuid"], "sessionId": native, "x": "DEEP"}
    other: Json = {"type": "mode", "sessionId": native}
    path = f"/home/agent/claude/projects/x/{native}.jsonl"
    frame: Json = {"type": "transcript_mirror", "filePath": path, "entries": ["LINE", other]}
    raw = spelled(line, nested(depth, shape))
    async with driven(context(journal), double):
        await until(lambda: any(frame["type"] == "user" for frame in double.frames))
        double.say(json.dumps(frame).encode().replace(b'"LINE"', raw))
        await until(lambda: journal.state.messages["m-1"].status == "delivered")
        double.say(RESULT)
    kept = await lines(journal)
    assert kept[0] == raw
    assert decode(kept[1]) == other


async def test_c119_the_outcome_that_a_deep_line_tells_is_recorded() -> None:
    journal, double = await begun(MemoryWorld()), Double()
    await asked(journal, ("toolu_1", "Bash", {}), origin="builtin")
    native = journal.state.native_id
    block: Json = {"type": "tool_result", "tool_use_id": "toolu_1", "content": "told", "is_error": False}
    line: Json = {
        "type": "user",
        "uuid": "u-1",
        "sessionId": native,
        "message": {"role": "user", "content": [block]},
        "toolUseResult": "DEEP",
    }
    frame: Json = {"type": "transcript_mirror", "filePath": f"/x/{native}.jsonl", "entries": [line]}
    async with driven(context(journal), double):
        double.say(hook("h1", "PreToolUse", "toolu_1"))
        await until(lambda: double.answers("h1"))
        double.say(spelled(frame, nested(10_000)))
        await until(lambda: not journal.state.tool_calls["toolu_1"].open)
        await finish(journal, double)
    event = await journal.reader.event(journal.state.tool_calls["toolu_1"].outcome_seq)
    assert isinstance(event, ToolCompleted)
    assert await journal.reader.text(event.result) == "told"


async def test_c119_what_is_deep_and_was_never_mirrored_is_taken_from_the_output() -> None:
    journal, double = await begun(MemoryWorld()), Double()
    use: Json = {"type": "tool_use", "id": "toolu_1", "name": "Bash", "input": {"command": "DEEP"}}
    said: Json = {"id": "msg_1", "role": "assistant", "content": [use]}
    frame: Json = {"type": "assistant", "uuid": "a-1", "message": said}
    async with driven(context(journal), double):
        await until(lambda: any(frame["type"] == "user" for frame in double.frames))
        double.say(echo(journal), spelled(frame, nested(10_000)), RESULT)
    (line,) = await lines(journal)
    assert spelled(said, nested(10_000)).replace(b" ", b"") in line.replace(b" ", b"")
    assert b'"uuid":"a-1"' in line


@pytest.mark.parametrize("rest", [b"", b"]" * 9_999 + b"}", b"x" + b"]" * 10_000 + b"}"])
async def test_c119_depth_excuses_nothing(rest: bytes, caplog: pytest.LogCaptureFixture) -> None:
    """What is no JSON is no frame, however deep it is."""
    journal, double = await begun(MemoryWorld()), Double()
    with caplog.at_level(logging.WARNING):
        async with driven(context(journal), double) as ends:
            double.say(b'{"type":"control_request","request_id":"x","request":' + b"[" * 10_000 + rest)
            await finish(journal, double)
    assert ends[0].kind == "completed"
    assert double.answers("x") == []
    assert "1 lines that are no frames" in caplog.text


@pytest.mark.parametrize("place", ["first", "last"])
def test_c119_a_frame_is_outlined_at_any_depth_with_half_a_character_in_it(place: str) -> None:
    """Half a surrogate pair takes another way through the decoders. No depth may fall between them."""
    for depth in [*range(150, 260, 7), *range(940, 1010), 5000]:
        half = b'"\\ud83d",'
        inner = b"[" + (half if place == "first" else b"") + nested(depth, "lists")
        inner += (b"," + half[:-1] if place == "last" else b"") + b"]"
        line = (
            b'{"type":"control_request","request_id":"r-1","request":{"input":{"tool_input":' + inner + b"}}}"
        )
        found = decode(line) or outlined(line)
        assert found is not None
        assert found["request_id"] == "r-1"
        deep = mapping(mapping(found["request"])["input"])["tool_input"]
        assert isinstance(deep, bytes) == too_deep(inner)
