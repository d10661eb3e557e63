"""What the log knows that a rebuild needs: responses, and what became of their calls."""

from __future__ import annotations

from typing import Literal

from harness_durable import clock
from harness_durable import events as ev
from harness_durable.adapter import LifeContext
from harness_durable.policy import AGAIN, NOT_STARTED, UNKNOWN, told
from harness_durable.state import ModelCall, Session, ToolCall

from ..common.endings import ending
from ..common.outcome import outcome
from ..common.shapes import Json, decode, mapping, word
from . import response as responses
from .conversation import Conversation
from .naming import mark, marked, session_id
from .rebuild import Answer, Case, Response

Closed = tuple[str, Literal["not_started", "unknown"], str]


def left_over(ctx: LifeContext, agent: str | None, conversation: Conversation) -> list[Closed]:
    """Outcomes of open calls that nobody will ask about again: their response stays, since a sibling has its
    outcome or a subagent that goes on. ``agent``: whose calls, None for the main loop."""
    state, goes_on = ctx.journal.state, conversation.subagents()
    closed: list[Closed] = []
    for response in state.model_calls.values():
        calls = _calls(state, response) if response.agent == agent else []
        if all(call.open and call.id not in goes_on for call in calls):
            continue
        for call in calls:
            if call.open and call.id not in goes_on:
                closed.append(_lost(call))
    return closed


def _calls(state: Session, response: ModelCall) -> list[ToolCall]:
    """Those that a log names which was cut right behind the response."""
    return [state.tool_calls[name] for name in response.tool_calls if name in state.tool_calls]


def _lost(call: ToolCall) -> Closed:
    if call.released_in is None:
        return call.id, "not_started", NOT_STARTED
    return call.id, "unknown", AGAIN if call.policy == "safe" else UNKNOWN


async def gather(ctx: LifeContext, conversation: Conversation) -> Case:
    """For the main loop."""
    running = ctx.rung != "start" and _shown(ctx, conversation)
    session = session_id(ctx.journal.state.native_id)
    return await _case(ctx, conversation, session, None, running, ending(ctx.journal.state))


async def gather_subagent(
    ctx: LifeContext, conversation: Conversation, session: str, *, goes_on: bool
) -> Case:
    """For a subagent. ``goes_on``: its call waits for it."""
    return await _case(ctx, conversation, session, session, goes_on, "")


async def _case(
    ctx: LifeContext, conversation: Conversation, session: str, agent: str | None, running: bool, end: str
) -> Case:
    state = ctx.journal.state
    written = frozenset(conversation.calls(finished=True))
    goes_on = frozenset(conversation.subagents())
    asking = [call for call in state.model_calls.values() if call.agent == agent and call.tool_calls]
    found = [await _response(ctx, call, written, goes_on) for call in asking]
    wanted = {call for one in found if one.recorded is not None for call in one.calls}
    shown = conversation.calls()
    wanted |= {call for call, part in shown.items() if _doubtful(state.tool_calls.get(call), part)}
    answers = {
        name: await answer(ctx, state.tool_calls[name])
        for name in wanted
        if name in state.tool_calls and not state.tool_calls[name].open
    }
    return Case(
        session=session,
        running=running,
        model=ctx.agent.model,
        cwd=ctx.cwd,
        now=clock.now_ms(),
        responses=found,
        answers=answers,
        ending=end,
    )


def _shown(ctx: LifeContext, conversation: Conversation) -> bool:
    """Has the harness got the message of the turn?"""
    number = mark(ctx.journal.state.native_id, ctx.turn)
    return any(said.is_user and marked(said.id) == number for said in conversation.messages.values())


def _doubtful(call: ToolCall | None, part: Json) -> bool:
    """May what the harness wrote of a call be untrue, or not be its end?"""
    if call is None or call.open:
        return False
    status = mapping(part.get("state")).get("status")
    return call.outcome not in ("completed", "failed") or status != "completed"


async def _response(
    ctx: LifeContext, call: ModelCall, written: frozenset[str], goes_on: frozenset[str]
) -> Response:
    tools = _calls(ctx.journal.state, call)
    opened = len(tools) < len(call.tool_calls) or any(tool.open and tool.id not in goes_on for tool in tools)
    began = any(tool.released_in is not None or tool.outcome not in (None, "not_started") for tool in tools)
    recorded = None
    if began and not opened and not written.issuperset(call.tool_calls):
        recorded = responses.parse(call.content_type, await _body(ctx, call))
    return Response(call.id, call.tool_calls, opened, began, recorded)


async def _body(ctx: LifeContext, call: ModelCall) -> bytes:
    """From the log: the state keeps no contents of settled turns."""
    event = await ctx.journal.reader.event(call.completed_seq)
    return await ctx.journal.reader.content(event.body) if isinstance(event, ev.ModelCompleted) else b""


async def answer(ctx: LifeContext, call: ToolCall) -> Answer:
    """What became of a call that has its outcome."""
    reader = ctx.journal.reader
    result, detail = await outcome(reader, call)
    text = await reader.text(result) if result is not None else told(call)
    form = (decode(await reader.content(detail)) or {}) if detail is not None else {}
    exact = word(form.get("output")) or text
    ran = call.outcome in ("completed", "failed")
    return Answer(call.outcome == "completed", ran, exact, form)
