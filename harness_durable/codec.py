"""Events to bytes and back: JSON, with the format version first, so that people can grep a log."""

from __future__ import annotations

from typing import get_args

import msgspec

from harness_durable import events
from harness_durable.errors import DamagedLog, LogTooNew
from harness_durable.events import FORMAT, AnyEvent, Event
from harness_durable.payload import clean

_encoder = msgspec.json.Encoder()
_decoder: msgspec.json.Decoder[AnyEvent] = msgspec.json.Decoder(AnyEvent)

_KINDS: dict[type, str] = {kind: str(kind.__struct_config__.tag) for kind in get_args(AnyEvent)}

KINDS: tuple[str, ...] = tuple(_KINDS.values())
"""Every kind's name, in the order of ``events``."""

_PREFIX = b'{"v":%d,' % FORMAT


class _Head(msgspec.Struct):
    v: int
    kind: str


_head: msgspec.json.Decoder[_Head] = msgspec.json.Decoder(_Head)


def kind_of(event: Event) -> str:
    """The event's name, such as ``tool.released``."""
    return _KINDS[type(event)]


def encode(event: AnyEvent) -> bytes:
    """``{"v":1,"kind":...}``."""
    return _PREFIX + _encoder.encode(event)[1:]


def decode(body: bytes, where: str) -> AnyEvent:
    """The event in a record's body. ``where`` names the record in an error.

    Raises ``LogTooNew`` for a newer format or a kind that a newer version has added (several workers need
    not be upgraded at the same moment), and ``DamagedLog`` for what is no event at all.
    """
    try:
        head = _head.decode(body)
        if head.v > FORMAT:
            raise LogTooNew(where, head.v, FORMAT)
        if head.kind not in KINDS:
            raise LogTooNew(where, clean(head.kind)[:80], FORMAT)
        return _decoder.decode(body)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise DamagedLog(
            where, 0, len(body), f"it is not an event ({error}); its neighbours can be read"
        ) from None


__all__ = ("KINDS", "decode", "encode", "events", "kind_of")
