"""The mirror: every item that the harness adds to its conversation goes into the log, with the outcomes that
it tells of. What only frames the conversation does not: each thread gets its own."""

from __future__ import annotations

from harness_durable.adapter import LifeContext
from harness_durable.journal.calls import Told

from ..common.shapes import Json, encode, mapping, word
from .items import is_frame, is_made_up, is_output, is_user, text_in
from .naming import transcript_file
from .results import ended, succeeded
from .rollout import line_of

_NO_TOOL = "unsupported call: "
"""Begins what the harness says of a tool that it does not have."""
_REMARKS = "internal_chat_message_metadata_passthrough"


async def mirror(ctx: LifeContext, item: Json, offset: int) -> None:
    """Take an item. ``offset``: where the output stands after it. What the log has changes nothing."""
    if _frames(item):
        return
    outcome = _outcome(ctx, item)
    await ctx.journal.transcript_appended(
        ctx.life,
        {transcript_file(ctx.journal.state.native_id): [line_of(_plain(item))]},
        offset=offset,
        told=[outcome] if outcome is not None else [],
    )


async def finish(ctx: LifeContext, item: Json) -> None:
    """An ``item/completed``: the outcome of a call, before the harness may tell its model."""
    done = ended(item)
    known = ctx.journal.state.tool_calls.get(done.call) if done is not None else None
    if done is None or known is None or not known.open:
        return
    await ctx.journal.tool_finished(
        done.call,
        ok=done.ok,
        result=done.text.encode("utf-8", "backslashreplace"),
        source="hook",
        detail=encode(item),
    )


def _frames(item: Json) -> bool:
    kinds = mapping(item.get(_REMARKS)).get("content_item_kinds")
    if is_user(item) and isinstance(kinds, list):
        return "user.text" not in kinds and is_frame(item)
    return is_frame(item)


def _plain(item: Json) -> Json:
    return {name: value for name, value in item.items() if name != _REMARKS}


def _outcome(ctx: LifeContext, item: Json) -> Told | None:
    """Of calls that the harness refused by itself, and of those that are left running."""
    if not is_output(item) or is_made_up(item):
        return None
    call = ctx.journal.state.tool_calls.get(word(item.get("call_id")))
    if call is None or not call.open or call.origin == "custom":
        return None
    text = text_in(item)
    raw = text.encode("utf-8", "backslashreplace")
    if call.released_in is None:
        return Told(call.id, "not_started", raw)
    return Told(call.id, "completed" if _well(call.name, text) else "failed", raw)


def _well(tool: str, text: str) -> bool:
    if tool in ("exec_command", "write_stdin", "apply_patch"):
        return succeeded(text)
    return not text.startswith(_NO_TOOL)
