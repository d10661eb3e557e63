"""Preparing a life: what the log knows is gathered, the conversation rebuilt, what was made up recorded."""

from __future__ import annotations

import logging
from collections.abc import Sequence

from harness_durable import clock
from harness_durable.adapter import Launch, LifeContext
from harness_durable.crashpoints import reach
from harness_durable.errors import BadSetting
from harness_durable.journal.driver import Splice

from ..common.shapes import Json
from .conversation import Conversation
from .events import CREATED, Row, made, read
from .evidence import gather, gather_subagent, left_over
from .launch import Start, launch
from .naming import events_file, session_id, session_of
from .naming import made as made_id
from .rebuild import rebuild

log = logging.getLogger("harness_durable.opencode")


async def prepare(ctx: LifeContext) -> Launch:
    """Everything to start this life with. See ``Adapter.prepare``. The server gets its events later."""
    if ctx.login:
        raise BadSetting(
            "opencode has no login of its own that we could use: unset HARNESS_DURABLE_UPSTREAM_AUTH and "
            "give a key with HARNESS_DURABLE_OPENAI_KEY"
        )
    session = session_id(ctx.journal.state.native_id)
    conversation, count = await _told(ctx, session)
    await ctx.journal.tools_closed(left_over(ctx, None, conversation))
    waiting = frozenset(conversation.subagents().values())
    for other in filter(None, map(session_of, list(ctx.journal.state.transcripts))):
        if other != session:
            await _prepare_subagent(ctx, other, goes_on=other in waiting)
    rebuilt = rebuild(conversation, await gather(ctx, conversation))
    first = created(session, ctx.cwd, ctx.harness.version, clock.now_ms())
    await _write(ctx, session, count, ([] if count else [first]) + rebuilt.rows, rebuilt.notes)
    reach("recovery.rebuilt")
    return launch(
        Start(
            ctx.harness.path,
            ctx.harness.version,
            ctx.agent,
            ctx.home,
            ctx.cwd,
            ctx.token,
            ctx.tools.specs(),
            session,
        )
    )


async def _told(ctx: LifeContext, session: str) -> tuple[Conversation, int]:
    """What the log has of a session of the harness's, and in how many lines."""
    conversation, count = Conversation(), 0
    async for raw in ctx.journal.transcript_lines(events_file(session)):
        count += 1
        row = read(raw)
        if row is not None:
            conversation.take(row)
    return conversation, count


async def _prepare_subagent(ctx: LifeContext, session: str, *, goes_on: bool) -> None:
    conversation, count = await _told(ctx, session)
    await ctx.journal.tools_closed(left_over(ctx, session, conversation))
    case = await gather_subagent(ctx, conversation, session, goes_on=goes_on)
    rebuilt = rebuild(conversation, case)
    await _write(ctx, session, count, rebuilt.rows, rebuilt.notes)


async def _write(
    ctx: LifeContext, session: str, count: int, rows: Sequence[Row], notes: Sequence[str]
) -> None:
    """Behind the ``count`` lines that the log has of a session."""
    if rows:
        reason = "; ".join(notes) or "the session begins"
        log.info("conversation %s rebuilt: %s", session, reason)
        splice = Splice(count, 0, [row.raw for row in rows])
        await ctx.journal.transcript_replaced(events_file(session), [splice], reason)


def created(session: str, cwd: str, version: str, now: int) -> Row:
    """A session's first event. With a title it asks no model for one; its project is filled in when it is
    given to the harness."""
    info: Json = {
        "id": session,
        "slug": "harness-durable",
        "version": version,
        "projectID": "global",
        "directory": cwd,
        "title": "harness-durable",
        "time": {"created": now, "updated": now},
    }
    return made(made_id("evt", now, session), CREATED, {"sessionID": session, "info": info})
