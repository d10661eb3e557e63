"""Preparing a life: what the log knows is gathered, the conversation rebuilt, what was made up recorded."""

from __future__ import annotations

import logging

from harness_durable import clock
from harness_durable.adapter import Launch, LifeContext
from harness_durable.crashpoints import reach
from harness_durable.errors import BadSetting
from harness_durable.journal.driver import Splice

from ..common.shapes import Json
from .conversation import Conversation
from .events import CREATED, Row, made, read
from .evidence import gather
from .launch import Start, launch
from .naming import events_file, session_id
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
    journal, file = ctx.journal, events_file(ctx.journal.state.native_id)
    conversation, count = Conversation(), 0
    async for raw in journal.transcript_lines(file):
        count += 1
        row = read(raw)
        if row is not None:
            conversation.take(row)
    rebuilt = rebuild(conversation, await gather(ctx, conversation))
    first = created(session_id(journal.state.native_id), ctx.cwd, ctx.harness.version, clock.now_ms())
    rows = ([] if count else [first]) + rebuilt.rows
    if rows:
        reason = "; ".join(rebuilt.notes) or "the session begins"
        log.info("conversation rebuilt: %s", reason)
        await journal.transcript_replaced(file, [Splice(count, 0, [row.raw for row in rows])], reason)
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
        )
    )


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
