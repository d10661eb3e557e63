"""Responses of the Messages API: what counts as complete, what a tool call is, and both forms of it."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harness_durable.events import Usage
from harness_durable.gateway import wire
from harness_durable.gateway.nesting import outermost
from harness_durable.gateway.wire import Parsed, ToolUse
from harness_durable.testing.provider import Reply, Style, Text, Thinking
from harness_durable.testing.provider import ToolUse as Call
from harness_durable.testing.provider import Usage as Paid
from harness_durable.testing.provider.wires import anthropic as encode
from tests.unit.test_gateway_sse import cut

WIRE = wire("anthropic")
PAID = Paid(11, 22, 33, 44)
BIG = '{\n  "id": 9007199254740993,\r\n  "path": "a\\u0000\\ud83d👋 é",\n "n": 1.10, "n": 2\n}'
REPLY = Reply(
    (
        Thinking("Hm.\n", "sig=="),
        Text("Grüße 👋 from\u2028here"),
        Call("Bash", id="toolu_a", raw=BIG),
        Call("Look", id="toolu_b"),
    ),
    id="msg_1",
)
STYLES = st.builds(
    Style,
    seed=st.integers(0, 99),
    split_text=st.integers(0, 4),
    split_input=st.integers(0, 4),
    pings=st.booleans(),
    comments=st.booleans(),
    padding=st.booleans(),
    crlf=st.booleans(),
)


def streamed(reply: Reply = REPLY, style: Style | None = None) -> bytes:
    style = style or Style()
    return b"".join(encode.frames(encode.events(reply, "model-x", PAID, style), style))


def collected(chunks: Iterable[bytes]) -> tuple[Parsed, str]:
    collector = WIRE.collector()
    said = ""
    for chunk in chunks:
        collector.feed(chunk)
        said += collector.text_delta()
    return collector.finish(), said


def frames(*events: Mapping[str, object]) -> bytes:
    return b"".join(encode.frame(dict(event)) for event in events)


def start(**more: object) -> dict[str, object]:
    return {"type": "message_start", "message": {"id": "msg_2", "usage": {}, **more}}


def block(content: Mapping[str, object], *deltas: Mapping[str, object]) -> list[dict[str, object]]:
    grown: list[dict[str, object]] = [
        {"type": "content_block_delta", "index": 0, "delta": delta} for delta in deltas
    ]
    begun: dict[str, object] = {"type": "content_block_start", "index": 0, "content_block": content}
    ended: dict[str, object] = {"type": "content_block_stop", "index": 0}
    return [begun, *grown, ended]


STOP: list[dict[str, object]] = [
    {"type": "message_delta", "delta": {"stop_reason": "tool_use"}, "usage": {"output_tokens": 5}},
    {"type": "message_stop"},
]
BASH: dict[str, object] = {"type": "tool_use", "id": "toolu_c", "name": "Bash", "input": {}}


def test_a_stream_is_taken_apart_and_its_tool_inputs_are_the_bytes_that_the_model_wrote() -> None:
    """C121: usage is the response's and counted once, whatever number of blocks it has."""
    parsed, said = collected([streamed()])

    assert parsed.complete
    assert parsed.fault is None
    assert (parsed.id, parsed.stop_reason) == ("msg_1", "tool_use")
    assert parsed.usage == Usage(input=11, output=22, cache_read=44, cache_write=33)
    assert parsed.tools == (ToolUse("toolu_a", "Bash", BIG.encode()), ToolUse("toolu_b", "Look", b"{}"))
    assert said == "Grüße 👋 from\u2028here"
    assert parsed.body == streamed()


@settings(deadline=None)
@given(style=STYLES, places=st.lists(st.integers(0, 100_000), max_size=60))
def test_wherever_a_stream_is_cut_it_says_the_same(style: Style, places: list[int]) -> None:
    body = streamed(style=style)
    once, said = collected([body])

    again, said_again = collected(cut(body, places))

    assert once.complete
    assert again == once
    assert said_again == said == "Grüße 👋 from\u2028here"
    assert once.tools[0].input == BIG.encode()


@settings(deadline=None)
@given(style=STYLES)
def test_byte_by_byte_equals_all_at_once(style: Style) -> None:
    """C140: wherever a character is split."""
    body = streamed(style=style)

    assert collected(body[at : at + 1] for at in range(len(body))) == collected([body])


@settings(deadline=None)
@given(at=st.integers(0, len(streamed()) - 1))
def test_a_stream_that_ends_early_is_incomplete_and_has_no_tool_calls(at: int) -> None:
    """C142: no call without the end of its block and of its message."""
    parsed, _ = collected([streamed()[:at]])

    # Without the blank line after it, the last event has not been sent.
    assert not parsed.complete
    assert parsed.tools == ()
    assert parsed.fault is not None
    assert parsed.fault.status == 502


def test_a_tool_call_whose_block_has_not_ended_makes_the_message_incomplete() -> None:
    parsed, _ = collected([frames(start(), *block(BASH)[:-1], *STOP)])

    assert not parsed.complete
    assert parsed.tools == ()


def test_arguments_that_are_no_json_are_kept_as_they_are() -> None:
    piece = {"type": "input_json_delta", "partial_json": '{"command": "rm -rf /tm'}
    parsed, _ = collected([frames(start(), *block(BASH, piece), *STOP)])

    assert parsed.complete
    assert parsed.tools[0].input == b'{"command": "rm -rf /tm'


def test_arguments_that_came_with_the_start_of_the_block_count() -> None:
    parsed, _ = collected([frames(start(), *block({**BASH, "input": {"a": 1}}), *STOP)])

    assert parsed.tools[0].input == b'{"a":1}'


def test_a_character_that_was_cut_into_surrogates_between_two_deltas_is_one_again() -> None:
    raw = frames(
        start(),
        *block(
            BASH,
            {"type": "input_json_delta", "partial_json": '{"a":"\ud83d'},
            {"type": "input_json_delta", "partial_json": '\udc4b","b":"\ud83d"}'},
        ),
        *STOP,
    )
    parsed, _ = collected([raw])

    assert b"\\ud83d" in raw
    assert parsed.tools[0].input == '{"a":"👋","b":"\\ud83d"}'.encode()
    assert json.loads(WIRE.to_json(raw))["content"][0]["input"] == {"a": "👋", "b": "\ud83d"}


@pytest.mark.parametrize(
    ("kind", "status"),
    [
        ("overloaded_error", 529),
        ("rate_limit_error", 429),
        ("api_error", 502),
        ("invalid_request_error", 400),
    ],
)
def test_an_error_event_after_a_good_start_is_that_error(kind: str, status: int) -> None:
    error = {"type": "error", "error": {"type": kind, "message": "too much"}}
    parsed, _ = collected([frames(start(), *block(BASH), error)])

    assert not parsed.complete
    assert parsed.tools == ()
    assert parsed.fault is not None
    assert parsed.fault.status == status
    assert parsed.fault.message == f"{kind}: too much"


@pytest.mark.parametrize(
    "bad",
    [
        b"data: {oops\n\n",
        b"data: [1]\n\n",
        b'data: {"type":"content_block_stop","index":7}\n\n',
        b'data: {"type":"content_block_start","index":1}\n\n',
        b'data: {"type":"content_block_delta","index":0,"delta":{"type":"x","v":"\xff"}}\n\n',
        b'data: {"type":"message_start","message":' + b"[" * 50_000 + b"]" * 50_000 + b"}\n\n",
    ],
)
def test_an_event_that_cannot_be_read_makes_the_message_incomplete(bad: bytes) -> None:
    parsed, _ = collected([frames(start(), *block(BASH)), bad, frames(*STOP)])

    assert not parsed.complete
    assert parsed.fault is not None
    assert parsed.fault.status == 502


def test_what_follows_the_end_of_the_message_does_not_matter() -> None:
    whole = frames(start(), *block(BASH), *STOP)

    assert collected([whole + b"data: [DONE]\n\ndata: oops\n\n: bye"])[0].complete


def test_an_answer_that_was_not_streamed_keeps_its_numbers() -> None:
    raw = b'{"id":"msg_3","type":"message","stop_reason":"tool_use",'
    raw += b'"usage":{"input_tokens":3,"output_tokens":4},'
    raw += b'"content":[{"type":"text","text":"x"},{"type":"tool_use","id":"t","name":"N","input":'
    raw += b'{"id": 12345678901234567890123, "f": 1.10}},{"type":"server_tool_use","id":"s","name":"web"}]}'

    parsed = WIRE.parse_json(raw)

    assert parsed.complete
    assert parsed.body == raw
    assert parsed.usage == Usage(3, 4)
    assert parsed.tools == (ToolUse("t", "N", b'{"id": 12345678901234567890123, "f": 1.10}'),)


def deep(opening: bytes, closing: bytes, depth: int = 10_000) -> bytes:
    """A message whose call has an input of that many levels."""
    written = b'{"a": ' + opening * depth + b"1.10" + closing * depth + b"}"
    return (
        b'{"id":"msg_4","type":"message","stop_reason":"tool_use","usage":{"input_tokens":3},"content":['
        b'{"type":"text","text":"x"},{"type":"tool_use","id":"t","name":"N","input":' + written + b"}]}"
    )


@pytest.mark.parametrize(("opening", "closing"), [(b"[", b"]"), (b'{"b" :', b"}"), (b'["\\ud83d",', b"]")])
def test_a_deep_input_is_what_the_model_wrote_in_either_form(opening: bytes, closing: bytes) -> None:
    """C119: 10,000 levels, in a response that was not streamed."""
    raw = deep(opening, closing)

    parsed = WIRE.parse_json(raw)
    streamed_again, _ = collected([WIRE.to_sse(raw)])

    written = raw[raw.index(b'{"a"') : -3]
    assert (parsed.complete, parsed.id, parsed.usage) == (True, "msg_4", Usage(3))
    assert parsed.tools == (ToolUse("t", "N", written),)
    assert (streamed_again.complete, streamed_again.tools) == (True, parsed.tools)
    renamed = WIRE.with_tool_ids(parsed, ["new"], streamed=False)
    assert renamed.tools == (ToolUse("new", "N", written),)


@pytest.mark.parametrize("cut", [1, 2, 5_000, 10_010])
def test_a_deep_answer_that_was_cut_is_no_message(cut: int) -> None:
    """C119, C142"""
    parsed = WIRE.parse_json(deep(b"[", b"]")[:-cut])

    assert (parsed.complete, parsed.tools) == (False, ())


@settings(deadline=None)
@given(st.text(alphabet='{}[],:"a1 \\\n', max_size=12))
def test_what_is_cut_into_members_is_what_a_decoder_accepts(text: str) -> None:
    try:
        value = json.loads(text)
    except ValueError:
        value = None
    try:
        found = outermost(text.encode())
    except ValueError:
        assert not isinstance(value, dict | list)
        return
    if isinstance(value, dict):
        assert {json.loads(name): json.loads(member) for name, member in found} == value
    else:
        assert [json.loads(item) for _, item in found] == value


@pytest.mark.parametrize(
    "raw", [b"", b"{}", b"[]", b"<html>", b'{"type":"message"}', b'{"content":[7]}', b'{"content":["\xff"]}']
)
def test_what_is_no_message_is_not_complete(raw: bytes) -> None:
    parsed = WIRE.parse_json(raw)

    assert not parsed.complete
    assert parsed.fault is not None


def test_an_error_in_place_of_a_message_is_that_error() -> None:
    parsed = WIRE.parse_json(WIRE.error(529, "busy"))

    assert parsed.fault is not None
    assert (parsed.fault.status, parsed.fault.message) == (529, "overloaded_error: busy")


# ------------------------------------------------------------------------------------- both forms


@settings(deadline=None)
@given(style=STYLES)
def test_a_stream_in_the_other_form_is_the_message_that_it_built(style: Style) -> None:
    body = streamed(style=style)

    message = json.loads(WIRE.to_json(body))

    assert message == json.loads(encode.whole(REPLY, "model-x", PAID))
    spelled = [json.loads(tool.input) for tool in WIRE.parse_json(WIRE.to_json(body)).tools]
    assert spelled == [json.loads(tool.input) for tool in collected([body])[0].tools]


def test_a_message_in_the_form_of_a_stream_says_the_same() -> None:
    raw = encode.whole(REPLY, "model-x", PAID)

    parsed, said = collected([WIRE.to_sse(raw)])

    before = WIRE.parse_json(raw)
    assert parsed.complete
    assert (parsed.id, parsed.stop_reason, parsed.usage) == (before.id, before.stop_reason, before.usage)
    assert [json.loads(tool.input) for tool in parsed.tools] == [json.loads(BIG), {}]
    assert said == "Grüße 👋 from\u2028here"
    assert json.loads(WIRE.to_json(WIRE.to_sse(raw))) == json.loads(raw)


def test_citations_and_unknown_blocks_survive_both_ways() -> None:
    cited = {"type": "text", "text": "so", "citations": [{"type": "x", "n": 1}, {"type": "x", "n": 2}]}
    unknown = {"type": "web_search_tool_result", "tool_use_id": "s", "content": [{"url": "u"}]}
    search = {"type": "server_tool_use", "id": "s", "name": "web_search", "input": {"query": "q"}}
    content = [search, unknown, cited]
    message: dict[str, object] = {"id": "m", "type": "message", "content": content, "usage": {}}

    back = json.loads(WIRE.to_json(WIRE.to_sse(json.dumps(message).encode())))

    assert back == {**message, "stop_reason": None, "stop_sequence": None}


# ---------------------------------------------------------------------------------------- tool ids


@settings(deadline=None)
@given(style=STYLES)
def test_only_the_renamed_call_changes_in_a_stream(style: Style) -> None:
    body = streamed(style=style)
    parsed, _ = collected([body])

    renamed = WIRE.with_tool_ids(parsed, ["toolu_a", "toolu_new"], streamed=True)

    again, _ = collected([renamed.body])
    assert [tool.id for tool in again.tools] == ["toolu_a", "toolu_new"]
    assert [tool.input for tool in again.tools] == [tool.input for tool in parsed.tools]
    assert renamed.tools == again.tools
    at = body.index(b"toolu_b")
    head = body.rindex(b"toolu_a", 0, at)
    assert renamed.body[:head] == body[:head]
    tail = body[body.index(b"content_block_stop", at) :]
    assert renamed.body.endswith(tail)


def test_calls_with_one_id_are_told_apart_by_their_place() -> None:
    message: dict[str, Any] = {
        "id": "m",
        "content": [{"type": "tool_use", "id": "x:0", "name": name, "input": {}} for name in ("A", "B")],
    }
    parsed = WIRE.parse_json(json.dumps(message).encode())

    renamed = WIRE.with_tool_ids(parsed, ["x:0", "fresh"], streamed=False)

    assert [block["id"] for block in json.loads(renamed.body)["content"]] == ["x:0", "fresh"]
    assert [tool.name for tool in renamed.tools] == ["A", "B"]


def test_fresh_ids_do_not_repeat() -> None:
    assert len({WIRE.fresh_tool_id() for _ in range(100)}) == 100
