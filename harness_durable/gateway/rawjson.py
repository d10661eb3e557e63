"""JSON whose values stay the bytes that they were: no number is rounded, no escape is spelled anew.

What surprises: half a surrogate pair in an escape is accepted here (models and harnesses do write them),
although strict decoders refuse it. Such a document is spelled anew, with every string and integer kept.
Nesting has no limit: what is too deep for a decoder is only cut into its members."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import cast

from msgspec import MsgspecError, Raw
from msgspec.json import Decoder, encode

from harness_durable.gateway.nesting import outermost

__all__ = (
    "Unreadable",
    "encode_list",
    "encode_object",
    "items",
    "members",
    "number",
    "quote",
    "text",
    "unquoted",
)

_object: Decoder[dict[str, Raw]] = Decoder(dict[str, Raw])
_array: Decoder[list[Raw]] = Decoder(list[Raw])
_string: Decoder[str] = Decoder(str)


class Unreadable(ValueError):
    """Not the JSON that was expected."""


def members(raw: bytes | Raw) -> dict[str, Raw]:
    """The members of an object. Raises ``Unreadable``."""
    try:
        return _object.decode(raw)
    except (MsgspecError, RecursionError, UnicodeDecodeError):
        pass
    try:
        value = _lenient(raw)
    except RecursionError:
        return {text(Raw(name)): Raw(member) for name, member in _cut(raw, b"{")}
    if not isinstance(value, dict):
        raise Unreadable("not a JSON object")
    return {name: _spelled(member) for name, member in cast(dict[str, object], value).items()}


def items(raw: bytes | Raw) -> list[Raw]:
    """The items of a list. Raises ``Unreadable``."""
    try:
        return _array.decode(raw)
    except (MsgspecError, RecursionError, UnicodeDecodeError):
        pass
    try:
        value = _lenient(raw)
    except RecursionError:
        return [Raw(item) for _, item in _cut(raw, b"[")]
    if not isinstance(value, list):
        raise Unreadable("not a JSON list")
    return [_spelled(item) for item in cast(list[object], value)]


def text(raw: bytes | Raw | None) -> str:
    """A string, with lone surrogates if it has them; empty for anything else."""
    if raw is None:
        return ""
    try:
        return _string.decode(raw)
    except (MsgspecError, RecursionError, UnicodeDecodeError):
        pass
    try:
        value = _lenient(raw)
    except (Unreadable, RecursionError):
        return ""
    return value if isinstance(value, str) else ""


def number(raw: Raw | None) -> int:
    """A whole number; 0 for anything else."""
    try:
        return int(bytes(raw)) if raw is not None else 0
    except ValueError:
        return 0


def quote(value: str) -> Raw:
    """A string as JSON. Two halves of a pair become one character, a lone half stays an escape."""
    try:
        return Raw(encode(value))
    except UnicodeEncodeError:
        return Raw(json.dumps(value).encode())


def unquoted(value: str) -> bytes:
    """A text that itself is JSON, in UTF-8. A lone surrogate, which UTF-8 cannot hold and which can only
    stand within a JSON string, becomes an escape there."""
    try:
        return value.encode()
    except UnicodeEncodeError:
        paired = value.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "surrogatepass")
    return b"".join(c.encode() if not "\ud800" <= c <= "\udfff" else b"\\u%04x" % ord(c) for c in paired)


def encode_object(value: Mapping[str, Raw]) -> bytes:
    return encode(value)


def encode_list(value: Sequence[Raw]) -> bytes:
    return encode(value)


def _lenient(raw: bytes | Raw) -> object:
    """Raises ``Unreadable``, and ``RecursionError`` for what may be JSON and is too deep."""
    try:
        return json.loads(bytes(raw))
    except ValueError as error:
        raise Unreadable(str(error)) from None


def _cut(raw: bytes | Raw, opening: bytes) -> list[tuple[bytes, bytes]]:
    """What stands directly in an object or a list. Raises ``Unreadable``."""
    whole = bytes(raw)
    try:
        parts = outermost(whole)
    except ValueError as error:
        raise Unreadable(str(error)) from None
    if whole.lstrip()[:1] != opening:
        raise Unreadable("not a JSON object" if opening == b"{" else "not a JSON list")
    return parts


def _spelled(value: object) -> Raw:
    return Raw(json.dumps(value, separators=(",", ":")).encode())
