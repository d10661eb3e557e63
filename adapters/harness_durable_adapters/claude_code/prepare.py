"""Preparing a life: what the log knows is gathered, the transcript rebuilt, and what was made up recorded."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Sequence

from harness_durable.adapter import Launch, LifeContext
from harness_durable.crashpoints import reach

from .evidence import gather
from .launch import Start, launch
from .naming import main_file
from .proof import can_continue
from .rebuild import Rebuilt, file_of, rebuild, same_start
from .transcript import Finding, parse

log = logging.getLogger("harness_durable.claude_code")


async def prepare(ctx: LifeContext) -> Launch:
    """Everything to start this life with. See ``Adapter.prepare``."""
    journal = ctx.journal
    name = main_file(journal.state.native_id)
    old = await journal.transcript_lines(name)
    lines, findings = parse(old, journal.state.native_id)
    rebuilt = rebuild(lines, await gather(ctx, lines))
    new = [line.raw for line in rebuilt.lines]
    if new != old:
        keep = same_start(old, new)
        await journal.transcript_replaced(name, keep, new[keep:], _reason(rebuilt, findings))
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
    return launch(start, mode, file_of(rebuilt.lines))


def _reason(rebuilt: Rebuilt, findings: Sequence[Finding]) -> str:
    """In words, for people who read the log."""
    parts = [f"result written for {call}" for call in rebuilt.made_up]
    parts += [f"response {name} is given again" for name in rebuilt.cut]
    for trouble, count in Counter(finding.trouble for finding in findings).items():
        first = next(finding for finding in findings if finding.trouble == trouble)
        zeros = f", {first.zeros} of them zero" if first.zeros else ""
        parts.append(
            f"{count} {trouble} (first: line {first.line}, byte {first.offset}, {first.length} bytes{zeros})"
        )
    reason = "; ".join(parts) or "notes of an earlier recovery left out"
    log.info("transcript rebuilt: %s", reason)
    return reason
