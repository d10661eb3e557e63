"""The gateway at work: who gets in, what is stored before it is forwarded, what is answered from the log."""

from __future__ import annotations

import json
from itertools import pairwise

import anyio
import pytest

from harness_durable.gateway import asking, server
from harness_durable.gateway.wire import JSON
from harness_durable.journal import calls
from harness_durable.journal.requests import body_of
from harness_durable.testing.provider import Reply, ScriptedProvider, Style, Text, ToolUse, fingerprint, say
from harness_durable.testing.provider.messages import Request, first_user_text
from tests.unit.gateway_kit import KEY, MODEL, TOKEN, Got, body, gateway, scripted, until
from tests.unit.memory_world import OTHER
from tests.unit.session_kit import life, taken

DEPLOY = ToolUse("mcp__durable__deploy", id="toolu_1", raw='{\n "version": 9007199254740993 }')


def deploys(_: Request) -> Reply:
    return Reply((Text("I deploy. 👋"), DEPLOY), style=Style(pings=True, split_bytes=3, split_input=2))


def echoes(request: Request) -> Reply:
    return say(f"you said {first_user_text(request)}")


# ---------------------------------------------------------------------------------- store, then forward


async def test_a_response_and_its_tool_calls_are_in_the_log_when_the_harness_gets_it() -> None:
    async with scripted(deploys) as (provider, rig):
        got = await rig.ask(body())
        state = rig.journal.state

    assert got.status == 200
    assert got.headers["content-type"].startswith("text/event-stream")
    assert got.headers["connection"] == "close"
    assert rig.kinds() == ["model.requested", "model.completed", "tool.requested"]
    call = state.model_calls["m1"]
    assert call.body is not None
    assert call.body.inline == got.body
    assert (call.model, call.path, call.wire) == (MODEL, "/v1/messages?beta=true", "anthropic")
    assert (call.stop_reason, call.tool_calls, call.http_status) == ("tool_use", ("toolu_1",), 200)
    tool = state.tool_calls["toolu_1"]
    assert (tool.name, tool.policy, tool.origin) == (DEPLOY.name, "never", "custom")
    assert tool.input.inline == DEPLOY.raw.encode()
    assert len(provider.ledger.tally().delivered) == 1


@pytest.mark.parametrize("kind", ["model.requested", "model.completed"])
async def test_nothing_moves_before_the_append_has_returned(kind: str) -> None:
    async with scripted(deploys) as (provider, rig):
        reached, go_on = anyio.Event(), anyio.Event()

        async def hold() -> None:
            reached.set()
            await go_on.wait()

        if kind == "model.requested":
            rig.world.between = hold
        sent = await rig.start(body())
        if kind == "model.completed":
            await until(lambda: "model.requested" in rig.kinds())
            rig.world.between = hold
        await reached.wait()
        with anyio.move_on_after(0.1) as waited:
            await sent.stream.receive()
        paid = len(provider.requests)
        go_on.set()
        got = await sent.response()

    assert waited.cancelled_caught
    assert paid == (0 if kind == "model.requested" else 1)
    assert got.status == 200


async def test_nothing_is_forwarded_before_the_barrier_is_in_place() -> None:
    async with scripted(deploys, ready=False) as (_, rig):
        sent = await rig.start(body())
        await until(lambda: "model.completed" in rig.kinds())
        with anyio.move_on_after(0.1) as waited:
            await sent.stream.receive()
        rig.ready.set()
        got = await sent.response()

    assert waited.cancelled_caught
    assert got.status == 200


async def test_a_json_answer_is_stored_and_forwarded_as_it_is() -> None:
    async with scripted(deploys) as (_, rig):
        got = await rig.ask(body(stream=False))
        tool = rig.journal.state.tool_calls["toolu_1"]

    assert got.headers["content-type"] == JSON
    assert json.loads(got.body)["content"][1]["input"] == {"version": 9007199254740993}
    assert tool.input.inline is not None
    assert json.loads(tool.input.inline) == {"version": 9007199254740993}


async def test_the_log_holds_the_request_as_it_went_upstream() -> None:
    asked = body()
    sentinel = b', {"role": "user", "content": [{"type": "text", "text": "<durable-resume/>"}]}]'
    async with scripted(echoes) as (provider, rig):
        await rig.ask(json.dumps(asked).encode().replace(b"]", sentinel, 1))
        logged = await body_of(rig.journal.reader, rig.journal.state, "m1", "messages")

    assert json.loads(logged) == asked == provider.requests[0].body


async def test_text_is_shown_while_it_arrives() -> None:
    async with scripted(lambda _: Reply((Text("x" * 200),), event_delay=0.03)) as (_, rig):
        await rig.ask(body())

    texts = [shown.text for shown in rig.progress]
    assert len(texts) > 2
    assert all(later.startswith(earlier) for earlier, later in pairwise(texts))
    assert (rig.progress[-1].text, rig.progress[-1].size, rig.progress[-1].done) == ("x" * 200, 200, True)
    assert not any(shown.done for shown in rig.progress[:-1])


async def test_c145_when_it_is_asked_again_it_is_waited_for_no_longer() -> None:
    """Also when the log answers: what was shown before is taken back at once."""
    async with scripted(lambda _: Reply((Text("hi"),))) as (provider, rig):
        await rig.ask(body())
        async with gateway(provider.url, journal=rig.journal, world=rig.world) as second:
            await second.ask(body())
    for shown in (rig.progress[0], second.progress[0]):
        assert (shown.call, shown.text, shown.done) == ("m1", "", False)
    assert len(provider.requests) == 1


async def test_each_crash_point_is_where_its_name_says(monkeypatch: pytest.MonkeyPatch) -> None:
    reached: list[tuple[str, list[str]]] = []
    async with scripted(deploys) as (_, rig):

        def note(name: str) -> None:
            reached.append((name, rig.kinds()))

        for module in (asking, server, calls):
            monkeypatch.setattr(module, "reach", note)
        await rig.ask(body())

    asked, stored = ["model.requested"], ["model.requested", "model.completed", "tool.requested"]
    assert reached == [
        ("model.requested", asked),
        ("model.streaming", asked),
        ("model.upstream_done", asked),
        ("model.completed", stored),
        ("tool.requested", stored),
        ("model.forwarding", stored),
    ]


# ------------------------------------------------------------------------------------------ answered before


async def test_a_recorded_response_is_given_again_byte_for_byte_and_not_paid_again() -> None:
    async with ScriptedProvider(deploys, check=False) as provider:
        async with gateway(provider.url) as rig:
            first = await rig.ask(body())
        journal = await taken(rig.world, OTHER)
        await life(journal, "L2")
        async with gateway(provider.url, journal=journal, world=rig.world, life="L2") as second:
            again = await second.ask(body())
        paid = provider.ledger.tally()

    assert again.body == first.body
    assert again.headers["content-type"] == first.headers["content-type"]
    assert second.kinds()[-1] == "model.replayed"
    assert journal.state.model_calls["m1"].replays == ["L2"]
    assert sum(paid.delivered.values()) == 1


@pytest.mark.parametrize("stream", [True, False])
async def test_a_recorded_response_is_given_in_the_form_that_is_asked_for(stream: bool) -> None:
    async with ScriptedProvider(deploys, check=False) as provider:
        async with gateway(provider.url) as rig:
            await rig.ask(body(stream=stream))
        journal = await taken(rig.world, OTHER)
        await life(journal, "L2")
        async with gateway(provider.url, journal=journal, world=rig.world, life="L2") as second:
            again = await second.ask(body(stream=not stream))

    assert again.headers["content-type"].startswith(JSON if stream else "text/event-stream")
    assert b"toolu_1" in again.body
    assert len(provider.requests) == 1


async def test_equal_requests_of_a_new_life_get_the_records_in_order_and_then_the_provider() -> None:
    said = iter("abc")
    async with ScriptedProvider(lambda _: say(next(said)), check=False) as provider:
        async with gateway(provider.url) as rig:
            first = [await rig.ask(body(stream=False)) for _ in range(2)]
        journal = await taken(rig.world, OTHER)
        await life(journal, "L2")
        async with gateway(provider.url, journal=journal, world=rig.world, life="L2") as second:
            again = [await second.ask(body(stream=False)) for _ in range(3)]

    texts = [json.loads(got.body)["content"][0]["text"] for got in [*first, *again]]
    assert texts == ["a", "b", "a", "b", "c"]


async def test_two_subagents_of_a_new_life_that_ask_the_same_at_once_get_a_record_each() -> None:
    async with ScriptedProvider(lambda _: Reply((ToolUse("Bash"),)), check=False) as provider:
        async with gateway(provider.url) as rig:
            before = [(await rig.ask(body())).body for _ in range(2)]
        journal = await taken(rig.world, OTHER)
        await life(journal, "L2")
        async with gateway(provider.url, journal=journal, world=rig.world, life="L2", ready=False) as second:
            sent = [await second.start(body(), headers={"x-claude-code-agent-id": name}) for name in "ab"]
            await until(lambda: second.kinds()[-2:] == ["model.replayed"] * 2)
            second.ready.set()
            again = [(await each.response()).body for each in sent]

    assert sorted(again) == sorted(before)
    assert len(provider.requests) == 2


async def test_a_request_that_comes_twice_is_one_call() -> None:
    async with scripted(lambda _: Reply((DEPLOY,), start_delay=0.2)) as (provider, rig):
        sent = [await rig.start(body()) for _ in range(3)]
        got = [await each.response() for each in sent]

    assert len(provider.requests) == 1
    assert got[0].body == got[1].body == got[2].body
    assert rig.kinds() == ["model.requested", "model.completed", "tool.requested"]


async def test_two_subagents_that_ask_the_same_at_once_are_two_calls() -> None:
    async with scripted(lambda _: Reply((ToolUse("Bash"),), start_delay=0.1)) as (provider, rig):
        sent = [await rig.start(body(), headers={"x-claude-code-agent-id": name}) for name in "ab"]
        got = [await each.response() for each in sent]
        agents = [call.agent for call in rig.journal.state.model_calls.values()]

    assert len(provider.requests) == 2
    assert got[0].body != got[1].body
    assert sorted(agent or "" for agent in agents) == ["a", "b"]


async def test_a_harness_that_hung_up_finds_the_response_when_it_asks_again() -> None:
    async with scripted(lambda _: Reply((DEPLOY,), start_delay=0.2)) as (provider, rig):
        sent = await rig.start(body())
        await until(lambda: bool(provider.requests))
        await sent.stream.aclose()
        await until(lambda: "model.completed" in rig.kinds())
        got = await rig.ask(body())
        third = await rig.ask(body())

    assert got.status == third.status == 200
    assert b"toolu_1" in got.body
    assert rig.kinds()[3] == "model.replayed"
    assert len(provider.requests) == 2, "what was delivered is not given again"
    assert not sent.request.finished


async def test_a_harness_that_hung_up_while_its_response_was_held_gets_it_when_it_asks_again() -> None:
    async with scripted(deploys, ready=False) as (provider, rig):
        sent = await rig.start(body())
        await until(lambda: "model.completed" in rig.kinds())
        await sent.stream.aclose()
        again = await rig.start(body())
        rig.ready.set()
        got = await again.response()

    assert got.status == 200
    assert len(provider.requests) == 1


async def test_what_is_under_way_when_the_harness_dies_can_be_waited_for() -> None:
    async with scripted(lambda _: Reply((DEPLOY,), start_delay=0.2)) as (provider, rig):
        sent = await rig.start(body())
        await until(lambda: bool(provider.requests))
        await sent.stream.aclose()
        await rig.gateway.drained()
        kinds = rig.kinds()

    assert kinds == ["model.requested", "model.completed", "tool.requested"]


# ---------------------------------------------------------------------------------------- tool ids


@pytest.mark.parametrize("stream", [True, False])
async def test_ids_that_repeat_or_are_empty_are_made_unique_before_anything_is_stored(stream: bool) -> None:
    """C043: two turns with the id "x:0" are calls of their own."""

    def same(_: Request) -> Reply:
        return Reply((ToolUse("A", id="x:0"), ToolUse("B", id="x:0"), ToolUse("C", id="own")))

    async with scripted(same) as (_, rig):
        first = await rig.ask(body("one", stream=stream))
        second = await rig.ask(body("two", stream=stream))
        tools = rig.journal.state.tool_calls
        names = list(tools)

    assert len(names) == 6
    assert [tool.name for tool in tools.values()] == ["A", "B", "C"] * 2
    assert (names[0], names[2]) == ("x:0", "own")
    for got, ids in ((first, names[:3]), (second, names[3:])):
        assert [got.body.count(f'"{name}"'.encode()) for name in ids] == [1, 1, 1]
    for model in rig.journal.state.model_calls.values():
        assert model.body is not None
        assert model.body.inline in (first.body, second.body)


# ----------------------------------------------------------------------------------- who gets in


async def admitted(rig_path: str, headers: dict[str, str], auth: str = "key") -> tuple[Got, ScriptedProvider]:
    async with scripted(echoes, auth=auth) as (provider, rig):
        got = await rig.ask(body(), path=rig_path, headers=headers)
    return got, provider


@pytest.mark.parametrize(
    ("path", "headers"),
    [
        ("/v1/messages", {"x-api-key": TOKEN}),
        ("/v1/messages?beta=true", {"x-api-key": "", "authorization": f"bearer {TOKEN}"}),
        (f"/{TOKEN}/v1/messages?beta=true", {"x-api-key": "dummy"}),
    ],
)
async def test_the_token_of_the_life_opens_and_the_key_goes_upstream_in_its_place(
    path: str, headers: dict[str, str]
) -> None:
    got, provider = await admitted(path, headers)

    assert got.status == 200
    line = provider.ledger.tally().lines[0]
    assert line.path.startswith("/v1/messages")
    assert line.api_key == fingerprint(KEY)


@pytest.mark.parametrize(
    ("path", "headers"),
    [
        ("/v1/messages", {"x-api-key": "wrong"}),
        ("/v1/messages", {"x-api-key": ""}),
        ("/v1/messages", {"x-api-key": "", "authorization": "Basic eDp5"}),
        ("/wrong/v1/messages", {"x-api-key": "wrong"}),
        ("/v1/models", {"x-api-key": "é"}),
    ],
)
async def test_without_the_token_nothing_is_asked(path: str, headers: dict[str, str]) -> None:
    got, provider = await admitted(path, headers)

    assert got.status == 401
    assert got.error["type"] == "authentication_error"
    assert not provider.requests


async def test_a_login_of_the_harness_is_passed_on_and_the_token_is_not() -> None:
    login = {"x-api-key": "", "authorization": "Bearer own-login-canary"}
    got, provider = await admitted(f"/{TOKEN}/v1/messages", login, "login")
    refused, _ = await admitted("/v1/messages", {"x-api-key": TOKEN}, "login")

    assert got.status == 200
    assert provider.ledger.tally().lines[0].api_key == fingerprint("own-login-canary")
    assert refused.status == 401


@pytest.mark.parametrize("method", ["HEAD", "GET"])
@pytest.mark.parametrize("path", ["/", f"/{TOKEN}", f"/{TOKEN}/"])
async def test_the_root_says_that_we_are_here(method: str, path: str) -> None:
    async with scripted(echoes) as (_, rig):
        got = await rig.ask(b"", path=path, method=method)

    assert got.status == 200


async def test_other_endpoints_are_passed_on_and_not_recorded() -> None:
    async with scripted(echoes) as (_, rig):
        count = await rig.ask(body(), path="/v1/messages/count_tokens")
        missing = await rig.ask(b"", path="/v1/models/none?limit=1", method="GET")

    assert count.status == 200
    assert json.loads(count.body)["input_tokens"] > 0
    assert missing.status == 404
    assert "request-id" in missing.headers
    assert rig.kinds() == []


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("POST", "/v1/messages/batches"),
        ("POST", "//v1/messages"),
        ("POST", "/v1/files"),
        ("GET", "/v1/organizations/me"),
        ("DELETE", "/v1/models/x"),
        ("GET", "/v1/models/../organizations"),
    ],
)
async def test_nothing_that_could_spend_the_key_outside_the_log_is_passed_on(method: str, path: str) -> None:
    async with scripted(lambda _: say("hi")) as (provider, rig):
        got = await rig.ask(b"{}", path=path, method=method)

    assert b"404" in got.raw.split(b"\r\n")[0]
    assert b"nothing else" in got.raw, "refused by us and not by the provider"
    assert not provider.requests
