"""Responses of OpenAI's Responses API: what counts as complete, what a tool call is, and both forms of it."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harness_durable.events import Usage
from harness_durable.gateway import wire
from harness_durable.gateway.wire import Parsed, ToolUse
from harness_durable.testing.provider import Reply, Style, Text, Thinking, wires
from harness_durable.testing.provider import ToolUse as Call
from tests.unit import openai_kit
from tests.unit.openai_kit import PAID, STYLES, answer, frames
from tests.unit.test_gateway_sse import cut

NAME = "openai-responses"
WIRE = wire(NAME)
BIG = '{\n  "id": 9007199254740993,\r\n  "path": "a\\u0000\\ud83d👋 é",\n "n": 1.10, "n": 2\n}'
PATCH = "*** Begin Patch\n+größe 👋\n*** End Patch"
TOOLS: list[dict[str, object]] = [
    {"type": "custom", "name": "apply_patch"},
    {"type": "namespace", "name": "mcp__x", "tools": [{"type": "function", "name": "add"}]},
]
REPLY = Reply(
    (
        Thinking("Hm.\n", "sig=="),
        Text("Grüße 👋 from\u2028here"),
        Call("exec_command", id="call_a", raw=BIG),
        Call("apply_patch", id="call_b", raw=PATCH),
        Call("mcp__x__add", {"a": 1}, id="call_c"),
    ),
    id="resp_1",
)
CALLED = (
    ToolUse("call_a", "exec_command", BIG.encode()),
    ToolUse("call_b", "apply_patch", PATCH.encode()),
    ToolUse("call_c", "mcp__x__add", b'{"a":1}'),
)
Item = dict[str, Any]


def streamed(reply: Reply = REPLY, style: Style | None = None) -> bytes:
    return b"".join(wires.named(NAME).stream(answer(NAME, reply, *TOOLS), style or Style()))


def whole() -> bytes:
    return wires.named(NAME).whole(answer(NAME, REPLY, *TOOLS))


def collected(*chunks: bytes) -> tuple[Parsed, str]:
    return openai_kit.collected(WIRE, chunks)


def call(**more: object) -> Item:
    item = {"type": "function_call", "id": "fc_1", "call_id": "call_1", "name": "bash", "arguments": "{}"}
    return {**item, **more}


def done(item: Item, at: int = 0) -> Item:
    return {"type": "response.output_item.done", "output_index": at, "item": item}


def added(item: Item, at: int = 0) -> Item:
    return {**done(item, at), "type": "response.output_item.added"}


def ended(*items: Item, status: str = "completed", **more: object) -> Item:
    response = {"id": "resp_2", "status": status, "output": list(items), **more}
    return {"type": f"response.{status}", "response": response}


CREATED: Item = {"type": "response.created", "response": {"id": "resp_2", "status": "in_progress"}}


def test_a_stream_is_taken_apart_and_its_tool_inputs_are_the_bytes_that_the_model_wrote() -> None:
    """C121: usage is counted once; what came from the cache is counted apart."""
    parsed, said = collected(streamed())

    assert parsed.complete
    assert parsed.fault is None
    assert (parsed.id, parsed.stop_reason) == ("resp_1", "completed")
    assert parsed.usage == Usage(input=11, output=22, cache_read=44, cache_write=33)
    assert parsed.tools == CALLED
    assert said == "Grüße 👋 from\u2028here"
    assert parsed.body == streamed()


@settings(deadline=None)
@given(style=STYLES, places=st.lists(st.integers(0, 100_000), max_size=60))
def test_wherever_a_stream_is_cut_it_says_the_same(style: Style, places: list[int]) -> None:
    body = streamed(style=style)
    once = collected(body)

    assert once[0].complete
    assert once[0].tools == CALLED
    assert collected(*cut(body, places)) == once


@settings(deadline=None, max_examples=20)
@given(style=STYLES)
def test_byte_by_byte_equals_all_at_once(style: Style) -> None:
    """C140: wherever a character is split."""
    body = streamed(style=style)

    assert collected(*(body[at : at + 1] for at in range(len(body)))) == collected(body)


@settings(deadline=None)
@given(at=st.integers(0, len(streamed()) - 1))
def test_a_stream_that_ends_early_is_incomplete_and_has_no_tool_calls(at: int) -> None:
    """C142: no call without the end of its item and of its response."""
    parsed, _ = collected(streamed()[:at])

    assert not parsed.complete
    assert parsed.tools == ()
    assert parsed.fault is not None
    assert parsed.fault.status == 502


def test_the_items_that_came_alone_are_enough() -> None:
    """Some providers leave the output out at the end; Codex's own double sends no deltas."""
    parsed, _ = collected(frames(CREATED, done(call(), 3), ended()))

    assert parsed.complete
    assert parsed.tools == (ToolUse("call_1", "bash", b"{}"),)
    assert json.loads(WIRE.to_json(parsed.body))["output"] == [call()]


def test_the_output_at_the_end_alone_is_enough() -> None:
    parsed, _ = collected(frames(ended(call())))

    assert parsed.complete
    assert parsed.tools == (ToolUse("call_1", "bash", b"{}"),)


@pytest.mark.parametrize(
    "events",
    [
        [added(call()), ended()],
        [added(call()), done(call(), 1), ended()],
        [done(call()), ended(call(), call(call_id="call_2"))],
    ],
    ids=["begun and never ended", "another one ended", "more at the end"],
)
def test_calls_that_do_not_add_up_make_the_response_incomplete(events: list[Item]) -> None:
    parsed, _ = collected(frames(CREATED, *events))

    assert not parsed.complete
    assert parsed.tools == ()


@pytest.mark.parametrize(
    ("item", "name", "written"),
    [
        (
            {"type": "local_shell_call", "action": {"command": ["ls"]}},
            "local_shell",
            {"action": {"command": ["ls"]}},
        ),
        ({"type": "shell_call", "action": {"commands": ["ls"]}}, "shell", {"action": {"commands": ["ls"]}}),
        (
            {"type": "apply_patch_call", "operation": {"path": "a"}},
            "apply_patch",
            {"operation": {"path": "a"}},
        ),
        ({"type": "tool_search_call", "arguments": {"q": "x"}}, "tool_search", {"arguments": {"q": "x"}}),
        ({"type": "a_later_kind_call", "x": 1}, "a_later_kind", {"x": 1}),
        ({"type": "function_call", "name": "f", "arguments": ""}, "f", {}),
        ({"type": "function_call", "name": "f", "namespace": "mcp__s__", "arguments": "{}"}, "mcp__s__f", {}),
    ],
)
def test_every_kind_of_call_for_the_harness_is_one(item: Item, name: str, written: object) -> None:
    parsed, _ = collected(frames(done({**item, "id": "i", "call_id": "c", "status": "completed"}), ended()))

    [tool] = parsed.tools
    assert (tool.id, tool.name, json.loads(tool.input)) == ("c", name, written)


def test_what_the_provider_runs_itself_is_no_call() -> None:
    items: list[Item] = [
        {"type": "web_search_call", "id": "ws_1", "status": "completed"},
        {"type": "mcp_call", "id": "m", "name": "x", "arguments": "{}", "output": "y"},
        {"type": "tool_search_call", "call_id": None, "execution": "server", "arguments": {}},
        {"type": "shell_call_output", "call_id": "c", "output": []},
    ]
    parsed, _ = collected(frames(*(done(item, at) for at, item in enumerate(items)), ended()))

    assert parsed.complete
    assert parsed.tools == ()


def test_arguments_that_are_no_json_are_kept_as_they_are() -> None:
    parsed, _ = collected(frames(done(call(arguments='{"cmd": "rm -rf /tm')), ended()))

    assert parsed.complete
    assert parsed.tools[0].input == b'{"cmd": "rm -rf /tm'


def test_half_a_surrogate_pair_in_arguments_stays_an_escape() -> None:
    parsed, _ = collected(frames(done(call(arguments='{"a":"\ud83d\udc4b","b":"\ud83d"}')), ended()))

    assert parsed.tools[0].input == '{"a":"👋","b":"\\ud83d"}'.encode()


# ------------------------------------------------------------------------------------------ faults


@pytest.mark.parametrize(
    ("code", "status"),
    [
        ("server_error", 502),
        ("server_is_overloaded", 503),
        ("rate_limit_exceeded", 503),
        ("insufficient_quota", 429),
        ("context_length_exceeded", 400),
        ("invalid_prompt", 400),
        ("image_file_too_large", 400),
        ("unsupported_image_media_type", 400),
        ("who knows", 502),
    ],
)
def test_a_response_that_failed_is_its_error(code: str, status: int) -> None:
    """C146: nothing was sent before, so an honest status can be."""
    failed = ended(status="failed", error={"code": code, "message": "too much"})
    for parsed in (
        collected(frames(CREATED, done(call()), failed))[0],
        collected(frames({"type": "error", "code": code, "message": "too much", "param": None}))[0],
        collected(frames({"type": "error", "error": {"type": code, "message": "too much"}}))[0],
        WIRE.parse_json(json.dumps(failed["response"]).encode()),
    ):
        assert not parsed.complete
        assert parsed.tools == ()
        assert parsed.fault is not None
        assert (parsed.fault.status, parsed.fault.message) == (status, f"{code}: too much")


def test_a_response_that_was_cut_off_is_not_repeated_by_anybody() -> None:
    """It would be paid again, and end the same way."""
    incomplete = ended(call(), status="incomplete", incomplete_details={"reason": "max_output_tokens"})
    for parsed in (
        collected(frames(CREATED, done(call()), incomplete))[0],
        WIRE.parse_json(json.dumps(incomplete["response"]).encode()),
    ):
        assert (parsed.complete, parsed.tools) == (False, ())
        assert parsed.fault is not None
        assert parsed.fault.status == 400
        assert "max_output_tokens" in parsed.fault.message


@pytest.mark.parametrize("status", ["cancelled", "in_progress", "queued", "failed"])
def test_a_response_that_is_not_there_yet_is_none(status: str) -> None:
    parsed = WIRE.parse_json(json.dumps(ended(call(), status=status)["response"]).encode())

    assert (parsed.complete, parsed.tools) == (False, ())
    assert parsed.fault is not None
    assert parsed.fault.status == 502


def test_the_id_tells_whether_anything_of_the_response_had_come() -> None:
    failed = ended(status="failed", error={"code": "invalid_image", "message": "no"})

    assert collected(frames(CREATED, failed))[0].id == ""
    assert collected(frames(CREATED, added(call()), failed))[0].id == "resp_2"


@pytest.mark.parametrize(
    "bad",
    [
        b"data: {oops\n\n",
        b"data: [1]\n\n",
        b'data: {"type":"response.output_item.done","output_index":1}\n\n',
        b'data: {"type":"response.output_item.done","output_index":1,"item":7}\n\n',
        b'data: {"type":"x","v":"\xff"}\n\n',
        b'data: {"type":"response.completed","response":' + b"[" * 50_000 + b"]" * 50_000 + b"}\n\n",
    ],
)
def test_an_event_that_cannot_be_read_makes_the_response_incomplete(bad: bytes) -> None:
    parsed, _ = collected(frames(CREATED, done(call())) + bad + frames(ended(call())))

    assert (parsed.complete, parsed.tools) == (False, ())
    assert parsed.fault is not None
    assert parsed.fault.status == 502


def test_what_follows_the_end_does_not_matter() -> None:
    raw = frames(ended(call()), "[DONE]", "oops")

    assert collected(raw)[0].complete
    assert collected(*(raw[at : at + 1] for at in range(len(raw))))[0].complete


@pytest.mark.parametrize("raw", [b"", b"[]", b"<html>", b"{}", b'{"output":[7]}', b'{"output":["\xff"]}'])
def test_what_is_no_response_is_not_complete(raw: bytes) -> None:
    parsed = WIRE.parse_json(raw)

    assert not parsed.complete
    assert parsed.fault is not None


def test_our_own_error_in_place_of_a_response_is_that_error() -> None:
    body = WIRE.error(429, "busy \ud83d")
    parsed = WIRE.parse_json(body)

    assert json.loads(body)["error"]["type"] == "requests"
    assert parsed.fault is not None
    assert (parsed.fault.status, parsed.fault.message) == (503, "rate_limit_exceeded: busy �")


def test_an_answer_that_was_not_streamed_keeps_its_numbers() -> None:
    raw = b'{"id":"r","output":[{"type":"shell_call","call_id":"c","action":{"n": 12345678901234567890123}}]}'

    assert WIRE.parse_json(raw).tools == (
        ToolUse("c", "shell", b'{"action":{"n": 12345678901234567890123}}'),
    )


# ------------------------------------------------------------------------------------- both forms


@settings(deadline=None, max_examples=20)
@given(style=STYLES)
def test_a_stream_in_the_other_form_is_the_response_that_it_built(style: Style) -> None:
    body = streamed(style=style)

    assert json.loads(WIRE.to_json(body)) == json.loads(whole())
    assert WIRE.parse_json(WIRE.to_json(body)).tools == collected(body)[0].tools


def test_a_response_in_the_form_of_a_stream_says_the_same() -> None:
    before = WIRE.parse_json(whole())
    again, said = collected(WIRE.to_sse(whole()))

    assert again.complete
    assert (again.id, again.usage, again.tools) == (before.id, before.usage, before.tools)
    assert said == "Grüße 👋 from\u2028here"
    assert json.loads(WIRE.to_json(WIRE.to_sse(whole()))) == json.loads(whole())


def test_a_stream_that_we_make_has_the_events_that_harnesses_read() -> None:
    pretty = json.dumps(json.loads(whole()), indent=1, ensure_ascii=False).encode()
    kinds = [line[7:] for line in WIRE.to_sse(pretty).decode().splitlines() if line.startswith("event: ")]

    assert kinds[0] == "response.created"
    assert kinds[-1] == "response.completed"
    for kind in (
        "response.output_item.added",
        "response.content_part.added",
        "response.output_text.delta",
        "response.function_call_arguments.delta",
        "response.custom_tool_call_input.delta",
        "response.reasoning_summary_text.delta",
        "response.output_item.done",
    ):
        assert kind in kinds
    assert collected(WIRE.to_sse(pretty))[0].tools == CALLED


# ---------------------------------------------------------------------------------------- tool ids


@settings(deadline=None, max_examples=30)
@given(style=STYLES)
def test_only_what_holds_the_renamed_call_changes_in_a_stream(style: Style) -> None:
    parsed, _ = collected(streamed(style=style))

    renamed = WIRE.with_tool_ids(parsed, ["call_a", "call_new", "call_c"], streamed=True)

    again, _ = collected(renamed.body)
    assert [tool.id for tool in again.tools] == ["call_a", "call_new", "call_c"]
    assert [tool.input for tool in again.tools] == [tool.input for tool in parsed.tools]
    assert renamed.tools == again.tools
    assert b"call_b" not in renamed.body
    at = parsed.body.index(b"call_b")
    assert (
        renamed.body[: parsed.body.rindex(b"\n", 0, at - 200)]
        == parsed.body[: parsed.body.rindex(b"\n", 0, at - 200)]
    )
    told = json.loads(WIRE.to_json(renamed.body))["output"]
    assert [item["call_id"] for item in told if "call_id" in item] == ["call_a", "call_new", "call_c"]


@pytest.mark.parametrize("ended_with", [[], [call(), call(name="B")]], ids=["no output", "output"])
def test_calls_with_one_id_are_told_apart_by_their_place(ended_with: list[Item]) -> None:
    raw = frames(added(call(), 4), done(call(), 4), done(call(name="B"), 7), ended(*ended_with))
    parsed, _ = collected(raw)

    renamed = WIRE.with_tool_ids(parsed, ["call_1", "fresh"], streamed=True)

    assert [(tool.name, tool.id) for tool in collected(renamed.body)[0].tools] == [
        ("bash", "call_1"),
        ("B", "fresh"),
    ]
    assert renamed.body.count(b"fresh") == (2 if ended_with else 1)
    assert renamed.body.startswith(frames(added(call(), 4), done(call(), 4)))


def test_calls_with_one_id_are_told_apart_where_nothing_was_streamed() -> None:
    raw = json.dumps(ended(call(), {"type": "message", "content": []}, call(name="B"))["response"]).encode()

    renamed = WIRE.with_tool_ids(WIRE.parse_json(raw), ["call_1", "fresh"], streamed=False)

    assert [item.get("call_id") for item in json.loads(renamed.body)["output"]] == ["call_1", None, "fresh"]
    same = WIRE.with_tool_ids(WIRE.parse_json(raw), ["call_1", "call_1"], streamed=False)
    assert same.body == raw, "nothing that stays is spelled anew"


def test_calls_that_are_only_told_at_the_end_can_be_renamed() -> None:
    parsed, _ = collected(frames(CREATED, ended(call(call_id=""))))

    renamed = WIRE.with_tool_ids(parsed, ["fresh"], streamed=True)

    assert collected(renamed.body)[0].tools == (ToolUse("fresh", "bash", b"{}"),)


def test_usage_without_details_is_read_and_nothing_is_negative() -> None:
    counted = {"input_tokens": 5, "output_tokens": 7, "input_tokens_details": {"cached_tokens": 9}}
    parsed, _ = collected(frames(ended(usage=counted)))

    assert parsed.usage == Usage(0, 7, 9)
    assert PAID.output_tokens == 22


def test_fresh_ids_do_not_repeat() -> None:
    assert len({WIRE.fresh_tool_id() for _ in range(100)}) == 100
