"""One event a line, as ``trace --json`` prints them, with their bodies in place.

A payload is ``{"size": bytes, "text": …}``, or ``"data"`` in base64 where it is no UTF-8, or only its size
where content is left out. A model request holds what is new in it: its body is the parts of call ``base`` up
to ``keep``, then its own ``parts``, so that a file is as long as a session and not as its square."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec

from harness_durable import codec
from harness_durable.events import Entry
from harness_durable.exports.material import Material

VERSION = 1
"""Of the lines. Members may be added; none changes its meaning."""


def jsonl(material: Material) -> Iterator[bytes]:
    """The lines, each with its newline."""
    for entry in material.entries:
        head = {"v": VERSION, "session": material.session}
        yield msgspec.json.encode({**head, **as_dict(entry)}) + b"\n"


def as_dict(entry: Entry) -> dict[str, Any]:
    """An entry as people's tools read it."""
    fields: dict[str, Any] = msgspec.to_builtins(entry.event)
    return {
        "seq": entry.seq,
        "time": entry.time,
        "epoch": entry.epoch,
        **fields,
        "kind": codec.kind_of(entry.event),
    }
