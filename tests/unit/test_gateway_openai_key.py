"""The match keys of OpenAI's two wires on concrete bodies: what a resumed harness changes, and what makes
another request. And the other things that a wire reads from a request."""

from __future__ import annotations

import json
from collections.abc import Callable
from copy import deepcopy
from typing import Any

import pytest

from harness_durable.gateway import wire
from harness_durable.gateway.upstream import Upstream

RESPONSES, CHAT = wire("openai-responses"), wire("openai-chat")
WIRES = [RESPONSES, CHAT]
Body = dict[str, Any]


def say(role: str, text: str, **more: object) -> Body:
    kind = "output_text" if role == "assistant" else "input_text"
    return {"type": "message", "role": role, "content": [{"type": kind, "text": text}], **more}


def responses() -> Body:
    """A turn with two parallel calls and their results, as Codex sends it."""
    return {
        "model": "gpt-x",
        "stream": True,
        "store": False,
        "include": ["reasoning.encrypted_content"],
        "prompt_cache_key": "thread-1",
        "client_metadata": {"turn_id": "t1", "x-codex-turn-metadata": '{"turn_started_at_unix_ms":1}'},
        "tools": [{"type": "function", "name": "exec_command"}],
        "input": [
            say("developer", "You are an agent.", id="msg_a"),
            say("user", "<environment_context>\n<cwd>/w</cwd> Monday", id="msg_b"),
            say("user", "fix it", id="msg_c"),
            {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "ENC"},
            {
                "type": "function_call",
                "id": "fc_1",
                "call_id": "a",
                "name": "exec_command",
                "arguments": "{}",
            },
            {"type": "custom_tool_call", "id": "ctc_1", "call_id": "b", "name": "apply_patch", "input": "*"},
            {"type": "function_call_output", "call_id": "a", "output": "a.py"},
            {
                "type": "custom_tool_call_output",
                "call_id": "b",
                "output": [{"type": "input_text", "text": "ok"}],
            },
        ],
    }


def chat() -> Body:
    """The same as OpenCode and Pi send it."""
    found = [
        {"id": name, "type": "function", "function": {"name": "bash", "arguments": "{}"}} for name in "ab"
    ]
    return {
        "model": "gpt-x",
        "stream": True,
        "stream_options": {"include_usage": True},
        "tools": [{"type": "function", "function": {"name": "bash"}}],
        "messages": [
            {"role": "system", "content": "You are an agent. Monday."},
            {"role": "user", "content": "fix it"},
            {"role": "assistant", "content": "I look.", "tool_calls": found},
            {"role": "tool", "tool_call_id": "a", "content": "a.py"},
            {"role": "tool", "tool_call_id": "b", "content": "text"},
        ],
    }


def key(body: Body) -> str:
    known = RESPONSES if "input" in body else CHAT
    return known.match_key(json.dumps(body).encode(), "/v1")


Vary = Callable[[Body], object]
"""Changes a body; what it returns does not matter."""

SAME: dict[str, tuple[Callable[[], Body], Vary]] = {
    "another thread": (responses, lambda b: b.update(prompt_cache_key="2", client_metadata={"x": 1})),
    "other tools, same purpose": (responses, lambda b: b["tools"].append({"type": "web_search"})),
    "not streamed, stored": (responses, lambda b: b.update(stream=False, store=True, include=[])),
    "another date": (
        responses,
        lambda b: b["input"].insert(7, say("user", "<environment_context>\nTuesday")),
    ),
    "other skills": (responses, lambda b: b["input"].insert(2, say("user", "<skills_instructions> at /h"))),
    "instructions": (responses, lambda b: b["input"].pop(0) and b.update(instructions="You are.")),
    "ids of items": (responses, lambda b: b["input"][2].update(id="msg_z", status="completed")),
    "an injected result": (responses, lambda b: b["input"].append(b["input"].pop(6) | {"id": "fco_1"})),
    "a result as parts": (
        responses,
        lambda b: b["input"][6].update(output=[{"type": "input_text", "text": "a.py"}]),
    ),
    "tools within the input": (
        responses,
        lambda b: (b.pop("tools"), b["input"].insert(0, {"type": "additional_tools", "tools": [{}]})),
    ),
    "an untyped message": (responses, lambda b: b["input"][2].pop("type")),
    "plain text": (responses, lambda b: b["input"][2].update(content="fix it")),
    "another system prompt": (chat, lambda b: b["messages"][0].update(role="developer", content="Tuesday")),
    "a tool more": (chat, lambda b: b["tools"].append({"type": "function"})),
    "the session's cache key": (chat, lambda b: b.update(prompt_cache_key="ses_1", stream=False)),
    "results in another order": (chat, lambda b: b["messages"].append(b["messages"].pop(3))),
    "cache marks": (
        chat,
        lambda b: b["messages"][1].update(
            content=[{"type": "text", "text": "fix it", "cache_control": {"type": "ephemeral"}}]
        ),
    ),
    "a mark on the message": (chat, lambda b: b["messages"][4].update(cache_control={"type": "ephemeral"})),
    "null for nothing": (chat, lambda b: b["messages"][1].update(name=None, tool_calls=None)),
}
OTHER: dict[str, tuple[Callable[[], Body], Vary]] = {
    "model": (responses, lambda b: b.update(model="gpt-y")),
    "text": (responses, lambda b: b["input"][2]["content"][0].update(text="fix them")),
    "result": (responses, lambda b: b["input"][6].update(output="b.py")),
    "the call of a result": (responses, lambda b: b["input"][6].update(call_id="c")),
    "arguments": (responses, lambda b: b["input"][4].update(arguments='{"a":1}')),
    "reasoning": (responses, lambda b: b["input"][3].update(encrypted_content="ENC2")),
    "kept by the provider": (responses, lambda b: b.update(previous_response_id="resp_1")),
    "reasoning by reference": (responses, lambda b: b["input"].append({"type": "reasoning", "id": "rs_9"})),
    "one more message": (responses, lambda b: b["input"].append(say("user", "and now?"))),
    "no tools": (responses, lambda b: b.update(tools=[])),
    "a form": (responses, lambda b: b.update(text={"format": {"type": "json_schema"}})),
    "chat model": (chat, lambda b: b.update(model="gpt-y")),
    "chat text": (chat, lambda b: b["messages"][1].update(content="fix them")),
    "chat result": (chat, lambda b: b["messages"][3].update(content="b.py")),
    "chat call": (chat, lambda b: b["messages"][2]["tool_calls"][0].update(id="c")),
    "chat: one more message": (chat, lambda b: b["messages"].append({"role": "user", "content": "x"})),
    "chat: no tools": (chat, lambda b: b.pop("tools")),
    "chat: a form": (chat, lambda b: b.update(response_format={"type": "json_object"})),
}


@pytest.mark.parametrize("what", SAME)
def test_what_a_resume_changes_does_not_change_the_key(what: str) -> None:
    made, vary = SAME[what]
    body = made()
    vary(body)

    assert body != made()
    assert key(body) == key(made())


@pytest.mark.parametrize("what", OTHER)
def test_what_the_model_sees_otherwise_changes_the_key(what: str) -> None:
    made, vary = OTHER[what]
    body = deepcopy(made())
    vary(body)

    assert key(body) != key(made())


def test_the_order_of_members_does_not_matter() -> None:
    """Codex writes its metadata in another order each time."""
    body = responses()

    assert key(dict(reversed(list(body.items())))) == key(body)


@pytest.mark.parametrize("kind", ["item_reference", "reasoning"])
def test_references_to_what_the_provider_keeps_are_different_requests(kind: str) -> None:
    one, two = ({"model": "m", "input": [{"type": kind, "id": name}]} for name in ("a", "b"))

    assert key(one) != key(two)


def test_a_file_in_the_home_of_another_life_is_the_same_file() -> None:
    one, two = responses(), responses()
    for body, life in ((one, "0123456789ab"), (two, "ba9876543210")):
        body["input"][6]["output"] = f"saved to /run/life-{life}/home/x.txt"

    assert key(one) == key(two)


def test_a_plain_text_as_input_is_the_same_as_one_message() -> None:
    assert key({"model": "m", "input": "hi"}) == key({"model": "m", "input": [say("user", "hi")]})


@pytest.mark.parametrize("known", WIRES, ids=lambda known: known.name)
@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"\xff\xfe",
        b"[1]",
        b'{"input":5,"messages":5}',
        b'{"input":["x"],"messages":["x"]}',
        b'{"input":[{"content":[7]}],"messages":[{"content":[7]}]}',
        rb'{"input":"half \ud83d","messages":[{"role":"user","content":"half \ud83d"}]}',
        b'{"input":' + b"[" * 100_000 + b"]" * 100_000 + b"}",
        b'{"messages":[{"role":"user","content":[{"type":"x","n":NaN}]}]}',
    ],
)
def test_a_strange_body_has_a_key_and_is_passed_on(known: Any, body: bytes) -> None:
    assert known.match_key(body, "/") == known.match_key(bytes(bytearray(body)), "/")
    assert known.prepare(body) == body or b"\\ud83d" in body
    assert isinstance(known.model_of(body), str)
    assert known.wants_stream(body) is False
    assert known.media(body) == ()


@pytest.mark.parametrize("known", WIRES, ids=lambda known: known.name)
def test_half_a_surrogate_pair_is_replaced_so_that_the_provider_can_read_it(known: Any) -> None:
    assert known.prepare(rb'{"a":"\ud83d\ude00 \ud83d"}') == rb'{"a":"\ud83d\ude00 \ufffd"}'


# ----------------------------------------------------------------------------------- paths, headers


@pytest.mark.parametrize(
    ("method", "path", "model"),
    [
        ("POST", "/v1/responses", True),
        ("POST", "/v1/responses?x=1", True),
        ("POST", "/v1/responses/compact", False),
        ("GET", "/v1/responses", False),
        ("GET", "/v1/responses/resp_1", False),
        ("POST", "/v1/chat/completions", False),
    ],
)
def test_only_a_response_is_a_model_call(method: str, path: str, model: bool) -> None:
    assert RESPONSES.is_model_path(method, path) is model
    assert RESPONSES.is_free(method, path) is False


@pytest.mark.parametrize("known", WIRES, ids=lambda known: known.name)
def test_the_list_of_models_is_free_and_nothing_else(known: Any) -> None:
    assert known.is_free("GET", "/v1/models?x")
    assert known.is_free("GET", "/v1/models/ft:gpt-4o:org:x")
    assert not known.is_free("DELETE", "/v1/models/x")
    assert not known.is_free("GET", "/v1/models/../files")
    assert not known.is_free("GET", "/v1/files")
    assert known.credentials("k") == {"authorization": "Bearer k"}


@pytest.mark.parametrize(
    ("headers", "agent"),
    [
        ({}, None),
        ({"x-session-id": "ses_1"}, None),
        ({"x-session-id": "ses_2", "x-parent-session-id": "ses_1"}, "ses_2"),
        ({"x-codex-turn-metadata": '{"agent_name":"/root"}', "thread-id": "t"}, None),
        ({"x-codex-turn-metadata": '{"agent_name":"/root/a"}', "thread-id": "t2"}, "t2"),
        ({"x-codex-turn-metadata": '{"agent_name":"/root/a"}'}, "/root/a"),
        ({"x-codex-turn-metadata": "none"}, None),
    ],
)
def test_a_subagent_is_known_by_its_headers(headers: dict[str, str], agent: str | None) -> None:
    assert RESPONSES.agent_of(headers) == CHAT.agent_of(headers) == agent


@pytest.mark.parametrize(
    ("base", "url"),
    [
        ("https://api.openai.com", "https://api.openai.com/v1/responses"),
        ("https://api.openai.com/", "https://api.openai.com/v1/responses"),
        ("https://api.openai.com/v1", "https://api.openai.com/v1/responses"),
        ("https://openrouter.ai/api/v1/", "https://openrouter.ai/api/v1/responses"),
        ("https://host.example/v1beta/openai", "https://host.example/v1beta/openai/responses"),
    ],
)
def test_the_path_of_a_base_url_stands_for_the_version(base: str, url: str) -> None:
    assert Upstream(base, version="/v1").url("/v1/responses") == url
    assert Upstream(base).url("/v1/messages") == f"{base.rstrip('/')}/v1/messages"
