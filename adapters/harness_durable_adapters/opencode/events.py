"""The harness's event store: its rows, and which of them the log keeps. Pure.

Each row has the whole new value of what it is about. A command that runs writes its output so far with every
piece that comes, so only lasting values are kept: what is under way when a life is lost is lost with it, and
a rebuild writes what became of it."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
from msgspec import Raw

from harness_durable.gateway import rawjson

from ..common.shapes import Json, decode, mapping, outline, part, word

CREATED = "session.created.1"
MESSAGE, MESSAGE_GONE = "message.updated.1", "message.removed.1"
PART, PART_GONE = "message.part.updated.1", "message.part.removed.1"

CONTAINERS = frozenset({"task"})
"""Tools that hold a loop of their own: a subagent, which is a session of the harness's beside ours."""

_KEPT = frozenset({CREATED, MESSAGE, MESSAGE_GONE, PART, PART_GONE})
_UNDER_WAY = frozenset({"pending", "running"})


class Row(msgspec.Struct, frozen=True):
    """One event. ``raw`` is its line in the log: the row without its session and its place, which are others
    in the next life; ``data`` what could be read of it."""

    raw: bytes
    id: str
    kind: str
    data: Json

    @property
    def info(self) -> Json:
        return mapping(self.data.get("info"))

    @property
    def part(self) -> Json:
        return mapping(self.data.get("part"))


class Stored(msgspec.Struct, frozen=True):
    """A row with its session and its place in the store of a life."""

    session: str
    seq: int
    row: Row


def read(raw: bytes) -> Row | None:
    """A line of the log; None for what is none."""
    found = decode(raw) or outline(raw)
    if found is None or not word(found.get("type")):
        return None
    return Row(raw, word(found.get("id")), word(found.get("type")), mapping(found.get("data")))


def made(number: str, kind: str, data: Json) -> Row:
    """A row of our own."""
    raw = msgspec.json.encode({"id": number, "type": kind, "data": data})
    return Row(raw, number, kind, data)


def stored(raw: bytes) -> Stored | None:
    """A row as the harness gives it; None for what is none."""
    fields = rawjson.members(raw)
    line = rawjson.encode_object({name: fields.get(name, Raw(b"null")) for name in ("id", "type", "data")})
    row = read(line)
    if row is None:
        return None
    return Stored(rawjson.text(fields.get("aggregate_id")), rawjson.number(fields.get("seq")), row)


def replayed(raw: bytes, session: str, seq: int, data: bytes = b"") -> Raw:
    """A line of the log as an event that the harness takes. ``data``: instead of its own."""
    fields = rawjson.members(raw)
    given = {
        "id": fields["id"],
        "aggregateID": rawjson.quote(session),
        "seq": Raw(str(seq).encode()),
        "type": fields["type"],
        "data": Raw(data) if data else fields["data"],
    }
    return Raw(rawjson.encode_object(given))


def replay(directory: str, events: Sequence[Raw]) -> bytes:
    """What the harness is told to take."""
    given = {"directory": rawjson.quote(directory), "events": Raw(rawjson.encode_list(events))}
    return rawjson.encode_object(given)


def data_of(raw: bytes) -> bytes:
    return part(raw, "data")


def under_way(part: Json) -> bool:
    """Is it a call that has not ended?"""
    return mapping(part.get("state")).get("status") in _UNDER_WAY


def subagent(part: Json) -> str:
    """The session of a subagent that a call has begun; empty if it has none."""
    if part.get("tool") not in CONTAINERS:
        return ""
    return word(mapping(mapping(part.get("state")).get("metadata")).get("sessionId"))


def lasting(row: Row) -> bool:
    """Does the log keep it?"""
    if row.kind != PART:
        return row.kind in _KEPT
    said = row.part
    if said.get("type") == "tool":
        return not under_way(said) or bool(subagent(said))
    time = mapping(said.get("time"))
    return "start" not in time or "end" in time  # a text that is being written has no end yet
