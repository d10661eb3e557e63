"""The exact barrier: the harness asks before it runs a command or changes a file, and waits.

Nothing runs unless the answer says "accept"; the log has the release before the answer goes out. What
surprises: the harness cannot be told why a call is refused, it tells its model that the user rejected it.
That is true of a person's no, which we explain in a note. Of our own it is not: then nobody is answered, no
call beside it begins, and the life is over; the next one's conversation has the refusal in our words."""

from __future__ import annotations

import anyio

from harness_durable.adapter import LifeContext
from harness_durable.errors import HarnessStuck
from harness_durable.policy import gate
from harness_durable.state import Session, ToolCall

from ..common.admission import admit, gated, permitted
from ..common.naming import is_custom, plain
from ..common.shapes import Json, encode, mapping, word
from . import frames
from .launch import ASK, PATCH, SHELL
from .questions import Explain, answers

APPROVALS = {
    "item/commandExecution/requestApproval": SHELL,
    "item/fileChange/requestApproval": PATCH,
}
EXACT = frozenset({SHELL, PATCH, ASK})
"""The tools that ask."""


async def reply(ctx: LifeContext, question: Json, explain: Explain) -> bytes:
    """The answer to a request of the harness. Raises what the journal raises, and ``HarnessStuck`` instead of
    an answer that would not be true."""
    number, params = question.get("id"), mapping(question.get("params"))
    method = word(question.get("method"))
    if method in APPROVALS:
        decision = await _gate(ctx, word(params.get("itemId")), APPROVALS[method], explain)
        return frames.answer(number, {"decision": decision})
    if method == "item/tool/requestUserInput":
        return frames.answer(number, await answers(ctx, params, explain))
    if method == "item/tool/call":
        return frames.answer(number, await _run(ctx, params))
    return frames.refusal(number, f"{method} is not supported here")


async def _gate(ctx: LifeContext, call: str, tool: str, explain: Explain) -> str:
    """May the call run? Waits for a person, however long that takes."""
    state = ctx.journal.state
    for refused in _refused(state, call, ctx.life):
        await gated(ctx, refused)
        return await _give_up(ctx, refused)
    known = state.tool_calls.get(call)
    verdict = await admit(ctx, call, known.name if known is not None else tool)
    if verdict.action == "release":
        return "accept"
    if any(asked.call == call and asked.allow is False for asked in state.permissions.values()):
        await explain(call, verdict.text)
        return "decline"
    return await _give_up(ctx, call)


def _refused(state: Session, call: str, life: str) -> list[str]:
    """Calls of the same response that must not run, whatever a person says."""
    known = state.tool_calls.get(call)
    response = state.model_calls[known.model_call].tool_calls if known is not None else ()
    beside = [state.tool_calls[name] for name in response if name in state.tool_calls]
    return [other.id for other in beside if _is_refused(state, other, life)]


def _is_refused(state: Session, call: ToolCall, life: str) -> bool:
    return call.open and call.name in EXACT and gate(state, call, life).action != "release"


async def _give_up(ctx: LifeContext, call: str) -> str:
    """End the life, once our own tools have ended: of theirs nobody hears while a question is open."""
    turn = ctx.journal.state.turns[ctx.turn]
    if turn.stop_by is not None:
        await anyio.sleep_forever()  # the turn is being stopped, which ends this, too
    await ctx.journal.until(lambda state: not _ours_run(state, ctx))
    raise HarnessStuck(
        f"the call {call} must not run, which Codex cannot tell its model; the turn goes on in a life that "
        "begins with the reason"
    )


def _ours_run(state: Session, ctx: LifeContext) -> bool:
    calls = state.calls(state.turns[ctx.turn])
    return any(call.open and call.origin == "custom" and call.released_in == ctx.life for call in calls)


async def _run(ctx: LifeContext, params: Json) -> Json:
    """A custom tool: the tool host is its barrier."""
    call, name = word(params.get("callId")), word(params.get("tool"))
    refused = await permitted(ctx, call, name)
    if refused:
        return _told(refused, ok=False)
    given = encode(params.get("arguments") or {})
    result = await ctx.tools.call(call, plain(name) if is_custom(name) else name, given)
    return _told(result.text, ok=not result.is_error)


def _told(text: str, *, ok: bool) -> Json:
    return {"contentItems": [{"type": "inputText", "text": text}], "success": ok}
