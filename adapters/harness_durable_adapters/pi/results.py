"""Results of calls, between the harness's form and the log's. Pure.

The harness's own form is kept beside the text, so that a call which finished in an earlier life has exactly
the result that it had."""

from __future__ import annotations

import msgspec

from ..common.shapes import Json, decode, text_of


class Outcome(msgspec.Struct, frozen=True):
    """``text`` is what the model reads, ``detail`` the harness's form as JSON."""

    text: bytes
    detail: bytes


def outcome(content: object, spelled: str) -> Outcome:
    """From what the extension tells of a finished call; ``spelled``: the harness's form as it wrote it."""
    return Outcome(as_bytes(text_of(content)), spelled.encode("utf-8", "surrogatepass"))


def recorded(text: str, detail: bytes | None, *, ok: bool) -> Json:
    """What the extension gives in place of a result. ``detail`` is used if it can be read."""
    form = decode(detail) if detail is not None else None
    found: Json = {"content": [{"type": "text", "text": text}], "isError": not ok}
    if form is None or not isinstance(form.get("content"), list):
        return found
    return {**found, **{name: form[name] for name in ("content", "details") if form.get(name) is not None}}


def told(text: str) -> Json:
    """A result in our own words."""
    return {"content": [{"type": "text", "text": text}], "isError": True}


def as_bytes(text: str) -> bytes:
    return text.encode("utf-8", "backslashreplace")
