"""What of a transcript that was brought here cannot be read, in words for the model. Pure."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

OPENING = "[Note by harness-durable, not by the user: how this conversation began is lost.]"
"""Stands in for a first message that could not be read: a conversation begins on the user's side."""

_LISTED = 5
"""Damaged lines whose places the model is told."""


class Place(msgspec.Struct, frozen=True):
    """A line that cannot be read. Bytes: where it begins, how many there are, how many of them at its end are
    zero."""

    offset: int
    length: int
    zeros: int = 0


def lost(gone: Sequence[Place]) -> str:
    """A clause about the lines that cannot be read; empty if there are none."""
    if not gone:
        return ""
    places = [_place(place) for place in gone[:_LISTED]]
    if len(gone) > _LISTED:
        places.append(f"and {len(gone) - _LISTED} more")
    lines, are = ("1 line", "is") if len(gone) == 1 else (f"{len(gone)} lines", "are")
    where = ", ".join(places)
    return f"{lines} of this conversation's record could not be read and {are} left out ({where})"


def place(raw: bytes, offset: int) -> Place:
    """Of a line that begins there."""
    return Place(offset, len(raw), len(raw) - len(raw.rstrip(b"\0")))


def _place(found: Place) -> str:
    zeros = "zero " if found.zeros == found.length else ""
    return f"{found.length} {zeros}bytes at byte {found.offset}"
