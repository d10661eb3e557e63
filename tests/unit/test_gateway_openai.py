"""The gateway with OpenAI's two wires before the scripted provider: recorded, replayed, renamed, and honest
about what goes wrong."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from harness_durable.gateway import wire
from harness_durable.journal.requests import body_of
from harness_durable.testing.provider import (
    Cut,
    HttpError,
    Mood,
    Reply,
    Request,
    ScriptedProvider,
    StreamError,
    Style,
    Text,
    Thinking,
    ToolUse,
    Usage,
    fingerprint,
    say,
)
from harness_durable.testing.provider.messages import first_user_text
from harness_durable.testing.provider.reply import Fault
from tests.unit.gateway_kit import KEY, gateway, scripted
from tests.unit.memory_world import OTHER
from tests.unit.openai_kit import BEARER, PATHS, ask, asking, collected
from tests.unit.session_kit import taken

BOTH = pytest.mark.parametrize("speaks", ["openai-responses", "openai-chat"])
ARGUMENTS = '{ "command": "echo größe 👋", "n": 9007199254740993 }'
BLOCKS = (
    Thinking("hm"),
    Text("first"),
    ToolUse("bash", raw=ARGUMENTS, id="call_1"),
    ToolUse("look", id="call_2"),
)


def once(*faults: Fault, style: Style | None = None) -> Callable[[object], Reply]:
    """Faulty at first, then well."""
    given = iter([Reply(BLOCKS, style=style, faults=faults)])
    return lambda _: next(given, Reply(BLOCKS))


@BOTH
async def test_a_response_is_recorded_with_its_calls_before_it_is_forwarded(speaks: str) -> None:
    reply = Reply(BLOCKS, usage=Usage(5, 6, 0, 7))
    async with scripted(lambda _: reply, speaks=speaks) as (provider, rig):
        got = await ask(rig, asking(speaks, "go", stream_options={"include_usage": True}))
        state = rig.journal.state
        written = await rig.journal.reader.content(state.tool_calls["call_1"].input)
        field = wire(speaks).list_field
        kept = await body_of(rig.journal.reader, state, "m1", field)
        tally = provider.ledger.tally()

    parsed, said = collected(wire(speaks), [got.body])
    call = state.model_calls["m1"]
    assert (got.status, parsed.complete, said) == (200, True, "first")
    assert rig.kinds() == ["model.requested", "model.completed", "tool.requested", "tool.requested"]
    assert (call.wire, call.model, call.response_id) == (speaks, "model-x", parsed.id)
    assert call.usage is not None
    assert (call.usage.input, call.usage.output, call.usage.cache_read) == (5, 6, 7)
    assert written == ARGUMENTS.encode()
    assert json.loads(kept)[field] == asking(speaks, "go")[field]
    [delivered] = [line for line in tally.lines if line.kind == "delivered"]
    assert delivered.message_id == parsed.id, "the ledger and the log speak of the same response"
    assert tally.lines[0].api_key == fingerprint(KEY)
    assert (tally.lines[0].path, tally.lines[0].stream) == (PATHS[speaks], True)


@BOTH
async def test_the_same_request_of_the_next_life_is_answered_from_the_log(speaks: str) -> None:
    async with ScriptedProvider(lambda _: Reply(BLOCKS), check=False) as provider:
        async with gateway(provider.url, speaks=speaks) as rig:
            first = await ask(rig, asking(speaks, "go"))
            world = rig.world
        journal = await taken(world, OTHER)
        async with gateway(provider.url, world=world, journal=journal, life="L2", speaks=speaks) as rig:
            again = await ask(rig, asking(speaks, "go", prompt_cache_key="another"))
            whole = await ask(rig, asking(speaks, "other", stream=False))

    assert again.body == first.body
    assert [first_user_text(request) for request in provider.requests] == ["go", "other"]
    assert whole.headers["content-type"] == "application/json"


@BOTH
@pytest.mark.parametrize("stream", [True, False])
async def test_a_recorded_response_comes_in_the_form_that_is_asked_for(speaks: str, stream: bool) -> None:
    async with ScriptedProvider(lambda _: Reply(BLOCKS), check=False) as provider:
        async with gateway(provider.url, speaks=speaks) as rig:
            await ask(rig, asking(speaks, "go", stream=not stream))
            world = rig.world
        journal = await taken(world, OTHER)
        async with gateway(provider.url, world=world, journal=journal, life="L2", speaks=speaks) as rig:
            got = await ask(rig, asking(speaks, "go", stream=stream))

    known = wire(speaks)
    parsed = collected(known, [got.body])[0] if stream else known.parse_json(got.body)
    assert parsed.complete
    assert [(tool.id, tool.name) for tool in parsed.tools] == [("call_1", "bash"), ("call_2", "look")]
    assert len(provider.requests) == 1


@BOTH
@pytest.mark.parametrize("stream", [True, False])
async def test_c043_ids_that_repeat_or_are_empty_are_replaced_before_the_harness_sees_them(
    speaks: str, stream: bool
) -> None:
    reply = Reply((ToolUse("A", id="x:0"), ToolUse("B", id="x:0"), ToolUse("C", id=" \x7f")))
    async with scripted(lambda _: reply, speaks=speaks) as (_, rig):
        got = await ask(rig, asking(speaks, "go", stream=stream))
        recorded = rig.journal.state.tool_calls

    known = wire(speaks)
    parsed = collected(known, [got.body])[0] if stream else known.parse_json(got.body)
    ids = [tool.id for tool in parsed.tools]
    assert ids[0] == "x:0"
    assert len(set(ids)) == 3
    assert [recorded[name].name for name in ids] == ["A", "B", "C"]


@BOTH
@pytest.mark.parametrize("seed", range(6))
async def test_a_messy_provider_is_understood(speaks: str, seed: int) -> None:
    """Arguments and characters cut anywhere, keep-alives, odd chunks, packed bodies."""
    messy = ScriptedProvider(lambda _: Reply(BLOCKS), mood=Mood(seed, mess=0.7))
    async with messy as provider, gateway(provider.url, speaks=speaks) as rig:
        got = await ask(rig, asking(speaks, "go"))

    parsed, said = collected(wire(speaks), [got.body])
    assert (parsed.complete, said) == (True, "first")
    assert parsed.tools[0].input == ARGUMENTS.encode()


# ------------------------------------------------------------------------------------------ faults


@BOTH
@pytest.mark.parametrize("status", [400, 401, 429, 500, 503])
async def test_an_error_status_goes_to_the_harness_as_it_is(speaks: str, status: int) -> None:
    """C143: status and Retry-After are the provider's, and only the harness tries again."""
    fault = HttpError(status, message="no", headers={"retry-after": "7"})
    async with scripted(once(fault), speaks=speaks) as (provider, rig):
        got = await ask(rig, asking(speaks, "go"))
        call = rig.journal.state.model_calls["m1"]

    assert (got.status, got.error["message"], got.headers["retry-after"]) == (status, "no", "7")
    assert (call.status, call.http_status) == ("failed", status)
    assert call.reason.startswith(f"{status} no; ")
    assert len(provider.requests) == 1


@BOTH
async def test_c145_a_limit_that_is_used_up_comes_with_a_wait_that_no_harness_waits_for(speaks: str) -> None:
    fault = HttpError(429, kind="insufficient_quota", headers={"retry-after": "1"})
    async with scripted(once(fault), speaks=speaks) as (_, rig):
        got = await ask(rig, asking(speaks, "go"))

    assert (got.status, got.headers["retry-after"]) == (429, "3600")


@BOTH
@pytest.mark.parametrize("how", ["close", "reset", "end"])
@pytest.mark.parametrize("event", [0, 3, 6, 99])
async def test_a_stream_that_was_cut_is_an_error_status_and_never_a_part_of_a_body(
    speaks: str, event: int, how: str
) -> None:
    """C142, C146"""
    fault = Cut(event, "end" if how == "end" else "reset" if how == "reset" else "close", 9)
    async with scripted(once(fault), speaks=speaks) as (_, rig):
        cut = await ask(rig, asking(speaks, "go"))
        kinds = rig.kinds()
        again = await ask(rig, asking(speaks, "go"))

    assert cut.status == 502
    assert b"call_1" not in cut.raw
    assert cut.error["type"] == "server_error"
    assert kinds == ["model.requested", "model.failed"]
    assert again.status == 200


@BOTH
@pytest.mark.parametrize(
    ("kind", "status"),
    [
        ("overloaded_error", 503),
        ("api_error", 502),
        ("insufficient_quota", 429),
        ("invalid_request_error", 400),
    ],
)
async def test_an_error_within_a_good_status_becomes_an_error_status(
    speaks: str, kind: str, status: int
) -> None:
    """C146: nothing was sent before, so an honest status can be."""
    async with scripted(once(StreamError(4, kind, "too much")), speaks=speaks) as (_, rig):
        got = await ask(rig, asking(speaks, "go"))

    assert got.status == status
    assert "too much" in got.error["message"]
    assert rig.kinds() == ["model.requested", "model.failed"]


async def test_a_response_that_was_cut_off_is_recorded_as_refused() -> None:
    reply = Reply(BLOCKS, stop_reason="max_tokens")
    async with scripted(lambda _: reply, speaks="openai-responses") as (_, rig):
        got = await ask(rig, asking("openai-responses", "go"))

    assert got.status == 400
    assert "max_output_tokens" in rig.journal.state.model_calls["m1"].reason


@BOTH
async def test_without_the_token_of_the_life_nothing_is_asked(speaks: str) -> None:
    async with scripted(lambda _: say("hi"), speaks=speaks) as (provider, rig):
        wrong = await ask(rig, asking(speaks, "go"), {"authorization": "Bearer other"})
        free = await rig.ask(b"", path="/v1/models", method="GET", headers=BEARER)
        other = await rig.ask(b"{}", path="/v1/files", headers=BEARER)
        socket = await rig.ask(
            b"", path=PATHS[speaks], method="GET", headers={**BEARER, "upgrade": "websocket"}
        )

    assert (wrong.status, wrong.error["code"]) == (401, "invalid_api_key")
    assert json.loads(free.body)["data"][0]["id"] == "scripted"
    assert [other.status, socket.status] == [404, 404]
    assert not provider.requests


# ------------------------------------------------------------------------------------- conversations


@BOTH
async def test_a_conversation_goes_on_with_its_results(speaks: str) -> None:
    """The provider checks it: each call with its one result."""

    def policy(request: Request) -> Reply:
        return say("done") if "tool_result" in json.dumps(request.said) else Reply(BLOCKS[2:])

    async with ScriptedProvider(policy) as provider, gateway(provider.url, speaks=speaks) as rig:
        body = asking(speaks, "go")
        first = await ask(rig, body)
        items = [{"role": "user", "content": "go"}, *answered(speaks, first.body)]
        second = await ask(rig, {**body, wire(speaks).list_field: items})
        refused = await ask(rig, {**body, wire(speaks).list_field: items[:-1]})

    assert collected(wire(speaks), [second.body])[1] == "done"
    assert refused.status == 400


def answered(speaks: str, raw: bytes) -> list[Any]:
    """What a harness adds after a response: its calls, and a result for each."""
    whole = json.loads(wire(speaks).to_json(raw))
    if speaks == "openai-chat":
        message = whole["choices"][0]["message"]
        results = [
            {"role": "tool", "tool_call_id": call["id"], "content": "ok"} for call in message["tool_calls"]
        ]
        return [message, *results]
    output = whole["output"]
    calls = [item for item in output if item["type"] == "function_call"]
    return [
        *output,
        *({"type": "function_call_output", "call_id": call["call_id"], "output": "ok"} for call in calls),
    ]
