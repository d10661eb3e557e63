"""A JSON object a line, as most harnesses speak on their standard input and output."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from .shapes import Json, decode, encode


class Said(msgspec.Struct, frozen=True):
    """What workers have told the harness in this life: ids of our own requests, ids of its questions that
    were answered, numbers of messages."""

    asked: frozenset[str] = frozenset()
    answered: frozenset[str] = frozenset()
    messages: frozenset[str] = frozenset()


def frames_of(said: bytes) -> Iterator[Json]:
    """What was ever written to the harness's standard input, frame by frame."""
    for line in said.split(b"\n"):
        yield decode(line) or {}


def line_of(frame: Json) -> bytes:
    """A frame as it is written."""
    return encode(frame) + b"\n"
