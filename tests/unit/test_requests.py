"""Model requests as parts: exact, and linear in what is new."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness_durable.journal.requests import Bases, body_of, join, split
from tests.unit.memory_world import MemoryWorld
from tests.unit.session_kit import begun

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=10,
)


@given(st.dictionaries(st.text(max_size=5), JSON, max_size=4), st.lists(JSON, max_size=5))
def test_what_was_split_joins_to_the_same_json(frame: dict[str, object], messages: list[object]) -> None:
    body = json.dumps({**frame, "messages": messages}).encode()
    parts = split(body, "messages")
    assert len(parts) == 1 + len(messages)
    assert json.loads(join(parts, "messages")) == json.loads(body)


def test_each_message_keeps_its_very_bytes() -> None:
    odd = rb'{ "id":9007199254740993001, "h":"\u0000\ud83d\ude00",  "f":1.0 }'
    body = b'{"model":"x", "messages": [' + odd + b", 1 ]}"
    assert split(body, "messages")[1:] == [odd, b"1"]
    assert odd in join(split(body, "messages"), "messages")


def test_the_order_of_the_other_members_is_kept() -> None:
    body = b'{"z":1,"messages":[{"a":1}],"b":[2]}'
    assert join(split(body, "messages"), "messages") == body


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b"[]",
        b"3",
        b"{}",
        b'{"messages":3}',
        b'{"messages":null}',
        b"\xff",
        b"[" * 100_000,
        rb'{"messages":["half an emoji \ud83d"]}',
    ],
)
def test_what_cannot_be_split_is_one_part_and_stays_exact(body: bytes) -> None:
    assert split(body, "messages") == [body]
    assert join([body], "messages") == body


def test_a_changed_frame_keeps_nothing_and_a_changed_tail_keeps_its_head() -> None:
    bases = Bases()
    bases.remember("main", "m1", [b"f", b"1", b"2"])
    assert bases.kept("main", [b"f", b"1", b"2", b"3"]) == ("m1", 3)
    assert bases.kept("main", [b"f", b"1", b"x"]) == ("m1", 2)
    assert bases.kept("main", [b"g", b"1", b"2"]) == (None, 0)
    assert bases.kept("sub", [b"f", b"1"]) == (None, 0)


async def test_requests_that_grow_cost_what_is_new_and_come_back_exactly() -> None:
    world = MemoryWorld()
    journal = await begun(world)
    messages: list[object] = []
    bodies: dict[str, bytes] = {}
    before = stored(world)
    for turn in range(200):
        messages.append({"role": "user", "content": f"{turn} " + "x" * 500})
        body = json.dumps({"model": "x", "messages": messages, "max_tokens": 1}).encode()
        call = await journal.model_requested(
            key=str(turn),
            life="L1",
            wire="anthropic",
            model="x",
            path="/",
            body=body,
            field="messages",
            agent=None,
        )
        bodies[call] = body
    assert stored(world) - before < 200 * 1200  # all of them whole would be over 11 million bytes
    assert sum(map(len, bodies.values())) > 10_000_000
    for call in ("m1", "m2", "m100", "m200"):
        found = await body_of(journal.reader, journal.state, call, "messages")
        assert json.loads(found) == json.loads(bodies[call])


def stored(world: MemoryWorld) -> int:
    session = world.stored["s"]
    return sum(len(record.body) for record in session.records) + sum(map(len, session.blobs.values()))
