"""Responses of OpenAI's Chat Completions API: what counts as complete, what a call is, and both forms."""

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
from tests.unit.openai_kit import STYLES, answer, frames
from tests.unit.test_gateway_sse import cut

NAME = "openai-chat"
WIRE = wire(NAME)
BIG = '{\n  "id": 9007199254740993,\r\n  "path": "a\\u0000\\ud83d👋 é",\n "n": 1.10, "n": 2\n}'
REPLY = Reply(
    (
        Thinking("Hm.\n"),
        Text("Grüße 👋 from\u2028here"),
        Call("bash", id="call_a", raw=BIG),
        Call("read", id="call_b"),
    ),
    id="chatcmpl-1",
)
CALLED = ToolUse("call_a", "bash", BIG.encode()), ToolUse("call_b", "read", b"{}")
Json = dict[str, Any]


def streamed(reply: Reply = REPLY, style: Style | None = None) -> bytes:
    return b"".join(wires.named(NAME).stream(answer(NAME, reply), style or Style()))


def whole() -> bytes:
    return wires.named(NAME).whole(answer(NAME, REPLY))


def collected(*chunks: bytes) -> tuple[Parsed, str]:
    return openai_kit.collected(WIRE, chunks)


def chunk(delta: Json | None = None, finish: str | None = None, index: int = 0, **more: object) -> Json:
    choice = {"index": index, "delta": delta or {}, "finish_reason": finish}
    return {"id": "c1", "model": "m", "choices": [choice], **more}


def calls(*deltas: Json) -> Json:
    return chunk({"tool_calls": list(deltas)})


def begun(index: int | None, name: str, written: str = "", call: str | None = "id") -> Json:
    delta: Json = {"type": "function", "function": {"name": name, "arguments": written}}
    if call is not None:
        delta["id"] = call
    return delta if index is None else {"index": index, **delta}


def more(index: int, written: str, **members: object) -> Json:
    return {"index": index, "function": {"arguments": written}, **members}


END = chunk(finish="tool_calls")


def test_a_stream_is_taken_apart_and_its_tool_inputs_are_the_bytes_that_the_model_wrote() -> None:
    """C121: usage is counted once; what came from the cache is counted apart."""
    parsed, said = collected(streamed())

    assert parsed.complete
    assert parsed.fault is None
    assert (parsed.id, parsed.stop_reason) == ("chatcmpl-1", "tool_calls")
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


FINISH = streamed().index(b"\n\n", streamed().index(b'"finish_reason":"tool_calls"')) + 2
"""Where the end of the message has come, and its usage and ``[DONE]`` have not."""


@settings(deadline=None)
@given(at=st.integers(0, FINISH - 1))
def test_a_stream_that_ends_early_is_incomplete_and_has_no_tool_calls(at: int) -> None:
    """C142: no call without the end of its message."""
    parsed, _ = collected(streamed()[:at])

    assert not parsed.complete
    assert parsed.tools == ()
    assert parsed.fault is not None
    assert parsed.fault.status == 502


@settings(deadline=None)
@given(at=st.integers(FINISH, len(streamed())))
def test_the_reason_to_finish_is_the_end_also_without_done(at: int) -> None:
    parsed, _ = collected(streamed()[:at])

    assert parsed.complete
    assert parsed.tools == CALLED


def test_done_without_a_reason_to_finish_is_a_stream_that_was_cut() -> None:
    """A proxy writes it after whatever it got."""
    parsed, _ = collected(frames(calls(begun(0, "bash")), "[DONE]"))

    assert (parsed.complete, parsed.tools) == (False, ())


def test_every_choice_must_have_finished() -> None:
    both = [chunk({"content": "a"}), chunk({"content": "b"}, index=1), chunk(finish="stop")]

    assert not collected(frames(*both))[0].complete
    assert collected(frames(*both, chunk(finish="stop", index=1)))[0].complete


# -------------------------------------------------------------------------------------- tool calls


def test_parallel_calls_grow_beside_each_other() -> None:
    raw = frames(
        calls(begun(1, "read", call="b"), begun(0, "bash", '{"a"', call="a")),
        calls(more(0, ':"é')),
        calls(more(1, '{"p":'), more(0, '👋"}')),
        calls(more(1, "1}")),
        END,
    )
    parsed, _ = collected(raw)

    assert parsed.tools == (
        ToolUse("a", "bash", '{"a":"é👋"}'.encode()),
        ToolUse("b", "read", b'{"p":1}'),
    )
    for at in range(1, len(raw)):
        assert collected(raw[:at], raw[at:])[0] == parsed


def test_calls_without_an_index_begin_with_their_names() -> None:
    """As some providers send them: each whole, all with one id."""
    raw = frames(calls(begun(None, "A", '{"x":1}')), calls(begun(None, "B", "{}"), begun(None, "C")), END)
    parsed, _ = collected(raw)

    assert [(tool.name, tool.input) for tool in parsed.tools] == [
        ("A", b'{"x":1}'),
        ("B", b"{}"),
        ("C", b"{}"),
    ]
    renamed = WIRE.with_tool_ids(parsed, ["id", "n1", "n2"], streamed=True)
    assert [tool.id for tool in collected(renamed.body)[0].tools] == ["id", "n1", "n2"]


def test_names_and_ids_that_are_repeated_in_every_delta_count_once() -> None:
    raw = frames(calls(begun(0, "bash", '{"a":')), calls(begun(0, "bash", "1}")), END)

    assert collected(raw)[0].tools == (ToolUse("id", "bash", b'{"a":1}'),)


def test_a_custom_call_is_the_text_that_the_model_wrote() -> None:
    custom = {"index": 0, "id": "c", "type": "custom", "custom": {"name": "patch", "input": "*** Be"}}
    raw = frames(calls(custom), calls({"index": 0, "custom": {"input": "gin\n"}}), END)
    parsed, _ = collected(raw)

    assert parsed.tools == (ToolUse("c", "patch", b"*** Begin\n"),)
    assert WIRE.parse_json(WIRE.to_json(raw)).tools == parsed.tools


def test_arguments_that_are_an_object_are_its_text() -> None:
    delta = {"index": 0, "id": "c", "function": {"name": "f", "arguments": {"n": 1}}}
    parsed, _ = collected(frames(calls(delta), END))

    assert parsed.tools == (ToolUse("c", "f", b'{"n": 1}'),)


def test_arguments_that_are_no_json_are_kept_as_they_are() -> None:
    parsed, _ = collected(frames(calls(begun(0, "bash", '{"c": "rm -rf /tm')), chunk(finish="length")))

    assert (parsed.complete, parsed.stop_reason) == (True, "length")
    assert parsed.tools[0].input == b'{"c": "rm -rf /tm'


def test_a_character_that_was_cut_into_surrogates_between_two_deltas_is_one_again() -> None:
    raw = frames(calls(begun(0, "f", '{"a":"\ud83d')), calls(more(0, '\udc4b","b":"\ud83d"}')), END)
    parsed, _ = collected(raw)

    assert b"\\ud83d" in raw
    assert parsed.tools[0].input == '{"a":"👋","b":"\\ud83d"}'.encode()
    assert WIRE.parse_json(WIRE.to_json(raw)).tools == parsed.tools


@pytest.mark.parametrize("streaming", [True, False])
def test_a_call_in_the_old_form_cannot_be_recorded_and_is_not_passed_on(streaming: bool) -> None:
    old = {"function_call": {"name": "f", "arguments": "{}"}}
    message = {"id": "c", "choices": [{"message": old, "finish_reason": "function_call"}]}
    raw = frames(chunk(old), chunk(finish="function_call")) if streaming else json.dumps(message).encode()
    parsed = collected(raw)[0] if streaming else WIRE.parse_json(raw)

    assert not parsed.complete
    assert parsed.fault is not None
    assert "old form" in parsed.fault.message


# ------------------------------------------------------------------------------------------ faults


@pytest.mark.parametrize(
    ("error", "status", "said"),
    [
        ({"message": "m", "type": "server_error", "code": None}, 502, "server_error: m"),
        ({"message": "m", "type": "requests", "code": "rate_limit_exceeded"}, 429, "rate_limit_exceeded: m"),
        ({"message": "m", "type": "invalid_request_error"}, 400, "invalid_request_error: m"),
        ({"message": "m", "code": 503}, 503, "503: m"),
        ({"message": "m", "code": 7}, 502, "7: m"),
        ({}, 502, "server_error: no reason given"),
        ("plain", 502, "server_error: plain"),
    ],
)
def test_an_error_after_a_good_start_is_that_error(error: object, status: int, said: str) -> None:
    parsed, _ = collected(frames(calls(begun(0, "bash")), {"error": error}, END))
    for found in (parsed, WIRE.parse_json(json.dumps({"error": error}).encode())):
        assert (found.complete, found.tools) == (False, ())
        assert found.fault is not None
        assert (found.fault.status, found.fault.message) == (status, said)


@pytest.mark.parametrize("reason", ["error", "network_error"])
def test_a_reason_that_is_a_failure_is_one(reason: str) -> None:
    parsed, _ = collected(frames(calls(begun(0, "bash")), chunk(finish=reason), "[DONE]"))

    assert (parsed.complete, parsed.tools) == (False, ())


@pytest.mark.parametrize(
    "bad",
    [
        b"data: {oops\n\n",
        b"data: [1]\n\n",
        b'data: {"choices":7}\n\n',
        b'data: {"choices":[7]}\n\n',
        b'data: {"choices":[{"delta":{"tool_calls":["x"]}}]}\n\n',
        b'data: {"choices":[{"delta":{"content":"\xff"}}]}\n\n',
        b'data: {"choices":' + b"[" * 50_000 + b"]" * 50_000 + b"}\n\n",
    ],
)
def test_a_chunk_that_cannot_be_read_makes_the_message_incomplete(bad: bytes) -> None:
    parsed, _ = collected(frames(calls(begun(0, "bash"))) + bad + frames(END))

    assert (parsed.complete, parsed.tools) == (False, ())
    assert parsed.fault is not None
    assert parsed.fault.status == 502


def test_chunks_without_choices_and_what_follows_the_end_do_not_matter() -> None:
    """Azure begins with one; C140: keep-alives are comments."""
    first: Json = {"id": "", "choices": [], "prompt_filter_results": []}
    raw = b": hello\n\n" + frames(first, {"choices": None}, chunk({"content": "x"}), END, "[DONE]", "oops")

    parsed, said = collected(raw)

    assert (parsed.complete, parsed.id, said) == (True, "c1", "x")
    assert collected(*(raw[at : at + 1] for at in range(len(raw)))) == (parsed, said)


def test_usage_counts_wherever_it_comes_and_reasoning_is_output() -> None:
    first: Json = {"prompt_tokens": 9, "completion_tokens": 1}
    last: Json = {"prompt_tokens": 9, "completion_tokens": 5, "total_tokens": 17}
    parsed, _ = collected(frames(chunk({"content": "x"}, usage=first), chunk(finish="stop", usage=last)))

    assert parsed.usage == Usage(9, 8), "the provider counts 3 tokens of reasoning beside its output"


@pytest.mark.parametrize("raw", [b"", b"[]", b"<html>", b"{}", b'{"choices":[]}', b'{"choices":["\xff"]}'])
def test_what_is_no_message_is_not_complete(raw: bytes) -> None:
    parsed = WIRE.parse_json(raw)

    assert not parsed.complete
    assert parsed.fault is not None


def test_our_own_error_in_place_of_a_message_is_that_error() -> None:
    parsed = WIRE.parse_json(WIRE.error(429, "busy"))

    assert parsed.fault is not None
    assert (parsed.fault.status, parsed.fault.message) == (429, "rate_limit_exceeded: busy")


# ------------------------------------------------------------------------------------- both forms


@settings(deadline=None, max_examples=20)
@given(style=STYLES)
def test_a_stream_in_the_other_form_is_the_message_that_it_built(style: Style) -> None:
    body = streamed(style=style)

    message, expected = json.loads(WIRE.to_json(body)), json.loads(whole())

    expected["choices"][0]["message"].pop("refusal")
    assert message == expected
    assert WIRE.parse_json(WIRE.to_json(body)).tools == collected(body)[0].tools


def test_a_message_in_the_form_of_a_stream_says_the_same() -> None:
    pretty = json.dumps(json.loads(whole()), indent=1, ensure_ascii=False).encode()
    before = WIRE.parse_json(pretty)

    again, said = collected(WIRE.to_sse(pretty))

    assert again.complete
    assert (again.id, again.stop_reason, again.usage) == (before.id, before.stop_reason, before.usage)
    assert again.tools == before.tools == CALLED
    assert said == "Grüße 👋 from\u2028here"
    assert WIRE.to_sse(pretty).endswith(b"data: [DONE]\n\n")


def test_unknown_members_survive_both_ways() -> None:
    detail = [{"type": "reasoning.encrypted", "data": "x"}]
    extra: Json = {
        "id": "c",
        "type": "function",
        "function": {"name": "f", "arguments": "{}"},
        "extra": {"s": "t"},
    }
    message: Json = {"role": "assistant", "content": None, "reasoning_details": detail, "tool_calls": [extra]}
    choice = {"index": 0, "message": message, "finish_reason": "tool_calls"}
    body: Json = {"id": "c1", "object": "chat.completion", "model": "m", "choices": [choice]}

    assert json.loads(WIRE.to_json(WIRE.to_sse(json.dumps(body).encode()))) == body


# ---------------------------------------------------------------------------------------- tool ids


@settings(deadline=None, max_examples=30)
@given(style=STYLES)
def test_only_the_chunk_that_names_the_call_changes_in_a_stream(style: Style) -> None:
    parsed, _ = collected(streamed(style=style))

    renamed = WIRE.with_tool_ids(parsed, ["call_a", "call_new"], streamed=True)

    again, _ = collected(renamed.body)
    assert [tool.id for tool in again.tools] == ["call_a", "call_new"]
    assert [tool.input for tool in again.tools] == [tool.input for tool in parsed.tools]
    assert renamed.tools == again.tools
    at = parsed.body.index(b"call_b")
    head = parsed.body.rindex(b"call_a", 0, at)
    assert renamed.body[:head] == parsed.body[:head]
    tail = parsed.body[parsed.body.index(b'"delta":{}', at) :]
    assert renamed.body.endswith(tail)


def test_calls_with_one_id_are_told_apart_by_their_place() -> None:
    raw = frames(
        calls(begun(0, "A", call="x:0")), calls(begun(1, "B", call="x:0")), calls(more(1, "{}")), END
    )
    parsed, _ = collected(raw)

    renamed = WIRE.with_tool_ids(parsed, ["x:0", "fresh"], streamed=True)

    assert [(tool.name, tool.id) for tool in collected(renamed.body)[0].tools] == [
        ("A", "x:0"),
        ("B", "fresh"),
    ]
    assert renamed.body.startswith(frames(calls(begun(0, "A", call="x:0"))))
    assert renamed.body.endswith(frames(calls(more(1, "{}")), END))


@pytest.mark.parametrize("call", [None, ""])
def test_a_call_without_an_id_gets_one_at_its_beginning(call: str | None) -> None:
    raw = frames(calls(begun(0, "A", call=call)), calls(more(0, "{}", id=call)), END)
    parsed, _ = collected(raw)

    renamed = WIRE.with_tool_ids(parsed, ["fresh"], streamed=True)

    assert parsed.tools[0].id == ""
    assert collected(renamed.body)[0].tools == (ToolUse("fresh", "A", b"{}"),)
    assert renamed.body.count(b"fresh") == 1


def test_calls_with_one_id_are_told_apart_where_nothing_was_streamed() -> None:
    found = [{"id": "x", "type": "function", "function": {"name": name, "arguments": "{}"}} for name in "AB"]
    choice = {"index": 0, "message": {"tool_calls": found}, "finish_reason": "tool_calls"}
    raw = json.dumps({"id": "c", "choices": [choice]}).encode()
    parsed = WIRE.parse_json(raw)

    renamed = WIRE.with_tool_ids(parsed, ["x", "fresh"], streamed=False)

    assert [tool.id for tool in WIRE.parse_json(renamed.body).tools] == ["x", "fresh"]
    assert WIRE.with_tool_ids(parsed, ["x", "x"], streamed=False).body == raw
