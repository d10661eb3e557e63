"""What a tool returned, as the text that the model sees. The log keeps exactly that text, as UTF-8.

What surprises: text is never empty. Some providers refuse a whole conversation for one empty block."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable
from typing import cast

import msgspec
import pydantic_core

from harness_durable.journal.reader import Reader
from harness_durable.payload import clean
from harness_durable.policy import told
from harness_durable.state import ToolCall

MAX_ERROR = 4000
"""Characters of an exception's text: enough for a compiler's message, too little to flood a conversation."""


class ToolResult(msgspec.Struct, frozen=True):
    """What the model gets for a call."""

    text: str
    is_error: bool


async def recorded(reader: Reader, call: ToolCall) -> ToolResult:
    """The result of a call that has an outcome, as it was given to the model the first time."""
    if call.outcome in ("completed", "failed") and call.result is not None:
        return ToolResult(await reader.text(call.result), call.outcome == "failed")
    return ToolResult(told(call), True)


def render(value: object, limit: int) -> str:
    """A tool's return value as text: strings as they are, bytes as UTF-8, everything else as JSON.

    JSON has no NaN and no infinity: they become null, and a note says how many. Never raises: the call has
    happened, so a value that cannot be shown is said to be one."""
    try:
        text = _text(value)
    except (ValueError, TypeError, RecursionError, OverflowError) as error:
        text = f"(the call finished, but its result of type {type(value).__name__} cannot be shown: {error})"
    return shorten(visible(text), limit)


def failure(error: BaseException) -> str:
    """An exception as the model sees it: type and text, no traceback."""
    try:
        text = str(error)
    except Exception as broken:  # an author's own __str__ may do anything
        text = f"(its text cannot be shown: {type(broken).__name__})"
    name = type(error).__name__
    return shorten(clean(f"{name}: {text}" if text else name), MAX_ERROR)


def visible(text: str) -> str:
    """The text without lone surrogates, and never blank."""
    if not text:
        return "(no output)"
    if not text.strip():
        return f"(only white space: {len(text)} characters)"
    return clean(text)


def shorten(text: str, limit: int) -> str:
    """At most ``limit`` code points: the middle is replaced by a sentence that says how much is missing."""
    if len(text) <= limit:
        return text
    room = max(0, limit - 100)
    head, tail = room - room // 2, room // 2
    missing = len(text) - head - tail
    note = f"\n[{missing} of {len(text)} characters are left out here; ask for less at a time to see them]\n"
    return text[:head] + note + text[len(text) - tail :]


def _text(value: object) -> str:
    if value is None:
        return ""
    if isinstance(value, str):
        return value
    if isinstance(value, bytes | bytearray):
        return bytes(value).decode("utf-8", "replace")
    lost = _Lost()
    text = json.dumps(lost.plain(value), ensure_ascii=False, allow_nan=False)
    return (
        text if not lost.numbers else f"{text}\n(note: NaN or infinite numbers shown as null: {lost.numbers})"
    )


class _Lost:
    """Makes a value plain JSON, and counts the numbers that JSON cannot hold."""

    def __init__(self) -> None:
        self.numbers = 0

    def plain(self, value: object) -> object:
        if value is None or isinstance(value, bool):
            return value
        match value:
            case str():
                return clean(value)
            case int():
                return int(value)
            case float():
                return self._number(value)
            case bytes() | bytearray():
                return bytes(value).decode("utf-8", "replace")
            case list() | tuple() | set() | frozenset():
                return [self.plain(item) for item in cast(Iterable[object], value)]
            case dict():
                pairs = cast(dict[object, object], value).items()
                return {_key(key): self.plain(item) for key, item in pairs}
            case _:
                return self.plain(
                    pydantic_core.to_jsonable_python(value, inf_nan_mode="constants", fallback=repr)
                )

    def _number(self, value: float) -> float | None:
        if math.isfinite(value):
            return float(value)
        self.numbers += 1
        return None


def _key(key: object) -> str:
    if isinstance(key, str):
        return clean(key)
    return str(next(iter(pydantic_core.to_jsonable_python({key: 0}, fallback=repr))))
