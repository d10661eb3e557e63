"""Which record answers which request, after crashes and attaches; and what an upstream shows of itself."""

from __future__ import annotations

import msgspec
import pytest
from rich.pretty import pretty_repr

from harness_durable.errors import BadSetting, UnknownName
from harness_durable.gateway import Upstream, wire
from harness_durable.gateway.replay import recorded
from harness_durable.journal import Inbox, Journal
from harness_durable.journal.calls import Asked, Response
from harness_durable.testing.provider import Reply, ScriptedProvider, ToolUse
from tests.unit.gateway_kit import body, gateway
from tests.unit.memory_world import OTHER, MemoryWorld
from tests.unit.session_kit import SESSION, begun, taken

NONE: frozenset[str] = frozenset()


async def asked(journal: Journal, key: str = "k", life: str = "L1", agent: str | None = None) -> str:
    return await journal.model_requested(
        key=key, life=life, wire="anthropic", model="x", path="/", body=b"{}", field="messages", agent=agent
    )


async def answered(journal: Journal, key: str = "k", *, tool: str = "", agent: str | None = None) -> str:
    call = await asked(journal, key, agent=agent)
    tools = (Asked(tool, "Bash", b"{}", "never", "builtin"),) if tool else ()
    await journal.model_completed(call, Response(200, "application/json", b"{}", tools=tools))
    return call


def found(journal: Journal, *, key: str = "k", life: str = "L1", spent: frozenset[str] = NONE) -> str | None:
    call = recorded(journal.state, key, life, spent)
    return call.id if call is not None else None


async def test_the_kth_request_gets_the_kth_record() -> None:
    journal = await begun(MemoryWorld())
    first, other, second = [await answered(journal, key) for key in ("k", "other", "k")]

    assert found(journal) == first
    assert found(journal, spent=frozenset({first})) == second
    assert found(journal, spent=frozenset({first, second})) is None
    assert found(journal, key="other") == other


async def test_what_failed_or_was_lost_is_never_given() -> None:
    journal = await begun(MemoryWorld())
    await journal.model_failed(await asked(journal), 529, "busy")
    await journal.model_failed(await asked(journal), None, "cut")
    await asked(journal)

    assert found(journal) is None


async def test_what_the_harness_of_this_life_has_is_not_given_to_it_again() -> None:
    journal = await begun(MemoryWorld())
    ran = await answered(journal, tool="toolu_1")
    await journal.tool_gate("toolu_1", "L1")

    assert found(journal, life="L1") is None
    assert found(journal, life="L2") == ran, "a new life has nothing"
    assert found(journal, life="L2", spent=frozenset({ran})) is None, "this worker gave it"


async def test_a_subagent_that_goes_on_gets_its_records_and_a_later_one_does_not() -> None:
    journal = await begun(MemoryWorld())
    await answered(journal, "main", tool="toolu_first")
    inner = await answered(journal, agent="a-1")
    assert found(journal, life="L2") == inner, "the first subagent goes on in another life"

    await journal.tool_finished("toolu_first", ok=True, result=b"report", source="hook")
    await answered(journal, "main again", tool="toolu_second")
    assert found(journal, life="L2") is None


async def test_another_turn_gets_an_answer_of_its_own() -> None:
    world = MemoryWorld()
    journal = await begun(world)
    await answered(journal)
    await journal.turn_completed("done")
    await (await Inbox.open(world, SESSION)).accept("m-2", "again")
    await journal.still_ours()
    await journal.turn_started("m-2")

    assert found(journal) is None


async def test_a_worker_that_died_before_it_forwarded_is_continued_by_the_next_in_the_same_life() -> None:
    reply = Reply((ToolUse("Bash", id="toolu_1"),))
    async with ScriptedProvider(lambda _: reply, check=False) as provider:
        async with gateway(provider.url, ready=False) as rig:
            sent = await rig.start(body())
            await rig.journal.until(lambda _: "model.completed" in rig.kinds())
            await sent.stream.aclose()
        journal = await taken(rig.world, OTHER)
        async with gateway(provider.url, journal=journal, world=rig.world) as second:
            got = await second.ask(body())
            await journal.tool_gate("toolu_1", "L1")
        async with gateway(provider.url, journal=journal, world=rig.world) as third:
            fresh = await third.ask(body())

    assert b'"toolu_1"' in got.body
    assert b'"toolu_1"' not in fresh.body, "the harness ran it, so it has that response"
    assert len(provider.requests) == 2


async def test_after_an_attach_words_are_given_to_the_same_life_at_most_once_more() -> None:
    async with ScriptedProvider(lambda _: Reply(), check=False) as provider:
        async with gateway(provider.url) as rig:
            first = await rig.ask(body())
        journal = await taken(rig.world, OTHER)
        async with gateway(provider.url, journal=journal, world=rig.world) as second:
            again = await second.ask(body())
            assert len(provider.requests) == 1, "nobody knows whether the harness read it"
            fresh = await second.ask(body())

    assert again.body == first.body
    assert fresh.body != first.body
    assert len(provider.requests) == 2


# ----------------------------------------------------------------------------------------- upstream


def test_an_upstream_shows_no_secret() -> None:
    upstream = Upstream(
        "https://user:pw-canary@api.example/v1", "key-canary", {"x-auth-token": "head-canary"}
    )

    for shown in (repr(upstream), str(upstream), pretty_repr(upstream), f"{upstream!r:>5}"):
        assert "canary" not in shown
        assert "api.example" in shown


@pytest.mark.parametrize("key", ["", "sk-1\n", " sk-1", "sk 1", "schlüssel"])
def test_a_key_that_no_header_can_carry_is_refused_without_showing_it(key: str) -> None:
    with pytest.raises(BadSetting) as refused:
        Upstream("https://api.example", key)

    assert "sk" not in str(refused.value)


@pytest.mark.parametrize("url", ["", "api.example", "ftp://api.example", "https://"])
def test_a_base_url_that_cannot_work_is_refused(url: str) -> None:
    with pytest.raises(BadSetting, match="https://api"):
        Upstream(url)


@pytest.mark.parametrize("headers", [{"x y": "1"}, {"x": "1\n2"}, {"x": "1\r\nauthorization: z"}])
def test_a_header_that_would_become_two_is_refused(headers: dict[str, str]) -> None:
    with pytest.raises(BadSetting, match="header"):
        Upstream("https://api.example", "k", headers)


def test_a_wire_is_found_by_name() -> None:
    assert wire("anthropic").name == "anthropic"
    assert msgspec.json.decode(wire("anthropic").error(529, "x"))["error"]["type"] == "overloaded_error"
    with pytest.raises(UnknownName, match="anthropic"):
        wire("morse")
