"""Preparing a life: its conversation is gathered from the log, and the transcript made to say the same."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Sequence

from harness_durable.adapter import Launch, LifeContext
from harness_durable.crashpoints import reach
from harness_durable.errors import BadSetting
from harness_durable.journal.driver import Splice

from ..common.shapes import Json
from .catalog import catalog
from .history import History, gather, transcript
from .items import same
from .launch import Start, launch
from .naming import transcript_file
from .rollout import Finding, line_of

log = logging.getLogger("harness_durable.codex")


async def prepare(ctx: LifeContext) -> Launch:
    """Everything to start this life with. See ``Adapter.prepare``."""
    if ctx.login:
        raise BadSetting(
            "HARNESS_DURABLE_UPSTREAM_AUTH=login is not supported with Codex: its login is for another API; "
            "use a key instead"
        )
    journal = ctx.journal
    mirrored, findings, count = await transcript(journal)
    history = await gather(journal, mirrored)
    splice = changes(mirrored, count, history.items)
    if splice is not None:
        reason = _reason(history, findings)
        log.info("session %s: %s", ctx.session, reason)
        await journal.transcript_replaced(transcript_file(journal.state.native_id), [splice], reason)
    reach("recovery.rebuilt")
    models = await catalog(ctx.harness.path, ctx.agent.model, ctx.agent.tools)
    return launch(Start(ctx.harness.path, ctx.agent, ctx.home, ctx.token, models))


def changes(mirrored: Sequence[Json], count: int, items: Sequence[Json]) -> Splice | None:
    """What makes the transcript's ``count`` lines into one line an item; ``None`` if they say that. Pure."""
    if count != len(mirrored):  # lines of a file that was brought here
        return Splice(0, None, [line_of(item) for item in items])
    pairs = zip(mirrored, items, strict=False)
    place = next((at for at, (one, other) in enumerate(pairs) if not same(one, other)), None)
    if place is None:
        place = min(count, len(items))
        if place == count == len(items):
            return None
    return Splice(place, None, [line_of(item) for item in items[place:]])


def _reason(history: History, findings: Sequence[Finding]) -> str:
    """In words, for people who read the log."""
    parts = [f"result written for {call}" for call in history.made_up]
    if history.cut:
        parts.append(f"response {history.cut} is given again")
    if history.sums_up:
        parts.append("it is summed up again, as before the death")
    if history.noted:
        parts.append("the model is told how the turn before ended, or what is gone")
    for trouble, found in Counter(finding.trouble for finding in findings).items():
        first = next(finding for finding in findings if finding.trouble == trouble)
        parts.append(f"{found} lines of which the first, line {first.line} ({first.length} bytes), {trouble}")
    return "; ".join(parts) or "the conversation as the model was last shown it"
