"""What the log knows that a rebuild needs: responses of the main conversation, and what became of their
calls."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

import msgspec

from harness_durable import events as ev
from harness_durable.adapter import LifeContext
from harness_durable.journal import Reader
from harness_durable.journal.requests import body_of
from harness_durable.policy import told
from harness_durable.state import ModelCall, Session, ToolCall

from ..common.endings import ending
from ..common.outcome import outcome
from ..common.shapes import text_of, value
from . import response as responses
from .case import BROKEN_OFF, Answer, Case, Response
from .frames import as_sent
from .lost import lost
from .naming import is_custom, main_file, message_uuid
from .rebuild import asked_for, content_for
from .transcript import Finding, Line, is_made_up


async def gather(ctx: LifeContext, lines: Sequence[Line], findings: Sequence[Finding]) -> Case:
    state = ctx.journal.state
    turn = state.turn
    transcript = state.transcripts.get(main_file(state.native_id))
    summed = transcript.summed_seq if transcript is not None else 0
    shown = asked_for(lines)
    asking = [call for call in state.model_calls.values() if _asks(call)]
    count = [call for call in asking if shown.intersection(call.tool_calls) or _counts(state, call, summed)]
    responses = [await _response(ctx, call, shown) for call in count]
    return Case(
        native=state.native_id,
        running=turn is not None,
        prompt=message_uuid(state.native_id, turn.id) if turn is not None else "",
        responses=responses,
        answers=await _answers(ctx, lines, shown.union(*(one.calls for one in responses if one.recorded))),
        cwd=ctx.cwd,
        version=ctx.harness.version,
        ending=_ending(state),
        shown=frozenset(transcript.shown) if transcript is not None else frozenset(),
        lost=lost(findings),
        answered=turn is not None and any(_answered(state.model_calls[call]) for call in turn.model_calls),
    )


def _ending(state: Session) -> str:
    """A turn that was completed, and has no last word in the transcript, broke off all the same."""
    settled = any(turn.settled for turn in state.turns.values())
    return ending(state) or BROKEN_OFF if settled else ""


def _answered(call: ModelCall) -> bool:
    """Was it answered within the main conversation?"""
    return call.agent is None and call.status == "completed"


def _asks(call: ModelCall) -> bool:
    """A response of the main conversation that asks for tool calls."""
    return _answered(call) and bool(call.tool_calls)


def _counts(state: Session, call: ModelCall, summed: int) -> bool:
    """Was it not over yet when the transcript was last cut at a compaction?"""
    calls = [state.tool_calls.get(name) for name in call.tool_calls]
    return any(one is None or one.outcome_seq == 0 or one.outcome_seq > summed for one in calls)


async def _response(ctx: LifeContext, call: ModelCall, shown: frozenset[str]) -> Response:
    known = ctx.journal.state.tool_calls  # a log that was cut may end before it names them
    tools = [known[name] for name in call.tool_calls if name in known]
    response = Response(
        call.response_id,
        call.tool_calls,
        open=len(tools) < len(call.tool_calls) or any(tool.open for tool in tools),
        began=any(
            tool.released_in is not None or tool.outcome not in (None, "not_started") for tool in tools
        ),
    )
    if response.began and call.body is not None and not shown.issuperset(response.calls):
        body = await _body(ctx.journal.reader, call)
        recorded = responses.parse(call.content_type, body)
        return msgspec.structs.replace(response, recorded=recorded, prompt=await _prompt(ctx, call.turn))
    return response


async def _prompt(ctx: LifeContext, turn: str) -> tuple[str, str]:
    message = ctx.journal.state.messages.get(turn)
    if message is None:
        return "", ""
    text = as_sent(await ctx.journal.reader.text(message.text))
    return message_uuid(ctx.journal.state.native_id, turn), text


async def _answers(ctx: LifeContext, lines: Sequence[Line], asked: frozenset[str]) -> dict[str, Answer]:
    """For the calls of the main conversation that have an outcome, and no result of the harness's own that
    could be true."""
    results = [result for line in lines for result in line.results]
    shown = {str(result.get("tool_use_id")) for result in results if not is_made_up(result)}
    asked |= {str(result.get("tool_use_id")) for result in results if is_made_up(result)}
    wanted = [
        call
        for call in ctx.journal.state.tool_calls.values()
        if call.agent is None and not call.open and call.id in asked and call.id not in shown
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
    result, kept = await outcome(reader, call)
    text = await reader.text(result) if result is not None else told(call)
    detail = (value(await reader.content(kept)) if kept is not None else None) or text
    seen = exact.get(call.id)
    if seen is not None:
        shows = await _steers_in(ctx, text_of(seen.get("content")), beside=text)
        return Answer(seen.get("content"), bool(seen.get("is_error")), detail, shows)
    content = content_for(text, custom=is_custom(call.name))
    return Answer(content, call.outcome != "completed", detail)


async def _steers_in(ctx: LifeContext, content: str, *, beside: str) -> tuple[str, ...]:
    """Steers of the turn that the harness put behind a result, into the same block, where nothing tells them
    from it but that the call itself did not say so."""
    state = ctx.journal.state
    found: list[str] = []
    same: Counter[str] = Counter()
    for steer in state.messages.values():
        if steer.turn == ctx.turn and steer.kind == "steer":
            said = f"\n{as_sent(await ctx.journal.reader.text(steer.text)).strip()}\n"
            if f"\n{content}\n".count(said) > f"\n{beside}\n".count(said) + same[said]:
                same[said] += 1  # whoever says the same twice is heard twice
                found.append(message_uuid(state.native_id, steer.id))
    return tuple(found)


async def _body(reader: Reader, call: ModelCall) -> bytes:
    """From the log: the state keeps no contents of settled turns."""
    event = await reader.event(call.completed_seq)
    return await reader.content(event.body) if isinstance(event, ev.ModelCompleted) else b""
