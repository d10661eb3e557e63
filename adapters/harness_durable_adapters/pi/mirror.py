"""The mirror: every line that the harness adds to its session file goes into the log, with the outcomes and
deliveries that it tells of."""

from __future__ import annotations

from collections.abc import Sequence

from harness_durable.adapter import LifeContext
from harness_durable.journal.calls import Told

from ..common.shapes import mapping, text_of
from .entries import Entry, read, readable
from .naming import transcript_file
from .results import as_bytes


async def mirror(ctx: LifeContext, lines: Sequence[bytes], offset: int) -> list[Entry]:
    """Take the new lines that a question came with; ``offset``: where the output stands after it. Returns
    what the lines say. What the log has already changes nothing."""
    entries = [read(line) for line in lines]
    if lines:
        file = transcript_file(ctx.journal.state.native_id)
        outcomes = [_outcome(ctx, entry, line) for entry, line in zip(entries, lines, strict=True)]
        await ctx.journal.transcript_appended(
            ctx.life, {file: lines}, offset=offset, told=[one for one in outcomes if one is not None]
        )
    return [entry for entry in entries if entry is not None]


def _outcome(ctx: LifeContext, entry: Entry | None, line: bytes) -> Told | None:
    """Outcomes that no hook told us: of calls that the harness refused before it asked us."""
    call = ctx.journal.state.tool_calls.get(entry.result) if entry is not None and entry.result else None
    if call is None or not call.open:
        return None
    message = mapping((readable(line) or {}).get("message"))
    text = as_bytes(text_of(message.get("content")))
    if call.released_in is None:
        return Told(call.id, "not_started", text)
    if ctx.journal.state.turns[ctx.turn].stop_by is not None:
        return None  # stopped between our word and its start, or while it ran: nobody knows which
    return Told(call.id, "failed" if message.get("isError") is True else "completed", text)
