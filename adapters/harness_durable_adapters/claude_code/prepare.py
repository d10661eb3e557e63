"""Preparing a life: what the log knows is gathered, the transcript rebuilt, and what was made up recorded."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Sequence

from msgspec import structs

from harness_durable.adapter import Launch, LifeContext
from harness_durable.crashpoints import reach

from ..common.lines import pieces
from .compaction import without_summed
from .evidence import gather
from .launch import Start, launch
from .lost import is_pending
from .naming import main_file, message_uuid
from .proof import can_continue
from .rebuild import Rebuilt, rebuild
from .stored import changes, own_lines, slim_lines
from .transcript import Finding, Line

log = logging.getLogger("harness_durable.claude_code")


async def prepare(ctx: LifeContext) -> Launch:
    """Everything to start this life with. See ``Adapter.prepare``."""
    journal = ctx.journal
    name = main_file(journal.state.native_id)
    lines, findings, count = await slim_lines(journal, name)
    rebuilt = rebuild(lines, await gather(ctx, lines, findings))
    kept, summed = without_summed(rebuilt.lines)
    splices = await changes(journal, name, lines, count, kept)
    if splices:
        if summed:
            splices[0] = structs.replace(splices[0], shown=_shown(ctx, name, summed))
        await journal.transcript_replaced(name, splices, _reason(rebuilt, findings, len(summed)))
    reach("recovery.rebuilt")
    mode = rebuilt.mode
    if mode == "continue" and not await can_continue(ctx.harness):
        mode = "resume"  # and ``drive`` says aloud that the turn goes on
    start = Start(
        ctx.harness.path,
        journal.state.native_id,
        ctx.agent,
        ctx.home,
        ctx.token,
        custom=bool(ctx.tools.tools),
        login=ctx.login,
    )
    return launch(start, mode, lambda: pieces(own_lines(journal, name)))


def _shown(ctx: LifeContext, file: str, summed: Sequence[Line]) -> tuple[str, ...]:
    """The messages of this turn that the lines before the compaction showed to be delivered."""
    state = ctx.journal.state
    before = {uuid for line in summed for uuid in line.shows}.union(state.transcripts[file].shown)
    ours = [message_uuid(state.native_id, one.id) for one in state.messages.values() if one.turn == ctx.turn]
    return tuple(uuid for uuid in ours if uuid in before)


def _reason(rebuilt: Rebuilt, findings: Sequence[Finding], summed: int) -> str:
    """In words, for people who read the log."""
    parts = [f"result written for {call}" for call in rebuilt.made_up]
    if summed:
        parts.append(f"{summed} lines before the last compaction are left out")
    parts += [f"response {name} is given again" for name in rebuilt.cut]
    for trouble, count in Counter(finding.trouble for finding in findings).items():
        first = next(finding for finding in findings if finding.trouble == trouble)
        zeros = f", {first.zeros} of them zero" if first.zeros else ""
        parts.append(
            f"{count} {trouble} (first: line {first.line}, byte {first.offset}, {first.length} bytes{zeros})"
        )
    if any(is_pending(line) for line in rebuilt.lines):
        parts.append("the model is told of what is lost with the next message")
    reason = "; ".join(parts) or "notes of an earlier recovery left out"
    log.info("transcript rebuilt: %s", reason)
    return reason
