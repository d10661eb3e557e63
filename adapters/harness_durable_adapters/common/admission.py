"""The exact barrier, whichever way a harness asks: may this built-in call run now?

The log has a person's answer and the release before the harness hears of either. Custom tools do not come
here: the tool host is their barrier."""

from __future__ import annotations

from harness_durable.adapter import LifeContext
from harness_durable.events import ASK
from harness_durable.policy import Verdict, denied


async def admit(ctx: LifeContext, call: str, tool: str) -> Verdict:
    """``release``: let it run. ``supply``: it has its result already; give that instead, or refuse with its
    text. Else refuse it with ``text``.

    Waits for a person, however long that takes. Raises what the journal raises: then nobody may be answered.
    """
    refused = await permitted(ctx, call, tool)
    return Verdict("deny", refused) if refused else await gated(ctx, call)


async def gated(ctx: LifeContext, call: str) -> Verdict:
    """The same for a call about which no person is asked."""
    verdict = await ctx.journal.tool_gate(call, ctx.life)
    if verdict.action in ("deny", "refuse"):
        await _close(ctx, call, verdict)
    return verdict


async def permitted(ctx: LifeContext, call: str, tool: str) -> str:
    """A person's no, for a call that passes another barrier afterwards; empty if it may go on."""
    known = ctx.journal.state.tool_calls.get(call)
    if ctx.agent.permission_mode != ASK or known is None or known.policy == "safe":
        return ""
    return await asked(ctx, call, tool)


async def asked(ctx: LifeContext, call: str, tool: str) -> str:
    """The same, whatever the mode and the policy: a person is asked, and waited for."""
    known = ctx.journal.state.tool_calls.get(call)
    if known is None or not known.open or known.released_in == ctx.life:
        return ""
    await ctx.journal.permission_requested(call, call, tool, ctx.life)
    await ctx.journal.until(lambda state: state.permissions[call].allow is not None)
    answer = ctx.journal.state.permissions[call]
    if answer.allow:
        return ""
    reason = denied(answer)
    await ctx.journal.tool_closed(call, "not_started", reason)
    return reason


async def _close(ctx: LifeContext, call: str, verdict: Verdict) -> None:
    """A call that was released in another life and may not run again has its outcome now."""
    known = ctx.journal.state.tool_calls.get(call)
    if known is not None and known.open and known.released_in is not None:
        await ctx.journal.tool_closed(call, "unknown", verdict.text)


async def finished(ctx: LifeContext, call: str) -> str:
    """The recorded result of a call that must not run again, as a reason not to run it."""
    known = ctx.journal.state.tool_calls[call]
    text = await ctx.journal.reader.text(known.result) if known.result is not None else ""
    ended = "finished" if known.outcome == "completed" else "failed"
    return f"this call has {ended} already and is not run again; its result was:\n{text}"
