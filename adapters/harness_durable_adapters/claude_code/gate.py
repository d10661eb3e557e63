"""The exact barrier: the harness asks before it runs a tool, and tells what became of it.

Nothing runs unless the answer says "allow"; the log has the release before the answer goes out, and the
outcome before the harness may go on. Custom tools are let pass: the tool host is their barrier."""

from __future__ import annotations

from harness_durable.adapter import LifeContext
from harness_durable.policy import NOT_STARTED, UNKNOWN
from harness_durable.state import ToolCall
from harness_durable.tools.arguments import MAX_DEPTH

from ..common.admission import admit, finished, permitted
from ..common.shapes import Json, encode, mapping, value, word
from .naming import is_custom
from .results import render

READS = frozenset({"Read", "Glob", "Grep", "LS", "NotebookRead", "WebFetch", "WebSearch", "TodoWrite"})
"""Built-in tools that change nothing but the harness itself."""

CONTAINERS = frozenset({"Agent", "Task"})
"""Tools that hold a loop of their own. Releasing one again is safe: what it does inside is gated call by
call."""

TOO_DEEP = f"not run: its input is nested more than {MAX_DEPTH} levels deep. Call again with a flatter one."


async def hook(ctx: LifeContext, name: str, event: Json) -> Json:
    """Answer a hook. What goes into a tool or comes out of it stands as bytes in ``event`` if it could not be
    read. Raises what the journal raises: then nobody may be answered."""
    call, tool = word(event.get("tool_use_id")), word(event.get("tool_name"))
    match name:
        case "PreToolUse":
            arguments = event.get("tool_input")
            if isinstance(arguments, bytes) and not is_custom(tool):
                return _deny(await _unread(ctx, call))
            return await _before(ctx, call, tool, mapping(arguments))
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
    if is_custom(tool):
        refused = await permitted(ctx, call, tool)
        return _deny(refused) if refused else _allow()
    verdict = await admit(ctx, call, tool)
    match verdict.action:
        case "release":
            return _allow(_foreground(arguments))
        case "supply":
            return await _supply(ctx, call, tool)
        case _:
            return _deny(verdict.text)


async def _unread(ctx: LifeContext, call: str) -> str:
    """Close a call whose input nobody could check. Only an older version of ours can have released it."""
    known = ctx.journal.state.tool_calls.get(call)
    if known is None or not known.open:
        return TOO_DEEP
    if known.released_in is not None:
        await ctx.journal.tool_closed(call, "unknown", UNKNOWN)
        return UNKNOWN
    await ctx.journal.tool_closed(call, "not_started", TOO_DEEP)
    return TOO_DEEP


async def _after(ctx: LifeContext, call: str, tool: str, response: object) -> Json:
    known = ctx.journal.state.tool_calls.get(call)
    if known is not None and _supplied(ctx, known) and known.detail is not None:
        detail = value(await ctx.journal.reader.content(known.detail))
        return {"hookSpecificOutput": {"hookEventName": "PostToolUse", "updatedToolOutput": detail}}
    if not is_custom(tool):
        if isinstance(response, bytes):
            result, detail = response, None
        else:
            result, detail = _bytes(render(tool, response)), encode(response)
        await ctx.journal.tool_finished(call, ok=True, result=result, source="hook", detail=detail)
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
    return _deny(await finished(ctx, call))


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
