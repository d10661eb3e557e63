"""The ledger: who asked, who was paid for, and that kills do not spoil it."""

from __future__ import annotations

import json
from pathlib import Path

import httpx

from harness_durable.testing.provider import Cut, Ledger, Reply, ScriptedProvider, fingerprint, say
from harness_durable.testing.provider.key import match_key
from harness_durable.testing.provider.ledger import Kind
from tests.unit.provider_kit import ask, body, request

SECRET = "sk-ant-very-secret"


def key_of(prompt: str) -> str:
    return match_key(request(prompt))


async def test_each_request_leaves_one_arrival_and_one_end(tmp_path: Path) -> None:
    path = tmp_path / "ledger.jsonl"
    async with ScriptedProvider(lambda _: say("hi"), ledger=path) as provider:
        await ask(provider, body("a"), headers={"x-api-key": SECRET, "anthropic-beta": "b1"})
        await ask(provider, body("a", stream=False))
        await ask(provider, body("b"))
        tally = Ledger.read(path)
        assert tally == provider.ledger.tally()
    assert [line.kind for line in tally.lines] == ["requested", "delivered"] * 3
    assert [line.n for line in tally.lines] == [1, 1, 2, 2, 3, 3]
    assert tally.requested == {key_of("a"): 2, key_of("b"): 1}
    assert tally.delivered == {key_of("a"): 2, key_of("b"): 1}
    assert tally.paid_twice() == {key_of("a"): 2}
    assert tally.open() == []


async def test_an_arrival_says_what_was_asked_but_not_the_key(tmp_path: Path) -> None:
    path = tmp_path / "ledger.jsonl"
    async with ScriptedProvider(lambda _: say("hi"), ledger=path) as provider:
        await ask(provider, body("a"), headers={"x-api-key": SECRET, "anthropic-beta": "b1"})
    first = json.loads(path.read_text().splitlines()[0])
    assert first["n"] == 1
    assert first["key"] == key_of("a")
    assert first["model"] == "m"
    assert first["messages"] == 1
    assert first["stream"] is True
    assert first["path"] == "/v1/messages"
    assert first["headers"]["anthropic-beta"] == "b1"
    assert first["api_key"] == fingerprint(SECRET)
    assert len(first["api_key"]) == 16
    assert SECRET not in path.read_text()


async def test_the_message_id_ties_the_ledger_to_the_log() -> None:
    async with ScriptedProvider(lambda _: say("hi")) as provider:
        answer = (await ask(provider, body(stream=False))).json()
        assert provider.ledger.tally().lines[-1].message_id == answer["id"]


async def test_what_was_not_delivered_is_not_paid() -> None:
    replies = iter([Reply(say("x").blocks, faults=(Cut(2, "end"),)), say("x")])
    async with ScriptedProvider(lambda _: next(replies)) as provider:
        await ask(provider)
        await ask(provider)
        tally = provider.ledger.tally()
    assert tally.requested == {key_of("hi"): 2}
    assert tally.delivered == {key_of("hi"): 1}
    assert tally.counts("faulted") == {key_of("hi"): 1}
    assert tally.paid_twice() == {}


async def test_side_requests_are_not_in_the_ledger() -> None:
    async with ScriptedProvider(lambda _: say("hi")) as provider:
        async with httpx.AsyncClient(base_url=provider.url) as http:
            await http.head("/")
            await http.post("/v1/messages/count_tokens", json=body())
            await http.post("/v1/messages", content=b"no json")
        assert provider.ledger.tally().lines == ()


async def test_a_second_provider_goes_on_in_the_same_file(tmp_path: Path) -> None:
    path = tmp_path / "ledger.jsonl"
    for _ in range(2):
        async with ScriptedProvider(lambda _: say("hi"), ledger=path) as provider:
            await ask(provider)
    assert [line.n for line in Ledger.read(path).lines] == [1, 1, 2, 2]
    assert Ledger.read(path).paid_twice() == {key_of("hi"): 2}


def test_a_line_torn_by_a_kill_is_counted_and_harms_no_other(tmp_path: Path) -> None:
    path = tmp_path / "ledger.jsonl"
    writer = Ledger(path)
    writer.requested("k1")
    writer.close()
    whole = path.read_bytes()
    path.write_bytes(whole + whole[: len(whole) // 2])
    assert Ledger.read(path).damaged == 1
    writer = Ledger(path)
    n, before = writer.requested("k1")
    writer.close()
    assert (n, before) == (2, 1)
    tally = Ledger.read(path)
    assert ([line.n for line in tally.lines], tally.damaged) == ([1, 2], 1)


def test_requests_without_an_end_are_open() -> None:
    ledger = Ledger()
    ends: list[Kind] = ["delivered", "client_gone", "faulted", "refused", "abandoned"]
    for end in ends:
        n, _ = ledger.requested("k")
        ledger.ended(n, "k", end)
    last, _ = ledger.requested("k")
    assert ledger.tally().open() == [last]


def test_a_fingerprint_is_not_the_key_and_none_is_none() -> None:
    assert fingerprint("") == ""
    assert fingerprint("a") != fingerprint("b")
    assert len(fingerprint(SECRET)) == 16
