"""Questions of the model to a person: a permission request of ours under the call's id, so that it is durable
before anybody sees it, and its answer before the harness hears of it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from harness_durable.adapter import LifeContext

from ..common.admission import asked, gated
from ..common.answers import lines
from ..common.shapes import Json, encode, objects, word
from .launch import ASK

Explain = Callable[[str, str], Awaitable[None]]
"""Tells the model, about a call, why it did not run."""


async def answers(ctx: LifeContext, params: Json, explain: Explain) -> Json:
    """What goes back to the harness. Waits for a person, however long that takes.

    That nobody wants to answer the harness cannot tell its model, so that comes with a note."""
    call, questions = word(params.get("itemId")), objects(params.get("questions"))
    refused = await asked(ctx, call, ASK)
    given = ctx.journal.state.permissions.get(call)
    verdict = await gated(ctx, call) if given is not None and given.allow else None
    if given is None or verdict is None or verdict.action not in ("release", "supply"):
        await explain(call, refused or (verdict.text if verdict is not None else "nobody was asked"))
        return {"answers": {}}
    said = zip(questions, lines(given.reason, len(questions)), strict=True)
    told: Json = {"answers": {word(question.get("id")): {"answers": [text]} for question, text in said}}
    if ctx.journal.state.tool_calls[call].open:
        await ctx.journal.tool_finished(call, ok=True, result=encode(told), source="hook")
    return told
