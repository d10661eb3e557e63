"""Model requests as parts, so that a turn of n calls costs O(n) bytes and not O(n²).

Every request repeats the whole conversation. A body is split into its frame (everything but the messages)
and its messages, each kept as the bytes that they were; a later request names how many parts of an earlier
one it keeps."""

from __future__ import annotations

import hashlib
from collections.abc import AsyncGenerator
from typing import cast

import msgspec

from harness_durable import events
from harness_durable.journal.reader import Reader
from harness_durable.payload import Payload
from harness_durable.state import ModelCall, Session

_object = msgspec.json.Decoder(dict[str, msgspec.Raw])
_array = msgspec.json.Decoder(list[msgspec.Raw])


def split(body: bytes, field: str) -> list[bytes]:
    """``[frame, *items of field]``; just ``[body]`` if it is not an object with such a list."""
    try:
        whole = _object.decode(body)
        items = [bytes(item) for item in _array.decode(whole[field])]
    except (msgspec.MsgspecError, KeyError, RecursionError, UnicodeDecodeError):
        return [body]
    whole[field] = msgspec.Raw(b"[]")
    return [msgspec.json.encode(whole), *items]


def join(parts: list[bytes], field: str) -> bytes:
    """The body again: the same JSON, with the white space between its top-level members gone."""
    if len(parts) == 1:
        return parts[0]
    whole = _object.decode(parts[0])
    whole[field] = msgspec.Raw(b"[" + b",".join(parts[1:]) + b"]")
    return msgspec.json.encode(whole)


class Bases:
    """``prints`` of each conversation's last request within this worker, to keep parts from. Lost with the
    worker; the first request after a takeover is then stored whole."""

    def __init__(self) -> None:
        self._last: dict[str, tuple[str, list[bytes]]] = {}

    def kept(self, conversation: str, prints: list[bytes]) -> tuple[str | None, int]:
        """The call whose parts this request begins with, and how many of them."""
        if conversation not in self._last:
            return None, 0
        call, known = self._last[conversation]
        keep = 0
        for ours, theirs in zip(prints, known, strict=False):
            if ours != theirs:
                break
            keep += 1
        return (call, keep) if keep else (None, 0)

    def remember(self, conversation: str, call: str, prints: list[bytes]) -> None:
        self._last[conversation] = (call, prints)


def prints(parts: list[bytes]) -> list[bytes]:
    """A fingerprint of each part. Called once a request: a long conversation has thousands of parts."""
    return [hashlib.blake2b(part, digest_size=16).digest() for part in parts]


async def body_of(reader: Reader, state: Session, call: str, field: str) -> bytes:
    """The request of a model call, as it went upstream."""
    return join(await _parts(reader, state, call), field)


async def _parts(reader: Reader, state: Session, call: str) -> list[bytes]:
    chain: list[events.ModelRequested] = []
    at: str | None = call
    while at is not None:
        event = cast(events.ModelRequested, await reader.event(state.model_calls[at].requested_seq))
        chain.append(event)
        at = event.base
    payloads: list[Payload] = []
    for event in reversed(chain):
        payloads = [*payloads[: event.keep], *event.parts]
    return [await reader.content(payload) for payload in payloads]


class _Request(msgspec.Struct, frozen=True):
    """Where the request of a call stands in the log."""

    seq: int
    call: ModelCall


async def answered(reader: Reader, state: Session, agent: str | None) -> AsyncGenerator[bytes]:
    """Each part of the requests of one conversation that had a response, once. Reads the log's requests from
    the start, so it is for rare questions only."""
    places = [_Request(call.requested_seq, call) for call in state.model_calls.values()]
    parts: dict[str, list[Payload]] = {}
    seen: set[Payload] = set()
    async for place, found in reader.events_at(places):
        event = cast(events.ModelRequested, found)
        kept = parts[event.base][: event.keep] if event.base is not None else []
        parts[event.call] = [*kept, *event.parts]
        if event.agent == agent and place.call.status == "completed":
            for payload in parts[event.call]:
                if payload not in seen:
                    seen.add(payload)
                    yield await reader.content(payload)
