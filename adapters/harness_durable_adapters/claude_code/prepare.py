"""Preparing a life: what the log knows is gathered, the transcript rebuilt, and what was made up recorded."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Mapping, Sequence

import msgspec

from harness_durable.adapter import Launch, LifeContext
from harness_durable.crashpoints import reach
from harness_durable.journal.requests import body_of
from harness_durable.policy import told
from harness_durable.state import ModelCall, ToolCall

from . import response as responses
from .case import Answer, Case, Response
from .launch import Start, launch
from .naming import is_custom, main_file, message_uuid
from .proof import can_continue
from .rebuild import Rebuilt, asked_for, content_for, file_of, rebuild, same_start
from .shapes import text_of, value
from .transcript import Finding, Line, parse

log = logging.getLogger("harness_durable.claude_code")


async def prepare(ctx: LifeContext) -> Launch:
    """Everything to start this life with. See ``Adapter.prepare``."""
    journal = ctx.journal
    name = main_file(journal.state.native_id)
    old = await journal.transcript_lines(name)
    lines, findings = parse(old, journal.state.native_id)
    rebuilt = rebuild(lines, await _case(ctx, lines))
    new = [line.raw for line in rebuilt.lines]
    if new != old:
        keep = same_start(old, new)
        await journal.transcript_replaced(name, keep, new[keep:], _reason(rebuilt, findings))
    reach("recovery.rebuilt")
    mode = rebuilt.mode
    if mode == "continue" and not await can_continue(ctx.harness):
        mode = "resume"  # and ``drive`` says aloud that the turn goes on
    start = Start(
        ctx.harness.path,
        journal.state.native_id,
        ctx.agent,
        ctx.home,
        ctx.token,
        custom=bool(ctx.tools.tools),
    )
    return launch(start, mode, file_of(rebuilt.lines))


def _reason(rebuilt: Rebuilt, findings: Sequence[Finding]) -> str:
    """In words, for people who read the log."""
    parts = [f"result written for {call}" for call in rebuilt.made_up]
    parts += [f"response {name} is given again" for name in rebuilt.cut]
    for trouble, count in Counter(finding.trouble for finding in findings).items():
        first = next(finding for finding in findings if finding.trouble == trouble)
        parts.append(
            f"{count} {trouble} (first: line {first.line}, byte {first.offset}, {first.length} bytes)"
        )
    reason = "; ".join(parts) or "notes of an earlier recovery left out"
    log.info("transcript rebuilt: %s", reason)
    return reason


async def _case(ctx: LifeContext, lines: Sequence[Line]) -> Case:
    state, reader = ctx.journal.state, ctx.journal.reader
    turn = state.turn
    prompt = ("", "")
    if turn is not None:
        number = message_uuid(state.native_id, turn.id)
        there = any(line.delivered == number for line in lines)
        text = (
            "" if there or turn.id not in state.messages else await reader.text(state.messages[turn.id].text)
        )
        prompt = (number, text)
    asking = [call for call in state.model_calls.values() if _asks(call)]
    shown = asked_for(lines)
    return Case(
        native=state.native_id,
        running=turn is not None,
        prompt=prompt,
        responses=[await _response(ctx, call, shown) for call in asking],
        answers=await _answers(ctx, lines),
        cwd=ctx.agent.workspace,
        version=ctx.harness.version,
    )


def _asks(call: ModelCall) -> bool:
    """A response of the main conversation that asks for tool calls."""
    return call.agent is None and call.status == "completed" and bool(call.tool_calls)


async def _response(ctx: LifeContext, call: ModelCall, shown: frozenset[str]) -> Response:
    tools = [ctx.journal.state.tool_calls[name] for name in call.tool_calls]
    response = Response(
        call.response_id,
        call.tool_calls,
        open=any(tool.open for tool in tools),
        began=any(
            tool.released_in is not None or tool.outcome not in (None, "not_started") for tool in tools
        ),
    )
    if response.began and call.body is not None and not shown.issuperset(response.calls):
        body = await ctx.journal.reader.content(call.body)
        return msgspec.structs.replace(response, recorded=responses.parse(call.content_type, body))
    return response


async def _answers(ctx: LifeContext, lines: Sequence[Line]) -> dict[str, Answer]:
    """For the calls of the main conversation that have an outcome, and no result of the harness's own that
    could be true."""
    shown = {
        str(result.get("tool_use_id"))
        for line in lines
        for result in line.results
        if not text_of(result.get("content")).startswith("The user doesn't want")
    }
    wanted = [
        call
        for call in ctx.journal.state.tool_calls.values()
        if call.agent is None and not call.open and call.id not in shown
    ]
    exact: Mapping[str, Mapping[str, object]] = await _exact(ctx) if wanted else {}
    return {call.id: await _answer(ctx, call, exact) for call in wanted}


async def _exact(ctx: LifeContext) -> Mapping[str, Mapping[str, object]]:
    """What the model was shown in the last request of the main conversation. The harness sends it before it
    writes it down."""
    state = ctx.journal.state
    main = [call for call in state.model_calls.values() if call.agent is None]
    if not main:
        return {}
    return responses.results_in(await body_of(ctx.journal.reader, state, main[-1].id, "messages"))


async def _answer(ctx: LifeContext, call: ToolCall, exact: Mapping[str, Mapping[str, object]]) -> Answer:
    reader = ctx.journal.reader
    text = await reader.text(call.result) if call.result is not None else told(call)
    detail = (value(await reader.content(call.detail)) if call.detail is not None else None) or text
    seen = exact.get(call.id)
    if seen is not None:
        return Answer(seen.get("content"), bool(seen.get("is_error")), detail)
    content = content_for(text, custom=is_custom(call.name))
    return Answer(content, call.outcome != "completed", detail)
