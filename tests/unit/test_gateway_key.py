"""The match key on concrete bodies: what a resumed harness changes, and what makes another request. And what
of a body goes upstream."""

from __future__ import annotations

import json
from copy import deepcopy
from typing import Any

import pytest

from harness_durable.gateway import RESUME_SENTINEL, wire

WIRE = wire("anthropic")
Body = dict[str, Any]


def base() -> Body:
    """A turn with two parallel calls and their results, as a harness sends it."""
    return {
        "model": "claude-x",
        "max_tokens": 32000,
        "stream": True,
        "system": [{"type": "text", "text": "You are an agent.", "cache_control": {"type": "ephemeral"}}],
        "tools": [{"name": "Bash", "input_schema": {"type": "object"}}],
        "metadata": {"user_id": "device-1"},
        "messages": [
            {"role": "user", "content": [{"type": "text", "text": "fix it"}]},
            {
                "role": "assistant",
                "content": [
                    {"type": "text", "text": "I look."},
                    {"type": "tool_use", "id": "toolu_a", "name": "Bash", "input": {"command": "ls"}},
                    {"type": "tool_use", "id": "toolu_b", "name": "Read", "input": {"id": 9007199254740993}},
                ],
            },
            {
                "role": "user",
                "content": [
                    {"type": "tool_result", "tool_use_id": "toolu_a", "content": "a.py", "is_error": False},
                    {"type": "tool_result", "tool_use_id": "toolu_b", "content": "text"},
                ],
            },
        ],
    }


def key(body: Body | bytes) -> str:
    return WIRE.match_key(body if isinstance(body, bytes) else json.dumps(body).encode(), "/v1/messages")


def content(body: Body, place: int) -> list[Body]:
    found: list[Body] = body["messages"][place]["content"]
    return found


def cache_marks(body: Body) -> None:
    content(body, 2)[-1]["cache_control"] = {"type": "ephemeral"}
    content(body, 0)[0]["cache_control"] = {"type": "ephemeral", "ttl": "1h"}


def results_in_another_order(body: Body) -> None:
    content(body, 2).reverse()


def a_newline_at_the_end(body: Body) -> None:
    content(body, 0)[0]["text"] += "\n"


def a_plain_string(body: Body) -> None:
    body["messages"][0]["content"] = "fix it"


def a_result_as_blocks(body: Body) -> None:
    content(body, 2)[0]["content"] = [{"type": "text", "text": "a.py"}]


def a_reminder_beside_the_results(body: Body) -> None:
    content(body, 2).append(
        {"type": "text", "text": "<system-reminder>\n84000 tokens left</system-reminder>"}
    )


def a_reminder_within_a_result(body: Body) -> None:
    content(body, 2)[1]["content"] = [
        {"type": "text", "text": "text"},
        {"type": "text", "text": "<system-reminder>be kind</system-reminder>"},
    ]


def a_system_message_in_the_middle(body: Body) -> None:
    body["messages"].insert(1, {"role": "system", "content": "The date is new."})


def a_reminder_on_the_end_of_a_result(body: Body) -> None:
    result = content(body, 2)[0]
    result["content"] += "\n<system-reminder>\n<total_tokens>17</total_tokens>\n</system-reminder>"


def the_sentinel_beside_the_results(body: Body) -> None:
    content(body, 2).append({"type": "text", "text": RESUME_SENTINEL})


def the_sentinel_as_a_message(body: Body) -> None:
    body["messages"].append({"role": "user", "content": RESUME_SENTINEL + "\n"})


def a_split_user_message(body: Body) -> None:
    second = {"role": "user", "content": [content(body, 2).pop()]}
    body["messages"].append(second)


def other_frame(body: Body) -> None:
    body["system"] = "another day, another git status"
    body["tools"].append({"name": "Read"})
    body["metadata"] = {"user_id": "device-2"}
    body["thinking"] = {"type": "enabled", "budget_tokens": 1}
    body["max_tokens"], body["stream"] = 1, False
    body["context_management"], body["output_config"] = {}, {"effort": "high"}


@pytest.mark.parametrize(
    "vary",
    [
        cache_marks,
        results_in_another_order,
        a_newline_at_the_end,
        a_plain_string,
        a_result_as_blocks,
        a_reminder_beside_the_results,
        a_reminder_within_a_result,
        a_reminder_on_the_end_of_a_result,
        a_system_message_in_the_middle,
        the_sentinel_beside_the_results,
        the_sentinel_as_a_message,
        a_split_user_message,
        other_frame,
    ],
)
def test_what_a_resume_changes_does_not_change_the_key(vary: Any) -> None:
    body = base()
    vary(body)

    assert body != base()
    assert key(body) == key(base())


def another_model(body: Body) -> None:
    body["model"] = "claude-y"


def another_text(body: Body) -> None:
    content(body, 0)[0]["text"] = "fix them"


def another_result(body: Body) -> None:
    content(body, 2)[0]["content"] = "b.py"


def an_error_instead(body: Body) -> None:
    content(body, 2)[0]["is_error"] = True


def one_more_message(body: Body) -> None:
    body["messages"].append({"role": "assistant", "content": "so"})


def a_title_for_the_same_text(body: Body) -> None:
    body["output_config"] = {"format": {"type": "json_schema"}}


def no_tools(body: Body) -> None:
    body["tools"] = []


def the_next_integer(body: Body) -> None:
    content(body, 1)[2]["input"]["id"] = 9007199254740992


def an_integer_as_text(body: Body) -> None:
    content(body, 1)[2]["input"]["id"] = "9007199254740993"


@pytest.mark.parametrize(
    "vary",
    [
        another_model,
        another_text,
        another_result,
        an_error_instead,
        one_more_message,
        a_title_for_the_same_text,
        no_tools,
        the_next_integer,
        an_integer_as_text,
    ],
)
def test_what_the_model_sees_otherwise_changes_the_key(vary: Any) -> None:
    body = deepcopy(base())
    vary(body)

    assert key(body) != key(base())


def test_decimals_that_a_float_cannot_tell_apart_are_two_requests() -> None:
    one, two = (
        b'{"messages":[{"role":"user","content":[{"type":"x","n":0.1%d}]}]}' % tail
        for tail in (0, 1_0000_0000_0000_0000_0000)
    )

    assert key(one.replace(b"0.10", b"0.10000000000000000000")) != key(two.replace(b"0.11", b"0.10"))


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"\xff\xfe",
        b"[1]",
        b'{"messages":5}',
        b'{"messages":["x"]}',
        b'{"messages":[{"role":"user","content":[7]}]}',
        rb'{"messages":[{"role":"user","content":"half \ud83d"}]}',
        b'{"messages":[{"role":"user","content":[{"type":"x","n":' + b"9" * 6000 + b"}]}]}",
        b'{"messages":' + b"[" * 100_000 + b"]" * 100_000 + b"}",
        b'{"messages":[{"role":"user","content":[{"type":"x","n":NaN}]}]}',
    ],
)
def test_a_strange_body_has_a_key_of_its_own(body: bytes) -> None:
    assert key(body) == key(bytes(bytearray(body)))
    assert key(body) != key(body + b" x")
    assert WIRE.prepare(body) == body or b"\\ud83d" in body
    assert isinstance(WIRE.model_of(body), str)
    assert WIRE.wants_stream(body) is False


# --------------------------------------------------------------------------------- what goes upstream


def test_a_body_without_our_marks_goes_upstream_byte_for_byte() -> None:
    body = (
        b'{ "model" : "x",  "messages": [ {"role":"user","content":"a\\u0000\\ud83d\\ude00 \xc3\xa9"} ] }\n'
    )

    assert WIRE.prepare(body) == body


def test_the_sentinel_is_taken_out_and_the_rest_stays_as_it_was() -> None:
    kept = b'{"type":"tool_result",  "tool_use_id":"a","content":"\\u00e9 12345678901234567890123"}'
    sentinel = json.dumps({"type": "text", "text": RESUME_SENTINEL}).encode()
    body = b'{"model":"x","messages":[{"role":"user","content":[' + kept + b"," + sentinel + b']}],"n":1.10}'

    prepared = WIRE.prepare(body)

    assert prepared == b'{"model":"x","messages":[{"role":"user","content":[' + kept + b']}],"n":1.10}'


def test_a_message_that_is_only_the_sentinel_goes_as_a_whole() -> None:
    body = base()
    the_sentinel_as_a_message(body)

    assert json.loads(WIRE.prepare(json.dumps(body).encode())) == base()


def test_a_cache_mark_on_the_sentinel_moves_to_the_last_block_that_stays() -> None:
    body = base()
    mark = {"type": "ephemeral"}
    content(body, 2).append({"type": "text", "text": RESUME_SENTINEL, "cache_control": mark})

    prepared = json.loads(WIRE.prepare(json.dumps(body).encode()))

    assert [block.get("cache_control") for block in content(prepared, 2)] == [None, mark]


def test_a_model_that_speaks_of_the_sentinel_is_left_alone() -> None:
    body = base()
    body["messages"].append({"role": "assistant", "content": [{"type": "text", "text": RESUME_SENTINEL}]})
    raw = json.dumps(body).encode()

    assert json.loads(WIRE.prepare(raw)) == body


def test_a_person_who_speaks_of_the_sentinel_is_left_alone_byte_for_byte() -> None:
    text = f"what is {RESUME_SENTINEL} for?"
    body = b'{"messages":[{ "role": "user", "content": [ {"type":"text","text":"%s"} ] }]}' % text.encode()

    assert WIRE.prepare(body) == body


def test_half_a_surrogate_pair_is_replaced_so_that_the_provider_can_read_it() -> None:
    body = rb'{"messages":[{"role":"user","content":"\ud83d\ude00 \ud83d x \uDE00 \\ud83d \\\ud83d"}]}'

    prepared = WIRE.prepare(body)

    assert prepared == (
        rb'{"messages":[{"role":"user","content":"\ud83d\ude00 \ufffd x \ufffd \\ud83d \\\ufffd"}]}'
    )
    prepared.decode()
    json.loads(prepared)["messages"][0]["content"].encode()
