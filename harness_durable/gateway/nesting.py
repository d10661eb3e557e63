"""The outermost members of JSON that is nested too deeply for a decoder that calls itself.

Every token is checked, so what is no JSON is refused here as well; only duplicate names, white space and the
spelling of values are left as they are."""

from __future__ import annotations

import re
from typing import Literal

__all__ = ("outermost",)

_SCALARS = (
    rb'"[^"\\\x00-\x1f]*(?:\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4})[^"\\\x00-\x1f]*)*"',
    rb"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?",
    rb"true|false|null",
)
_TOKEN = re.compile(rb"[ \t\r\n]*([\[\]{},:]|" + b"|".join(_SCALARS) + rb")")
_END = re.compile(rb"[ \t\r\n]*\Z")
_CLOSES = {b"{": b"}", b"[": b"]"}

_Expected = Literal["value", "first", "name", "colon", "next"]
"""``first``: a member, or the end of an empty container. ``next``: a comma, or the end."""


def outermost(raw: bytes) -> list[tuple[bytes, bytes]]:
    """The members of an object, each name as it is quoted, or the items of a list, whose names are empty.
    Raises ``ValueError`` for everything else. Takes time in proportion to the length, whatever the depth."""
    found: list[tuple[bytes, bytes]] = []
    name, begin, at = b"", 0, 0
    closers: list[bytes] = []
    expected: _Expected = "value"
    while closers or not at:
        token = _TOKEN.match(raw, at)
        if token is None:
            raise ValueError(f"no JSON at byte {at}")
        what, at = token[1], token.end()
        before, depth = expected, len(closers)
        expected = _after(what, before, closers)
        if depth == 1 and expected == "colon":
            name = what
        elif depth == 1 and before in ("value", "first") and len(closers) > 0:
            begin = token.start(1)
        if len(closers) == 1 and expected == "next":
            found.append((name, raw[begin:at]))
    if not _CLOSES.get(raw.lstrip()[:1]) or not _END.match(raw, at):
        raise ValueError("not one JSON object or list")
    return found


def _after(what: bytes, expected: _Expected, closers: list[bytes]) -> _Expected:
    """What must follow this token. Opens and closes containers."""
    inner = closers[-1] if closers else b""
    if expected == "first" and inner == b"}" and what[:1] == b'"':
        return "colon"
    match what[:1]:
        case b'"' if expected == "name":
            return "colon"
        case b":" if expected == "colon":
            return "value"
        case b"," if expected == "next":
            return "name" if inner == b"}" else "value"
        case b"}" | b"]" if expected in ("first", "next") and what == inner:
            closers.pop()
            return "next"
        case b":" | b"," | b"}" | b"]":
            pass
        case _ if expected == "value" or (expected == "first" and inner == b"]"):
            if what not in _CLOSES:
                return "next"
            closers.append(_CLOSES[what])
            return "first"
        case _:
            pass
    raise ValueError(f"{what[:20]!r} is not what JSON has here")
