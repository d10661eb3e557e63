"""An event with its bodies resolved and with nothing in it that must not be seen.

Every member of every event is a name, a word of ours, or content. What surprises: a member that is in no
list is content, so that a kind that is added tomorrow leaks nothing; a test asks for its place in a list."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import cast

import msgspec

from harness_durable.events import Entry
from harness_durable.exports.redaction import Redaction
from harness_durable.payload import Payload

SETTLED = "the turn was settled"
"""The one reason that says how a life ended: it stays, for it is ours."""

NAMES = frozenset(
    {
        "adapter", "agent", "base", "beside", "by", "call", "code", "content_type", "custom_tools", "digest",
        "effort", "file", "harness_version", "host", "key", "life", "media_type", "message", "model",
        "model_call", "name", "native_id", "new", "old", "parent", "path", "permission_mode", "repeats",
        "request", "response_id", "root", "run_dir", "sandbox", "stop_reason", "to", "tool_calls", "tools",
        "torn", "turn", "why", "worker", "workspace",
    }
)  # fmt: skip
"""Ids, names and paths. They stay without content, since the structure hangs on them; patterns find them."""

WORDS = frozenset(
    {"cause", "files", "kind", "op", "origin", "policies", "policy", "rung", "source", "status", "wire"}
)
"""Words out of a few, in which nothing can hide."""

CONTENT = frozenset({"reason", "sandbox_options", "shown", "skipped", "system_prompt", "title", "told"})
"""What somebody said, within the event itself; options too, as they may be a program's environment."""

Read = Callable[[Payload], Awaitable[bytes]]


async def redacted(entry: Entry, redaction: Redaction, read: Read) -> Entry:
    """The entry as it may be shown. Every payload is inline, or has neither content nor preview."""
    event = entry.event
    changes = {name: await _value(name, getattr(event, name), redaction, read) for name in _fields(event)}
    return Entry(entry.seq, entry.time, entry.epoch, msgspec.structs.replace(event, **changes))


async def _value(name: str, value: object, redaction: Redaction, read: Read) -> object:
    if isinstance(value, Payload):
        return await _payload(value, redaction, read)
    if isinstance(value, msgspec.Struct):
        inside = {one: await _value(one, getattr(value, one), redaction, read) for one in _fields(value)}
        return msgspec.structs.replace(value, **inside)
    if isinstance(value, tuple):
        several = cast(tuple[object, ...], value)
        return tuple([await _value(name, one, redaction, read) for one in several])
    if isinstance(value, dict):
        pairs = cast(dict[str, object], value).items()
        return {redaction.name(key): await _value(name, one, redaction, read) for key, one in pairs}
    if not isinstance(value, str) or name in WORDS or value == SETTLED:
        return value
    return redaction.name(value) if name in NAMES else redaction.words(value)


async def _payload(payload: Payload, redaction: Redaction, read: Read) -> Payload:
    if not redaction.content:
        return Payload(payload.size)
    raw = redaction.bytes(await read(payload))
    try:
        return Payload(len(raw), text=raw.decode())
    except UnicodeDecodeError:
        return Payload(len(raw), data=raw)


def _fields(struct: msgspec.Struct) -> tuple[str, ...]:
    return struct.__struct_fields__
