"""What every wire does with the body of a request: a hash over what the model sees, and text that a provider
can read. What the model sees is the wire's to say."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable
from typing import cast

from msgspec import Raw

from harness_durable.gateway import rawjson
from harness_durable.gateway.rawjson import Unreadable

_LIFE = re.compile(r"/life-[0-9a-f]{12}(/home\S*)?")
"""A path into the home of a life: a harness names its own files to the model, the next life's elsewhere."""

_ESCAPE = re.compile(
    rb"\\(?:u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}|(u[dD][89a-fA-F][0-9a-fA-F]{2})|.)",
    re.DOTALL,
)


def digest(body: bytes, seen: Callable[[object], object]) -> str:
    """64 hex digits over what ``seen`` makes of the request; it may raise ``TypeError`` for one that it does
    not understand. Such a body is the same only as itself."""
    try:
        request: object = json.loads(body, parse_int=_exactly("int"), parse_float=_exactly("float"))
        known = json.dumps(seen(request), sort_keys=True, separators=(",", ":")).encode()
    except (ValueError, TypeError, RecursionError):
        known = body
    return hashlib.sha256(known).hexdigest()


def _exactly(kind: str) -> Callable[[str], list[str]]:
    """Numbers are compared as they were written: as floats, neighbouring ids would be one."""
    return lambda digits: [kind, digits]


def mapping(value: object) -> dict[str, object]:
    """The object. Raises ``TypeError`` for anything else."""
    if not isinstance(value, dict):
        raise TypeError("not an object")
    return cast(dict[str, object], value)


def listed(value: object) -> list[object]:
    """The list; an empty one for anything else."""
    return cast(list[object], value) if isinstance(value, list) else []


def inner(value: object, name: str) -> object:
    """A member of an object; None if it has none, or is no object."""
    return cast(dict[str, object], value).get(name) if isinstance(value, dict) else None


def settled(text: str) -> str:
    """A text of the harness's, without what is another in each of its lives."""
    return _LIFE.sub("/life", text)


def readable(body: bytes) -> bytes:
    """With U+FFFD for half a surrogate pair, which a provider would refuse for as long as it stands in the
    conversation. All else stays byte for byte."""
    if b"\\ud" in body or b"\\uD" in body:
        return _ESCAPE.sub(lambda escape: rb"\ufffd" if escape[1] else escape[0], body)
    return body


def member(body: bytes, name: str) -> Raw | None:
    """A member of the request; None if it has none, or is no JSON."""
    try:
        return rawjson.members(body).get(name)
    except Unreadable:
        return None
