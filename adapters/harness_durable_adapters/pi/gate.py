"""The exact barrier: the extension asks before a call runs, and tells what came of it.

Nothing runs unless the answer says so; the log has the release before the answer goes out, and the outcome
before the harness goes on. Custom tools are let pass: the tool host is their barrier."""

from __future__ import annotations

from harness_durable.adapter import LifeContext
from harness_durable.policy import CANCELLED

from ..common.admission import admit, permitted
from ..common.naming import is_custom, plain
from ..common.shapes import Json, word
from .evidence import outcome_of
from .frames import Question
from .results import outcome, recorded, told

READS = frozenset({"read", "grep", "find", "ls"})
"""Built-in tools that change nothing."""


async def reply(ctx: LifeContext, question: Question) -> Json:
    """The answer to a question. Raises what the journal raises: then nobody may be answered."""
    call, tool = word(question.about.get("call")), word(question.about.get("tool"))
    match question.kind:
        case "call":
            return await _before(ctx, call, tool)
        case "result":
            return await _after(ctx, call, question.about)
        case "custom":
            arguments = word(question.about.get("input")).encode("utf-8", "surrogatepass")
            result = await ctx.tools.call(call, plain(tool), arguments)
            return {"text": result.text, "isError": result.is_error}
        case _:
            return {}


async def _before(ctx: LifeContext, call: str, tool: str) -> Json:
    if is_custom(tool):
        refused = await permitted(ctx, call, tool)
        return {"reason": refused} if refused else {"run": True}
    verdict = await admit(ctx, call, tool)
    match verdict.action:
        case "release":
            return {"run": True}
        case "supply":
            return {"result": await _supplied(ctx, call)}
        case _:
            return {"reason": verdict.text}


async def _after(ctx: LifeContext, call: str, about: Json) -> Json:
    failed = about.get("isError") is True
    turn = ctx.journal.state.turns[ctx.turn]
    if failed and turn.stop_by is not None:
        await ctx.journal.tool_closed(call, "cancelled", CANCELLED)
        return {"result": told(CANCELLED)}
    found = outcome(about.get("content"), word(about.get("outcome")))
    await ctx.journal.tool_finished(
        call, ok=not failed, result=found.text, source="hook", detail=found.detail
    )
    return {}


async def _supplied(ctx: LifeContext, call: str) -> Json:
    """The recorded result of a call that ran in an earlier life."""
    known = ctx.journal.state.tool_calls[call]
    text, detail = await outcome_of(ctx.journal.reader, known)
    return recorded(text, detail, ok=known.outcome == "completed")
