"""The scripted provider's two OpenAI wires: what policies see of a request, what is refused, what is sent."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

import httpx
import pytest

from harness_durable.testing.provider import (
    HttpError,
    Mood,
    Reply,
    Request,
    ScriptedProvider,
    StreamError,
    Text,
    Thinking,
    ToolUse,
    say,
    wires,
)
from harness_durable.testing.provider.check import complaint
from harness_durable.testing.provider.key import match_key
from harness_durable.testing.provider.messages import assistant_turns, first_user_text, results, tool_calls
from harness_durable.testing.provider.policies import Script, Steps

RESPONSES, CHAT = "openai-responses", "openai-chat"
BOTH = pytest.mark.parametrize("speaks", [RESPONSES, CHAT])
PATHS = {RESPONSES: "/v1/responses", CHAT: "/v1/chat/completions"}
Json = dict[str, Any]


def responses() -> Json:
    return {
        "model": "m",
        "stream": True,
        "tools": [
            {"type": "function", "name": "exec_command", "parameters": {"properties": {"cmd": {}}}},
            {"type": "namespace", "name": "mcp__durable", "tools": [{"type": "function", "name": "effect"}]},
            {"type": "web_search"},
        ],
        "input": [
            {"type": "message", "role": "developer", "content": [{"type": "input_text", "text": "Be good."}]},
            {"role": "user", "content": [{"type": "input_text", "text": "<environment_context>\n/w"}]},
            {"role": "user", "content": [{"type": "input_text", "text": "go"}]},
            {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "ENC"},
            {"type": "function_call", "call_id": "a", "name": "exec_command", "arguments": '{"cmd":"ls"}'},
            {
                "type": "function_call",
                "call_id": "b",
                "name": "add",
                "namespace": "mcp__x",
                "arguments": "{}",
            },
            {"type": "function_call_output", "call_id": "b", "output": "two"},
            {
                "type": "function_call_output",
                "call_id": "a",
                "output": [{"type": "input_text", "text": "one"}],
            },
        ],
    }


def chat() -> Json:
    described: Json = {"name": "bash", "parameters": {"properties": {"command": {}, "description": {}}}}
    found = [
        {"id": "a", "type": "function", "function": {"name": "bash", "arguments": '{"command":"ls"}'}},
        {"id": "b", "type": "function", "function": {"name": "mcp__x__add", "arguments": "{}"}},
    ]
    return {
        "model": "m",
        "stream": True,
        "stream_options": {"include_usage": True},
        "tools": [{"type": "function", "function": described}],
        "messages": [
            {"role": "system", "content": "Be good."},
            {"role": "user", "content": "go"},
            {"role": "assistant", "content": "", "reasoning_content": "hm", "tool_calls": found},
            {"role": "tool", "tool_call_id": "b", "content": "two"},
            {"role": "tool", "tool_call_id": "a", "content": [{"type": "text", "text": "one"}]},
        ],
    }


def body(speaks: str) -> Json:
    return responses() if speaks == RESPONSES else chat()


def items(asked: Json) -> list[Json]:
    found: list[Json] = asked.get("input") or asked["messages"]
    return found


def seen(asked: Json) -> Request:
    return wires.named(RESPONSES if "input" in asked else CHAT).parse(json.dumps(asked).encode())


def problem(asked: Json) -> str:
    request = seen(asked)
    known = wires.named(RESPONSES if "input" in asked else CHAT)
    return complaint(request) or known.complaint(request)


async def post(provider: ScriptedProvider, asked: Mapping[str, object]) -> httpx.Response:
    path = PATHS[RESPONSES if "input" in asked else CHAT]
    async with httpx.AsyncClient(base_url=provider.url) as client:
        return await client.post(path, json=dict(asked), headers={"authorization": "Bearer k"})


# ---------------------------------------------------------------------------------------- requests


@BOTH
def test_policies_see_the_same_conversation_whatever_the_wire(speaks: str) -> None:
    request = seen(body(speaks))

    assert first_user_text(request) == "go"
    assert assistant_turns(request) == 1
    assert [(call.id, call.name) for call in tool_calls(request)] == [
        ("a", "exec_command" if speaks == RESPONSES else "bash"),
        ("b", "mcp__x__add"),
    ]
    assert {call: result.text for call, result in results(request).items()} == {"a": "one", "b": "two"}
    assert request.stream
    assert problem(body(speaks)) == ""


def test_tools_are_offered_by_the_names_that_the_model_uses() -> None:
    names = [(tool.name, tool.kind, tool.namespace) for tool in seen(responses()).tools]

    assert names == [("exec_command", "function", ""), ("mcp__durable__effect", "function", "mcp__durable")]


@BOTH
def test_a_shell_is_called_in_the_words_of_the_harness(speaks: str) -> None:
    asked = body(speaks)
    del items(asked)[3:], items(asked)[2:]
    policy = Steps(steps=1, custom_every=0)

    [use] = [block for block in policy(seen(asked)).blocks if isinstance(block, ToolUse)]

    command = policy.effect_command("s0a")
    expected = {"cmd": command} if speaks == RESPONSES else {"command": command, "description": "do s0a"}
    assert (use.name, use.input) == ("exec_command" if speaks == RESPONSES else "bash", expected)


Vary = Callable[[Json], object]
WRONG: dict[str, tuple[str, Vary, str]] = {
    "a lost result": (RESPONSES, lambda b: items(b).pop(), "['a']"),
    "a result twice": (RESPONSES, lambda b: items(b).append(items(b)[-1]), "exactly one"),
    "a result without a call": (RESPONSES, lambda b: items(b).pop(4), "'a'"),
    "a call twice": (RESPONSES, lambda b: items(b).insert(5, items(b)[4]), "['a', 'a', 'b']"),
    "a result of another kind": (
        RESPONSES,
        lambda b: items(b)[6].update(type="custom_tool_call_output"),
        "No custom_tool_call found",
    ),
    "no person": (RESPONSES, lambda b: b.update(input=items(b)[3:]), "the first message"),
    "chat: a lost result": (CHAT, lambda b: items(b).pop(), "['a']"),
    "chat: a result twice": (CHAT, lambda b: items(b).append(items(b)[-1]), "exactly one"),
    "chat: a result too late": (
        CHAT,
        lambda b: items(b).insert(4, {"role": "user", "content": "steer"}),
        "right after it",
    ),
    "chat: a result of nothing": (
        CHAT,
        lambda b: items(b).insert(1, {"role": "tool", "tool_call_id": "z", "content": ""}),
        "'z'",
    ),
}


@pytest.mark.parametrize("what", WRONG)
def test_a_conversation_that_the_api_refuses_is_refused(what: str) -> None:
    speaks, vary, said = WRONG[what]
    asked = body(speaks)
    vary(asked)

    assert said in problem(asked)


def test_a_tool_message_that_answers_nothing_is_refused_by_the_wire_itself() -> None:
    asked = chat()
    items(asked).append(items(asked)[-1])

    assert "must answer" in wires.named(CHAT).complaint(seen(asked))


@BOTH
async def test_a_refused_conversation_is_a_400_in_the_shape_of_the_api(speaks: str) -> None:
    asked = body(speaks)
    items(asked).pop()
    async with ScriptedProvider(lambda _: say("hi")) as provider:
        refused = await post(provider, asked)
        unreadable = await post(provider, {items_field(speaks): 7, "model": 7})
        tally = provider.ledger.tally()

    assert refused.status_code == 400
    assert refused.json()["error"]["type"] == "invalid_request_error"
    assert unreadable.status_code == 400
    assert [line.kind for line in tally.lines] == ["requested", "refused"]


def items_field(speaks: str) -> str:
    return "input" if speaks == RESPONSES else "messages"


SAME: dict[str, tuple[str, Vary]] = {
    "results in another order": (RESPONSES, lambda b: items(b).append(items(b).pop(6))),
    "another date": (RESPONSES, lambda b: items(b)[1]["content"][0].update(text="<environment_context>\n/x")),
    "instructions": (RESPONSES, lambda b: items(b).pop(0)),
    "metadata": (RESPONSES, lambda b: b.update(client_metadata={"a": 1}, prompt_cache_key="k")),
    "ids": (RESPONSES, lambda b: items(b)[2].update(id="msg_9")),
    "chat results": (CHAT, lambda b: items(b).append(items(b).pop(3))),
    "chat system": (CHAT, lambda b: items(b)[0].update(content="Tuesday")),
    "chat cache mark": (
        CHAT,
        lambda b: items(b)[1].update(content=[{"type": "text", "text": "go", "cache_control": {}}]),
    ),
}


@pytest.mark.parametrize("what", SAME)
def test_the_ledgers_key_does_not_see_what_harnesses_vary(what: str) -> None:
    speaks, vary = SAME[what]
    asked = body(speaks)
    vary(asked)

    assert match_key(seen(asked)) == match_key(seen(body(speaks)))


@BOTH
def test_the_ledgers_key_sees_another_result(speaks: str) -> None:
    asked = body(speaks)
    items(asked)[-1]["output" if speaks == RESPONSES else "content"] = "three"

    assert match_key(seen(asked)) != match_key(seen(body(speaks)))


# --------------------------------------------------------------------------------------- responses

BLOCKS = (
    Thinking("hm", "sig"),
    Text("grüße 👋"),
    ToolUse("bash", {"command": "x"}),
    ToolUse("mcp__durable__effect"),
)


def stream(raw: bytes) -> list[Json]:
    """The events of a stream, after the checks that a careful client would make."""
    found: list[Json] = []
    for part in raw.decode().replace("\r\n", "\n").split("\n\n"):
        lines = [line for line in part.split("\n") if line and not line.startswith(":")]
        fields = dict(line.split(": ", 1) for line in lines)
        if not fields or fields["data"] == "[DONE]":
            continue
        data: Json = json.loads(fields["data"])
        assert fields.get("event") == data.get("type")
        found.append(data)
    return found


@pytest.mark.parametrize("mood", [Mood(), Mood(3, mess=1.0), Mood(5, mess=0.5)])
async def test_the_events_of_a_response_agree_with_each_other(mood: Mood) -> None:
    async with ScriptedProvider(lambda _: Reply(BLOCKS), mood=mood) as provider:
        events = [
            event
            for event in stream((await post(provider, responses())).content)
            if event["type"] != "keepalive"
        ]

    assert [event["sequence_number"] for event in events] == list(range(len(events)))
    assert (events[0]["type"], events[-1]["type"]) == ("response.created", "response.completed")
    items_done = [event["item"] for event in events if event["type"] == "response.output_item.done"]
    assert items_done == events[-1]["response"]["output"]
    assert [item["type"] for item in items_done] == ["reasoning", "message", "function_call", "function_call"]
    assert (items_done[3]["namespace"], items_done[3]["name"]) == ("mcp__durable", "effect")
    grown = {"output_text": "", "function_call_arguments": ""}
    for event in events:
        name = event["type"].removeprefix("response.").removesuffix(".delta")
        if name in grown:
            grown[name] += event["delta"]
    assert grown["output_text"] == items_done[1]["content"][0]["text"] == "grüße 👋"
    assert json.loads(items_done[2]["arguments"]) == {"command": "x"}
    assert grown["function_call_arguments"] == items_done[2]["arguments"] + items_done[3]["arguments"]
    assert events[-1]["response"]["usage"]["total_tokens"] > 0


@pytest.mark.parametrize("mood", [Mood(), Mood(3, mess=1.0), Mood(5, mess=0.5)])
async def test_the_chunks_of_a_completion_add_up(mood: Mood) -> None:
    async with ScriptedProvider(lambda _: Reply(BLOCKS), mood=mood) as provider:
        raw = (await post(provider, chat())).content
        quiet = (await post(provider, {**chat(), "stream_options": None})).content
    chunks = stream(raw)
    choices = [choice for chunk in chunks for choice in chunk["choices"]]

    assert raw.rstrip().endswith(b"data: [DONE]")
    assert "".join(choice["delta"].get("content", "") for choice in choices) == "grüße 👋"
    assert [choice["finish_reason"] for choice in choices][-1] == "tool_calls"
    deltas = [call for choice in choices for call in choice["delta"].get("tool_calls", ())]
    named = [call for call in deltas if "id" in call]
    assert [(call["index"], call["function"]["name"]) for call in named] == [
        (0, "bash"),
        (1, "mcp__durable__effect"),
    ]
    assert json.loads("".join(call["function"]["arguments"] for call in deltas if not call["index"])) == {
        "command": "x"
    }
    assert chunks[-1]["usage"]["total_tokens"] > 0
    assert b'"usage"' not in quiet, "nobody asked for it"


@BOTH
async def test_without_streaming_the_answer_is_one_json(speaks: str) -> None:
    async with ScriptedProvider(lambda _: Reply(BLOCKS)) as provider:
        answer = (await post(provider, {**body(speaks), "stream": False})).json()

    if speaks == RESPONSES:
        assert answer["status"] == "completed"
        assert json.loads(answer["output"][2]["arguments"]) == {"command": "x"}
    else:
        message = answer["choices"][0]["message"]
        assert (message["content"], message["reasoning_content"]) == ("grüße 👋", "hm")
        assert json.loads(message["tool_calls"][0]["function"]["arguments"]) == {"command": "x"}


async def test_a_custom_tool_is_called_with_a_text() -> None:
    asked = {"model": "m", "stream": False, "tools": [{"type": "custom", "name": "patch"}], "input": "go"}
    async with ScriptedProvider(lambda _: Reply((ToolUse("patch", raw="*** Begin"),))) as provider:
        [item] = (await post(provider, asked)).json()["output"]

    assert (item["type"], item["name"], item["input"]) == ("custom_tool_call", "patch", "*** Begin")


@BOTH
@pytest.mark.parametrize(("status", "code"), [(401, "invalid_api_key"), (429, "rate_limit_exceeded")])
async def test_errors_have_the_shape_of_the_api(speaks: str, status: int, code: str) -> None:
    async with ScriptedProvider(lambda _: Reply(faults=(HttpError(status),))) as provider:
        got = await post(provider, body(speaks))

    assert got.status_code == status
    assert got.json()["error"]["code"] == code
    assert got.json()["error"]["message"]


@BOTH
async def test_a_stream_can_break_off_with_an_error(speaks: str) -> None:
    async with ScriptedProvider(lambda _: Reply(BLOCKS, faults=(StreamError(3),))) as provider:
        events = stream((await post(provider, body(speaks))).content)
        tally = provider.ledger.tally()

    last = events[-1]["response"] if speaks == RESPONSES else events[-1]
    assert last["error"]["code"] == "server_is_overloaded"
    assert [line.kind for line in tally.lines] == ["requested", "faulted"]


async def test_all_wires_are_served_at_once_and_a_script_goes_by_the_conversation() -> None:
    script = Script((say("first"), say("second")))
    messages = {"model": "m", "max_tokens": 9, "messages": [{"role": "user", "content": "go"}]}
    async with ScriptedProvider(script) as provider, httpx.AsyncClient(base_url=provider.url) as client:
        plain = (await client.post("/v1/messages", json=messages)).json()
        second = [
            (await post(provider, {**body(speaks), "stream": False})).json() for speaks in (RESPONSES, CHAT)
        ]
        models = (await client.get("/v1/models")).json()
        tally = provider.ledger.tally()

    assert plain["content"][0]["text"] == "first"
    assert second[0]["output"][0]["content"][0]["text"] == "second"
    assert second[1]["choices"][0]["message"]["content"] == "second"
    assert models["data"][0]["id"] == "scripted"
    assert [line.path for line in tally.lines if line.kind == "requested"] == [
        "/v1/messages",
        "/v1/responses",
        "/v1/chat/completions",
    ]
