"""A call's arguments, from the bytes that the model wrote. Strict, because a guess here is an effect later.

What surprises: harnesses parse and print the arguments on the way to us, and those written in JavaScript
round integers over 2^53 while at it. The log has what the model wrote, so ``exact`` prefers that."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from typing import cast

from harness_durable.payload import clean

MAX_DEPTH = 200
"""Levels of nesting. No real argument comes near; Python's parser gives up at a few times that."""

_TOKEN = re.compile(rb'"(?:[^"\\]++|\\.)*+"?|[\[{]|[\]}]', re.DOTALL)


class BadArguments(ValueError):
    """Arguments that cannot be used. The text is for the model; nothing ran."""


def parse(raw: bytes) -> dict[str, object]:
    """The JSON object in ``raw``; nothing at all counts as ``{}``, as some providers send it.

    Raises ``BadArguments`` for what is no object, for duplicate keys, NaN, infinities and deep nesting. Lone
    surrogates become U+FFFD.
    """
    if not raw.strip():
        return {}
    if too_deep(raw):
        raise BadArguments(f"the arguments are nested more than {MAX_DEPTH} levels deep. Nothing ran.")
    try:
        value = cast(
            object, json.loads(raw, object_pairs_hook=_object, parse_constant=_constant, parse_float=_float)
        )
    except BadArguments:
        raise
    except (ValueError, RecursionError) as error:
        raise BadArguments(f"the arguments are not valid JSON ({error}). Nothing ran. Call again.") from None
    if not isinstance(value, dict):
        raise BadArguments("the arguments must be a JSON object. Nothing ran. Call again.")
    return cast(dict[str, object], _cleaned(cast(object, value)))


def exact(logged: bytes, arrived: bytes) -> bytes:
    """Of the arguments in the log and those that came through the harness: the log's, if they are the same
    but for the rounding of numbers; else what came, since somebody (a hook) changed them on purpose."""
    try:
        mine = parse(logged)
    except BadArguments:
        return logged
    try:
        theirs = parse(arrived)
    except BadArguments:
        return arrived
    return logged if _same(mine, theirs) else arrived


def _same(one: object, other: object) -> bool:
    if isinstance(one, dict) and isinstance(other, dict):
        a, b = cast(dict[str, object], one), cast(dict[str, object], other)
        return a.keys() == b.keys() and all(_same(a[key], b[key]) for key in a)
    if isinstance(one, list) and isinstance(other, list):
        c, d = cast(list[object], one), cast(list[object], other)
        return len(c) == len(d) and all(_same(x, y) for x, y in zip(c, d, strict=True))
    if isinstance(one, bool) or isinstance(other, bool):
        return one is other
    if isinstance(one, int | float) and isinstance(other, int | float):
        return _double(one) == _double(other)
    return one == other


def _double(number: float) -> float:
    try:
        return float(number)
    except OverflowError:
        return math.inf


def too_deep(raw: bytes) -> bool:
    """Are brackets nested more than ``MAX_DEPTH`` levels? To be asked before any parser or walk that calls
    itself. Only looked at closely if there are enough of them at all."""
    if raw.count(b"[") + raw.count(b"{") <= MAX_DEPTH:
        return False
    depth = 0
    for token in _TOKEN.finditer(raw):
        match raw[token.start()]:
            case 0x5B | 0x7B:  # [ and {
                depth += 1
                if depth > MAX_DEPTH:
                    return True
            case 0x5D | 0x7D:  # ] and }
                depth -= 1
            case _:
                pass
    return False


def _object(pairs: list[tuple[str, object]]) -> Mapping[str, object]:
    found = dict(pairs)
    if len(found) != len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise BadArguments(
            f"the key {clean(twice)!r} appears twice. Nothing ran. Call again with each key once."
        )
    return found


def _constant(token: str) -> object:
    raise BadArguments(f"{token} is no JSON number. Nothing ran. Call again with a number, a string or null.")


def _float(text: str) -> float:
    value = float(text)
    if math.isinf(value):
        raise BadArguments(f"the number {text[:40]} is too large. Nothing ran. Call again.")
    return value


def _cleaned(value: object) -> object:
    if isinstance(value, str):
        return clean(value)
    if isinstance(value, list):
        return [_cleaned(item) for item in cast(list[object], value)]
    if isinstance(value, dict):
        return {clean(key): _cleaned(item) for key, item in cast(dict[str, object], value).items()}
    return value
