"""From text to bytes: JSON as the APIs write it, and events with what a style does to them. Pure.

Real UTF-8 is sent (not escapes), so that a cut between two bytes can fall inside a character. Only
half surrogate pairs are escaped: they have no UTF-8.
"""

from __future__ import annotations

import json
import random
import re
from collections.abc import Iterator, Sequence

from harness_durable.testing.provider.reply import Style, ToolUse

Event = dict[str, object]
Sse = tuple[str, str]
"""The name of an event (empty: it has none) and its data."""
_HALF_PAIR = re.compile("[\ud800-\udfff]")
_PIECES = 12  # deltas of a block, if the style does not ask for more


def to_json(value: object, *, indent: int | None = None, escape: bool = False) -> str:
    """JSON text in the style of the API; every string survives, also one with half a pair."""
    spaces = (",", ":") if indent is None else None
    text = json.dumps(value, ensure_ascii=escape, indent=indent, separators=spaces)
    return _HALF_PAIR.sub(lambda found: f"\\u{ord(found.group()):04x}", text)


def frames(found: Sequence[Sse], style: Style, ping: Sse) -> list[bytes]:
    """Each event as server-sent bytes, with the comments and spaces that the style adds, and with ``ping``,
    the API's own way to keep a connection alive."""
    dice = random.Random(f"frames {style.seed}")
    return [b"".join(_frame(event, place, style, ping, dice)) for place, event in enumerate(found)]


def frame(name: str, data: str, end: str = "\n") -> bytes:
    """One event."""
    head = f"event: {name}{end}" if name else ""
    return f"{head}data: {data}{end}{end}".encode()


def input_text(call: ToolUse, style: Style) -> str:
    """The arguments of a call as the model writes them."""
    return call.raw or to_json(call.input, indent=2 if style.pretty else None, escape=style.escape)


def pieces(text: str, longest: int, dice: random.Random) -> Iterator[str]:
    """``text`` in pieces of 1..``longest`` characters (0: about a dozen even ones)."""
    even = max(16, -(-len(text) // _PIECES))
    at = 0
    while at < len(text):
        size = dice.randint(1, longest) if longest else even
        yield text[at : at + size]
        at += size


def _frame(event: Sse, place: int, style: Style, ping: Sse, dice: random.Random) -> Iterator[bytes]:
    end = "\r\n" if style.crlf else "\n"
    if style.comments and dice.random() < 0.3:
        yield f": keep-alive{end}{end}".encode()
    if style.pings and (place == 2 or dice.random() < 0.2):
        yield frame(*ping, end)
    name, data = event
    if style.padding and data.endswith("}"):
        data = data[:-1] + " " * dice.randint(0, 15) + "}"
    yield frame(name, data, end)
