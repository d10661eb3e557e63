"""Results as text for a model: exact where JSON can be, honest where it cannot."""

from __future__ import annotations

import datetime
import enum
import json
from dataclasses import dataclass

import pydantic
import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness_durable.tools import tool
from harness_durable.tools.arguments import exact
from harness_durable.tools.results import MAX_ERROR, failure, recorded, render, shorten
from tests.unit.memory_world import MemoryWorld
from tests.unit.session_kit import asked, begun, host

BIG = 10**9


@dataclass
class Row:
    id: int
    score: float


class Color(enum.Enum):
    RED = "red"


class Model(pydantic.BaseModel):
    when: datetime.date
    rows: list[Row]


class Broken(Exception):
    def __str__(self) -> str:
        raise ValueError


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("as it is\r\n\0", "as it is\r\n\0"),
        (b"bytes \xff", "bytes �"),
        ("half \ud83d", "half �"),
        ({"half \ud83d": ["\ude00"]}, '{"half �": ["�"]}'),
        ({"id": 9007199254740993001}, '{"id": 9007199254740993001}'),
        (10**30, "1" + "0" * 30),
        (True, "true"),
        (None, "(no output)"),
        ("", "(no output)"),
        (" \n", "(only white space: 2 characters)"),
        ([1, (2, 3)], "[1, [2, 3]]"),
        (Color.RED, '"red"'),
        ({1: "a", Color.RED: "b"}, '{"1": "a", "red": "b"}'),
        (Row(1, 0.5), '{"id": 1, "score": 0.5}'),
        (Model(when=datetime.date(2026, 1, 2), rows=[]), '{"when": "2026-01-02", "rows": []}'),
        (float("nan"), "null\n(note: NaN or infinite numbers shown as null: 1)"),
        (
            {"a": float("inf"), "b": [Row(1, float("nan"))]},
            '{"a": null, "b": [{"id": 1, "score": null}]}\n(note: NaN or infinite numbers shown as null: 2)',
        ),
        ({"ключ": "значение"}, '{"ключ": "значение"}'),
    ],
    ids=ascii,
)
def test_a_value_becomes_text(value: object, text: str) -> None:
    assert render(value, BIG) == text


def test_what_cannot_be_shown_is_said_to_have_finished() -> None:
    deep: list[object] = []
    for _ in range(5000):
        deep = [deep]
    loop: list[object] = []
    loop.append(loop)
    for value in (deep, loop):
        assert "the call finished, but its result of type list cannot be shown" in render(value, BIG)


def test_long_output_loses_its_middle_and_says_how_much() -> None:
    text = "a" * 1000 + "😀" * 1000 + "z" * 1000
    cut = shorten(text, 500)
    assert len(cut) <= 500
    assert cut.startswith("a" * 200)
    assert cut.endswith("z" * 200)
    assert "2600 of 3000 characters are left out" in cut
    assert shorten(text, 3000) == text


@given(st.text(max_size=600), st.integers(200, 400))
def test_shortened_text_is_never_too_long_and_always_utf8(text: str, limit: int) -> None:
    cut = render(text, limit)
    cut.encode()
    assert len(cut) <= max(limit, 40)


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(),
        lambda s: st.lists(s) | st.dictionaries(st.text(), s),
    )
)
def test_json_values_come_through_exactly(value: object) -> None:
    if isinstance(value, str) or value is None:
        return
    assert json.loads(render(value, BIG)) == value


def test_an_exception_is_its_type_and_text() -> None:
    assert failure(ValueError("no")) == "ValueError: no"
    assert failure(KeyError()) == "KeyError"
    assert failure(Broken()) == "Broken: (its text cannot be shown: ValueError)"
    assert len(failure(ValueError("x" * 100_000))) <= MAX_ERROR


@pytest.mark.parametrize(
    ("logged", "arrived", "log_wins"),
    [
        (b'{"id": 9007199254740993001}', b'{"id":9007199254740993000}', True),
        (b'{ "a": [1.0, true] }', b'{"a":[1,true]}', True),
        (b"", b"{}", True),
        (b'{"a": 1, "a": 2}', b'{"a":2}', True),
        (b'{"a": 1}', b'{"a":2}', False),
        (b'{"a": 1}', b'{"a":true}', False),
        (b'{"a": [1]}', b'{"a":[1,2]}', False),
        (b'{"a": "1"}', b'{"a":1}', False),
        (b'{"a": 1}', b'{"b":1}', False),
    ],
)
def test_the_logs_arguments_win_if_only_rounding_differs(
    logged: bytes, arrived: bytes, log_wins: bool
) -> None:
    assert exact(logged, arrived) == (logged if log_wins else arrived)


async def test_a_huge_result_is_stored_once_as_a_blob_and_read_back_the_same() -> None:
    world = MemoryWorld()
    journal = await begun(world)

    @tool(replay="safe")
    def dump() -> str:
        return "😀\0" * 300_000

    await asked(journal, ("c1", "dump", {}), policy="safe")
    first = await host(journal, [dump]).call("c1", "dump", b"{}")
    call = journal.state.tool_calls["c1"]
    assert len(first.text) == 600_000
    assert call.result is not None
    assert call.result.blob in world.stored["s"].blobs
    assert await recorded(journal.reader, call) == first
    assert await host(journal, [dump], "L2").call("c1", "dump", b"{}") == first
