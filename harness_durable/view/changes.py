"""One file that a step changed, line by line, as the page gets it."""

from __future__ import annotations

import msgspec

from harness_durable import events as ev
from harness_durable.changes import Clean, as_it_is, compared, reading
from harness_durable.errors import DamagedLog, NotFound
from harness_durable.view.sheet import Sheet

LINES = 3000
"""Lines of a difference that are shown."""


class Difference(msgspec.Struct, frozen=True):
    """Each line begins with ``+``, ``-``, a space, or ``@`` where lines were left out. ``missing``: why there
    is nothing to show."""

    path: str
    lines: list[str]
    missing: str = ""


async def changes(sheet: Sheet, seq: int, number: int, clean: Clean = as_it_is) -> Difference:
    """Of the change with that number in a ``workspace.committed``; files go through ``clean`` first. Raises
    ``NotFound``."""
    event = (await sheet.entry(seq)).event
    if not isinstance(event, ev.WorkspaceCommitted) or not 0 <= number < len(event.changes):
        raise NotFound(f"event {seq} names no change {number}; reload the page")
    change = event.changes[number]
    try:
        found = await compared(change, reading(sheet.reader), clean)
    except (DamagedLog, NotFound) as missing:
        return Difference(change.path, [], str(missing))
    lines = found.text.split("\n")[:-1]
    more = [f"@ {len(lines) - LINES} more lines"] if len(lines) > LINES else []
    return Difference(change.path, [*lines[:LINES], *more], found.note)
