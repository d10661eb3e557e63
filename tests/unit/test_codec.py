"""Events to bytes and back."""

from __future__ import annotations

import json
import types
import typing
from typing import Any, get_args

import msgspec
import pytest

from harness_durable import codec, events
from harness_durable.errors import DamagedLog, LogTooNew
from harness_durable.payload import Media, Payload

ALL: tuple[type, ...] = get_args(events.AnyEvent)


def sample(hint: Any) -> Any:
    """Some value of a field's type that is not its default."""
    if hint is Payload:
        return Payload(3, data=b"\xff\0\r")
    if hint in (events.Usage, events.AgentSpec, events.Change, events.LeftOut, events.Counts, Media):
        return filled(hint)
    origin, inner = typing.get_origin(hint), get_args(hint)
    if origin is typing.Literal:
        return inner[-1]
    if origin in (typing.Union, types.UnionType):
        return sample(inner[0])
    if origin is tuple:
        return (sample(inner[0]), sample(inner[0]))
    if origin is dict:
        return {sample(inner[0]): sample(inner[1])}
    return {str: 'a\0"ä😀', int: 2**60 + 1, bool: True}[hint]


def filled(kind: type) -> Any:
    hints = typing.get_type_hints(kind)
    return kind(**{field.name: sample(hints[field.name]) for field in msgspec.structs.fields(kind)})


def spare(kind: type) -> Any:
    """With nothing but what it must have."""
    hints = typing.get_type_hints(kind)
    fields = msgspec.structs.fields(kind)
    return kind(**{field.name: sample(hints[field.name]) for field in fields if field.required})


@pytest.mark.parametrize("kind", ALL)
@pytest.mark.parametrize("make", [filled, spare])
def test_every_kind_comes_back_equal(kind: type, make: Any) -> None:
    event = make(kind)
    body = codec.encode(event)
    assert codec.decode(body, "here") == event
    assert json.loads(body)["v"] == events.FORMAT
    assert json.loads(body)["kind"] == codec.kind_of(event)


def test_the_names_of_kinds_are_unique_and_dotted() -> None:
    assert len(codec.KINDS) == len(set(codec.KINDS)) == len(ALL)
    assert all(name.count(".") == 1 for name in codec.KINDS)


def test_a_field_that_a_later_version_added_is_no_trouble() -> None:
    body = b'{"v":1,"kind":"turn.started","turn":"m","colour":"red"}'
    assert codec.decode(body, "here") == events.TurnStarted("m")


@pytest.mark.parametrize("kind", ["turn.started", "turn.dreamt"])
def test_a_newer_format_says_so_even_if_its_kind_is_not_known(kind: str) -> None:
    body = json.dumps({"v": events.FORMAT + 1, "kind": kind, "turn": 3}).encode()
    with pytest.raises(LogTooNew, match="upgrade harness-durable"):
        codec.decode(body, "record 3")


def test_a_kind_that_a_newer_worker_wrote_is_not_called_damage() -> None:
    with pytest.raises(LogTooNew, match=r"'turn\.dreamt'.*upgrade harness-durable"):
        codec.decode(b'{"v":1,"kind":"turn.dreamt","turn":"m"}', "record 3")


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b"null",
        b"[]",
        b"\xff\xfe",
        b'{"kind":"turn.started","turn":"m"}',
        b'{"v":1}',
        b'{"v":1,"kind":"turn.started"}',
        b'{"v":1,"kind":"turn.started","turn":7}',
        b'{"v":1,"kind":7}',
        b'{"v":"1","kind":"turn.started","turn":"m"}',
        b'{"v":1,"kind":"turn.started","turn":"\xff"}',
        b"[" * 100_000,
    ],
)
def test_garbage_is_a_damaged_record_with_its_place(body: bytes) -> None:
    with pytest.raises(DamagedLog, match="record 3"):
        codec.decode(body, "record 3")
