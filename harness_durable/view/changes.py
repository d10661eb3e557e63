"""One file that a step changed, line by line."""

from __future__ import annotations

import difflib
from collections.abc import Callable
from functools import partial

import msgspec

from harness_durable import events as ev
from harness_durable.errors import DamagedLog, NotFound
from harness_durable.view.sheet import Sheet
from harness_durable.workspace import content

MOST = 1 << 20
"""Bytes of a file that are compared."""

Clean = Callable[[bytes], bytes]
"""Takes out of a file what must not be seen."""

LINES = 3000
"""Lines of a difference that are shown."""


class Difference(msgspec.Struct, frozen=True):
    """Each line begins with ``+``, ``-``, a space, or ``@`` where lines were left out. ``missing``: why there
    is nothing to show."""

    path: str
    lines: list[str]
    missing: str = ""


def _as_it_is(raw: bytes) -> bytes:
    return raw


async def changes(sheet: Sheet, seq: int, number: int, clean: Clean = _as_it_is) -> Difference:
    """Of the change with that number in a ``workspace.committed``; files go through ``clean`` first. Raises
    ``NotFound``."""
    event = (await sheet.entry(seq)).event
    if not isinstance(event, ev.WorkspaceCommitted) or not 0 <= number < len(event.changes):
        raise NotFound(f"event {seq} names no change {number}; reload the page")
    change = event.changes[number]
    try:
        before, after = await _text(sheet, change.old, clean), await _text(sheet, change.new, clean)
    except (DamagedLog, NotFound) as missing:
        return Difference(change.path, [], str(missing))
    if before is None or after is None:
        return Difference(change.path, [], "it is no text, or too large to be compared here")
    found = difflib.unified_diff(before.splitlines(), after.splitlines(), lineterm="", n=3)
    lines = [line for line in found if not line.startswith(("---", "+++"))]
    more = [f"@ {len(lines) - LINES} more lines"] if len(lines) > LINES else []
    return Difference(change.path, [*lines[:LINES], *more])


async def _text(sheet: Sheet, ref: str, clean: Clean) -> str | None:
    """Empty for a file that was not there; None for what cannot be compared."""
    if not ref:
        return ""
    if ref.startswith("@"):
        return clean(f"link to {ref[1:]}".encode()).decode("utf-8", "replace")
    raw = await content(ref, partial(sheet.reader.world.blob, sheet.reader.session))
    if len(raw) > MOST:
        return None
    try:
        return clean(raw).decode()
    except UnicodeDecodeError:
        return None
