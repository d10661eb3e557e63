"""The exact barrier: the harness asks before it runs a tool, and tells what became of it.

Nothing runs unless the answer says "allow"; the log has the release before the answer goes out, and the
outcome before the harness may go on. Custom tools are let pass: the tool host is their barrier."""

from __future__ import annotations

from harness_durable.adapter import LifeContext
from harness_durable.events import ASK
from harness_durable.policy import NOT_STARTED, Verdict, denied
from harness_durable.state import ToolCall

from .naming import is_custom
from .results import render
from .shapes import Json, encode, mapping, value, word

READS = frozenset({"Read", "Glob", "Grep", "LS", "NotebookRead", "WebFetch", "WebSearch", "TodoWrite"})
"""Built-in tools that change nothing but the harness itself."""

CONTAINERS = frozenset({"Agent", "Task"})
"""Tools that hold a loop of their own. Releasing one again is safe: what it does inside is gated call by
call."""


async def hook(ctx: LifeContext, name: str, event: Json) -> Json:
    """Answer a hook. Raises what the journal raises: then nobody may be answered."""
    call, tool = word(event.get("tool_use_id")), word(event.get("tool_name"))
    match name:
        case "PreToolUse":
            return await _before(ctx, call, tool, mapping(event.get("tool_input")))
        case "PostToolUse":
            return await _after(ctx, call, tool, event.get("tool_response"))
        case "PostToolUseFailure":
            if not is_custom(tool) and event.get("is_interrupt") is not True:
                text = word(event.get("error"))
                await ctx.journal.tool_finished(call, ok=False, result=_bytes(text), source="hook")
            return {}
        case _:
            return {}


async def _before(ctx: LifeContext, call: str, tool: str, arguments: Json) -> Json:
    refused = await _permission(ctx, call, tool)
    if refused:
        return _deny(refused)
    if is_custom(tool):
        return _allow()
    verdict = await ctx.journal.tool_gate(call, ctx.life)
    match verdict.action:
        case "release":
            return _allow(_foreground(arguments))
        case "supply":
            return await _supply(ctx, call, tool)
        case _:
            await _close(ctx, call, verdict)
            return _deny(verdict.text)


async def _close(ctx: LifeContext, call: str, verdict: Verdict) -> None:
    """A call that was released in another life and may not run again has its outcome now."""
    known = ctx.journal.state.tool_calls.get(call)
    if known is not None and known.open and known.released_in is not None:
        await ctx.journal.tool_closed(call, "unknown", verdict.text)


async def _after(ctx: LifeContext, call: str, tool: str, response: object) -> Json:
    known = ctx.journal.state.tool_calls.get(call)
    if known is not None and _supplied(ctx, known) and known.detail is not None:
        detail = value(await ctx.journal.reader.content(known.detail))
        return {"hookSpecificOutput": {"hookEventName": "PostToolUse", "updatedToolOutput": detail}}
    if not is_custom(tool):
        await ctx.journal.tool_finished(
            call, ok=True, result=_bytes(render(tool, response)), source="hook", detail=encode(response)
        )
    return {}


def _supplied(ctx: LifeContext, call: ToolCall) -> bool:
    """It had its outcome before this life: what ran now was only a stand-in."""
    return call.outcome == "completed" and call.released_in != ctx.life and not is_custom(call.name)


async def _supply(ctx: LifeContext, call: str, tool: str) -> Json:
    """Give a recorded result instead of running the call. Exact where the harness lets a stand-in run whose
    output is replaced; else the model is told the result as a reason not to run it."""
    known = ctx.journal.state.tool_calls[call]
    if known.outcome == "completed" and known.detail is not None:
        if tool == "Bash":
            return _allow({"command": ":", "description": "recorded result"})
        if tool in READS:
            return _allow()
    text = await ctx.journal.reader.text(known.result) if known.result is not None else ""
    ended = "finished" if known.outcome == "completed" else "failed"
    return _deny(f"this call has {ended} already and is not run again; its result was:\n{text}")


async def _permission(ctx: LifeContext, call: str, tool: str) -> str:
    """Empty if it may run. Waits for a person, however long that takes."""
    known = ctx.journal.state.tool_calls.get(call)
    if ctx.agent.permission_mode != ASK or known is None or not known.open or known.policy == "safe":
        return ""
    if known.released_in == ctx.life:
        return ""
    await ctx.journal.permission_requested(call, call, tool, ctx.life)
    await ctx.journal.until(lambda state: state.permissions[call].allow is not None)
    answer = ctx.journal.state.permissions[call]
    if answer.allow:
        return ""
    reason = denied(answer)
    await ctx.journal.tool_closed(call, "not_started", reason)
    return reason


def _foreground(arguments: Json) -> Json | None:
    """Work in the background dies with the harness, and nobody would hear of its end."""
    return {**arguments, "run_in_background": False} if arguments.get("run_in_background") else None


def _allow(arguments: Json | None = None) -> Json:
    decision: Json = {"hookEventName": "PreToolUse", "permissionDecision": "allow"}
    if arguments is not None:
        decision["updatedInput"] = arguments
    return {"hookSpecificOutput": decision}


def _deny(reason: str) -> Json:
    return {
        "hookSpecificOutput": {
            "hookEventName": "PreToolUse",
            "permissionDecision": "deny",
            "permissionDecisionReason": reason or NOT_STARTED,
        }
    }


def _bytes(text: str) -> bytes:
    return text.encode("utf-8", "backslashreplace")
