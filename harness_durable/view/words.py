"""Short texts of rows: the beginning of what an agent said. Pure.

What surprises: a state shortens long payloads once their turn is settled, so nothing here looks further into
one than the shortened one still shows. Texts are as the agent wrote them; the page makes them harmless."""

from __future__ import annotations

import json
from typing import cast

from harness_durable.fold.turns import SHORT
from harness_durable.payload import PREVIEW, Payload
from harness_durable.state import ToolCall

WIDTH = 160
"""Characters of a row's text."""


def excerpt(payload: Payload | None, width: int = WIDTH) -> str:
    """The beginning of a payload, on one line."""
    if payload is None:
        return ""
    text = (payload.text or payload.preview)[:PREVIEW]
    if not text and payload.size:
        return f"({payload.size} bytes)"
    return cut(text, width)


def cut(text: str, width: int = WIDTH) -> str:
    flat = " ".join(text[: width * 4].split())
    return flat if len(flat) <= width else flat[: width - 1] + "…"


def bare(call: ToolCall) -> str:
    """A tool's name as people know it: ours without what a harness puts before it."""
    if call.origin != "custom":
        return call.name
    return call.name.rpartition("__")[2].removeprefix("durable_") or call.name


def given(call: ToolCall) -> str:
    """A call's input as people read it: the first argument bare, the others by name."""
    if call.input.text is None or call.input.size > SHORT:
        return excerpt(call.input)
    try:
        found: object = json.loads(call.input.text)
    except (ValueError, RecursionError):
        return excerpt(call.input)
    if not isinstance(found, dict) or not found:
        return excerpt(call.input)
    first, *others = cast(dict[str, object], found).items()
    return cut(", ".join([_plain(first[1]), *(f"{key}={_plain(value)}" for key, value in others)]))


def _plain(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def counted(number: int, one: str, many: str = "") -> str:
    return f"{number} {one if number == 1 else many or one + 's'}"
