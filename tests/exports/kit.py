"""Logs for exports: every kind of event with chosen words in every place, histories, and all formats."""

from __future__ import annotations

import types
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, get_args, get_origin, get_type_hints

import anyio

from harness_durable import codec, fold
from harness_durable.cli.common import visible
from harness_durable.cli.story import tell
from harness_durable.cli.strip import strip
from harness_durable.events import AnyEvent, Entry
from harness_durable.exports import Material, Redaction, gather, jsonl, markdown, otlp, perfetto
from harness_durable.payload import Packed, Payload, pack
from harness_durable.transfer import import_session
from harness_durable.world import Record, RowUpdate
from tests.unit.memory_world import MemoryWorld

HISTORIES = sorted((Path(__file__).parents[1] / "histories").glob("*.jsonl"))
KINDS: tuple[type[AnyEvent], ...] = get_args(AnyEvent)

BEGUN = 1_790_000_000_000


def page(material: Material) -> Iterator[bytes]:
    return markdown(material, tell, visible, strip(material.state, 100))


FORMATS: dict[str, Callable[[Material], Iterator[bytes]]] = {
    "jsonl": jsonl,
    "otlp": otlp,
    "perfetto": perfetto,
    "markdown": page,
}

Choose = Callable[[str, str], str]
"""The string for a field, given the kind of event and the field's name."""


def made(kind: type[AnyEvent], choose: Choose, body: Callable[[str], Payload]) -> AnyEvent:
    """An event of a kind with all its members set."""
    return _made(kind, codec_name(kind), choose, body)


def codec_name(kind: type[AnyEvent]) -> str:
    return str(kind.__struct_config__.tag)


def _made(struct: type[Any], kind: str, choose: Choose, body: Callable[[str], Payload]) -> Any:
    hints = get_type_hints(struct)
    return struct(
        **{name: _value(hints[name], name, kind, choose, body) for name in struct.__struct_fields__}
    )


def _value(hint: Any, name: str, kind: str, choose: Choose, body: Callable[[str], Payload]) -> Any:
    origin, inside = get_origin(hint), get_args(hint)
    if origin is types.UnionType or (inside and type(None) in inside):
        return _value(next(one for one in inside if one is not type(None)), name, kind, choose, body)
    if origin is Literal:
        return inside[0]
    if origin is tuple:
        return (_value(inside[0], name, kind, choose, body),)
    if origin is dict:
        return {choose(kind, "name"): _value(inside[1], name, kind, choose, body)}
    if hint is Payload:
        return body(name)
    if hint is str:
        return choose(kind, name)
    if hint is bool:
        return True
    if hint is int:
        return 1
    return _made(hint, kind, choose, body)


def entries(events: Iterable[AnyEvent], step: int = 100) -> tuple[Entry, ...]:
    return tuple(Entry(seq, BEGUN + seq * step, 1, event) for seq, event in enumerate(events, 1))


def material(*events: AnyEvent, content: bool = True) -> Material:
    """As ``gather`` makes it of a log without blobs."""
    found = entries(events)
    return Material("s", found, fold.fold(found), content)


async def world_of(events: Sequence[AnyEvent], blobs: Mapping[str, bytes] | None = None) -> MemoryWorld:
    world = MemoryWorld()
    records = [
        Record(f"r{n}", codec.kind_of(event), 1, codec.encode(event)) for n, event in enumerate(events)
    ]
    row = RowUpdate("idle", None)
    await world.create("s", records[:1], row)
    if records[1:]:
        await world.append("s", expected_head=1, epoch=0, records=records[1:], blobs=blobs, row=row)
    return world


async def exported(world: MemoryWorld, redaction: Redaction, session: str = "s") -> dict[str, bytes]:
    found = await gather(world, session, redaction)
    return {name: b"".join(convert(found)) for name, convert in FORMATS.items()}


async def history(path: Path) -> tuple[MemoryWorld, str]:
    world = MemoryWorld()

    async def chunks() -> AsyncIterator[bytes]:
        yield await anyio.Path(path).read_bytes()

    return world, await import_session(world, chunks())


class Bodies:
    """Payloads, and the blobs of those that are large."""

    def __init__(self) -> None:
        self.blobs: dict[str, bytes] = {}

    def __call__(self, raw: bytes, inline: int = 32 << 10) -> Payload:
        packed: Packed = pack(raw, inline)
        self.blobs.update(packed.blobs)
        return packed.payload
