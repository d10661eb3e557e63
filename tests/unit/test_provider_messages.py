"""Looking into requests: what was called, what came back, which requests are the same call."""

from __future__ import annotations

import pytest

from harness_durable.errors import BadInput
from harness_durable.testing.provider.check import complaint
from harness_durable.testing.provider.key import match_key
from harness_durable.testing.provider.messages import (
    assistant_turns,
    first_user_text,
    last_user_text,
    parse,
    results,
    tool_calls,
)
from tests.unit.provider_kit import Json, request


def call(name: str, call_id: str, **given: object) -> Json:
    return {"type": "tool_use", "id": call_id, "name": name, "input": given}


def result(call_id: str, content: object = "ok", **more: object) -> Json:
    return {"type": "tool_result", "tool_use_id": call_id, "content": content, **more}


def user(*blocks: Json) -> Json:
    return {"role": "user", "content": list(blocks)}


def assistant(*blocks: Json) -> Json:
    return {"role": "assistant", "content": list(blocks)}


def text(said: str, **more: object) -> Json:
    return {"type": "text", "text": said, **more}


GO: Json = {"role": "user", "content": "go"}
LEFT = "\n\n<system-reminder>\n<total_tokens>149 tokens left</total_tokens>\n</system-reminder>"
PAIR = assistant(text("both"), call("Bash", "t1", command="a"), call("Bash", "t2", command="b"))


def test_calls_and_results_are_found_in_order_with_text_and_error_mark() -> None:
    parts = [text("one"), {"type": "image", "source": "x"}, text("two")]
    asked = request([GO, PAIR, user(result("t2", parts), result("t1", "no", is_error=True))])
    assert [(c.at, c.id, c.name, c.input) for c in tool_calls(asked)] == [
        (0, "t1", "Bash", {"command": "a"}),
        (1, "t2", "Bash", {"command": "b"}),
    ]
    found = results(asked)
    assert (found["t1"].text, found["t1"].is_error) == ("no", True)
    assert (found["t2"].text, found["t2"].is_error) == ("one\ntwo", False)


def test_reminders_at_the_end_of_a_result_are_not_part_of_it() -> None:
    told = [result("t1", "ok" + LEFT + LEFT + "\n"), result("t2", f"<system-reminder> {LEFT} end")]
    found = results(request([GO, PAIR, user(*told)]))
    assert found["t1"].text == "ok"
    assert found["t2"].text == f"<system-reminder> {LEFT} end", "only at the end"


def test_a_result_without_content_is_an_empty_text() -> None:
    assert results(request([GO, PAIR, user(result("t1", None))]))["t1"].text == ""


def test_the_last_and_first_user_text_skip_results_and_reminders() -> None:
    reminder = text("<system-reminder>\nbe good</system-reminder>")
    asked = request([user(reminder, text("first")), PAIR, user(result("t1"), result("t2"))])
    assert (first_user_text(asked), last_user_text(asked)) == ("first", "first")


def test_assistant_messages_in_a_row_count_as_one_turn() -> None:
    system: Json = {"role": "system", "content": "note"}
    done = assistant(text("done"))
    assert assistant_turns(request([GO])) == 0
    assert assistant_turns(request([GO, done, system, done, GO, done])) == 2


@pytest.mark.parametrize("raw", [b"", b"[]", b"{", b'{"model": "m"}', b'{"model":1,"messages":[]}'])
def test_what_is_no_request_is_refused_with_a_next_step(raw: bytes) -> None:
    with pytest.raises(BadInput, match="send model and messages"):
        parse(raw)


SAME: list[tuple[str, list[Json], list[Json]]] = [
    ("a plain string and a text block", [GO], [user(text("go"))]),
    ("cache marks", [GO], [user(text("go", cache_control={"type": "ephemeral"}))]),
    ("white space at the end", [GO], [user(text("go\n"))]),
    ("reminders", [GO], [user(text("<system-reminder>x</system-reminder>"), text("go"))]),
    ("system messages", [GO], [GO, {"role": "system", "content": "listing"}]),
    (
        "order of parallel results",
        [GO, PAIR, user(result("t1"), result("t2"), text("and"))],
        [GO, PAIR, user(text("and"), result("t2"), result("t1"))],
    ),
    (
        "reminders at the end of results",
        [GO, PAIR, user(result("t1", "x" + LEFT), result("t2", [text("y"), text(LEFT.strip())]))],
        [GO, PAIR, user(result("t2", [text("y")]), result("t1", "x\n"))],
    ),
    (
        "reminders in a text part of a result",
        [GO, PAIR, user(result("t1", [text("y" + LEFT)]))],
        [GO, PAIR, user(result("t1", [text("y")]))],
    ),
    (
        "cache marks within results",
        [GO, PAIR, user(result("t1", [text("x")]))],
        [GO, PAIR, user(result("t1", [text("x", cache_control={})], cache_control={}))],
    ),
]


@pytest.mark.parametrize(("what", "one", "other"), SAME)
def test_the_key_ignores(what: str, one: list[Json], other: list[Json]) -> None:
    assert match_key(request(one)) == match_key(request(other)), what


def test_the_key_ignores_all_but_model_and_messages() -> None:
    plain = parse(b'{"model":"m","messages":[{"role":"user","content":"go"}]}')
    more = parse(
        b'{"messages":[{"role":"user","content":"go"}],"stream":true,"system":"s","max_tokens":3,'
        b'"metadata":{"user_id":"u"},"model":"m","tools":[{"name":"Bash"}],"thinking":{}}'
    )
    assert match_key(plain) == match_key(more)


DIFFERENT: list[list[Json]] = [
    [GO],
    [user(text("gone"))],
    [GO, PAIR, user(result("t1"), result("t2"))],
    [GO, PAIR, user(result("t1", "other"), result("t2"))],
    [GO, PAIR, user(result("t1", is_error=True), result("t2"))],
]


def test_the_key_tells_other_conversations_and_models_apart() -> None:
    keys = {match_key(request(messages)) for messages in DIFFERENT}
    assert len(keys) == len(DIFFERENT)
    other = parse(b'{"model":"m2","messages":[{"role":"user","content":"go"}]}')
    assert match_key(other) not in keys


def test_half_a_surrogate_pair_has_a_key() -> None:
    asked = parse(b'{"model":"m","messages":[{"role":"user","content":"\\ud83d"}]}')
    assert len(match_key(asked)) == 32


VALID: list[list[Json]] = [
    [GO],
    [GO, assistant(text("hi")), GO],
    [GO, PAIR, user(result("t2"), result("t1"), text("and"))],
    [GO, PAIR, {"role": "system", "content": "s"}, user(result("t2")), user(result("t1"))],
]
BROKEN: list[tuple[list[Json], str]] = [
    ([], "first message"),
    ([assistant(text("hi"))], "first message"),
    ([GO, PAIR], "t1"),
    ([GO, PAIR, user(text("never mind"))], "without a tool_result"),
    ([GO, PAIR, user(result("t1"))], "t2"),
    ([GO, PAIR, user(result("t1"), result("t1"), result("t2"))], "exactly one"),
    ([GO, user(result("t1"))], "exactly one"),
    ([GO, PAIR, user(result("t1"), result("t2"), result("t3"))], "t3"),
    ([GO, assistant(call("B", "t1"), call("B", "t1")), user(result("t1"))], "unique"),
    (
        [
            *(GO, assistant(call("B", "t1")), user(result("t1"))),
            *(assistant(call("B", "t1")), user(result("t1"))),
        ],
        "unique",
    ),
    ([user(text(""))], "empty"),
]


@pytest.mark.parametrize("messages", VALID)
def test_a_valid_conversation_is_not_complained_of(messages: list[Json]) -> None:
    assert complaint(request(messages)) == ""


@pytest.mark.parametrize(("messages", "says"), BROKEN)
def test_a_conversation_that_the_api_refuses_is_complained_of(messages: list[Json], says: str) -> None:
    assert says in complaint(request(messages))


def test_half_a_surrogate_pair_in_the_body_is_complained_of() -> None:
    asked = parse(b'{"model":"m","messages":[{"role":"user","content":"a \\ud83d"}]}')
    assert "surrogate" in complaint(asked)
    assert complaint(request("a whole 🎉")) == ""
