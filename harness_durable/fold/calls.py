"""Model and tool calls, and that they are progress."""

from __future__ import annotations

from typing import assert_never

from harness_durable import events as ev
from harness_durable.payload import Payload
from harness_durable.state import ModelCall, Outcome, Session, ToolCall


def model(
    state: Session,
    entry: ev.Entry,
    event: ev.ModelRequested | ev.ModelCompleted | ev.ModelFailed | ev.ModelReplayed,
) -> None:
    if isinstance(event, ev.ModelRequested):
        turn = state.last_turn
        asked = ModelCall(
            event.call,
            event.key,
            event.life,
            turn.id if turn is not None else "",
            event.wire,
            event.model,
            event.path,
            entry.seq,
            entry.time,
            event.agent,
            event.base,
        )
        state.model_calls.add(event.call, asked)
        if turn is not None:
            turn.model_calls.append(event.call)
        return
    call = state.model_calls.change(event.call)
    if call is None:
        return
    match event:
        case ev.ModelCompleted():
            call.status, call.completed_seq, call.finished = "completed", entry.seq, entry.time
            call.http_status, call.content_type, call.body = event.status, event.content_type, event.body
            call.response_id, call.stop_reason = event.response_id, event.stop_reason
            call.usage, call.tool_calls = event.usage, event.tool_calls
            _progress(state, call.turn)
        case ev.ModelFailed():
            call.status = "lost" if event.status is None else "failed"
            call.finished, call.http_status, call.reason = entry.time, event.status, event.reason
        case ev.ModelReplayed():
            call.replays = [*call.replays, event.life]  # the list may be shared with a copy
        case _:
            assert_never(event)


def tool(
    state: Session,
    entry: ev.Entry,
    event: ev.ToolRequested
    | ev.ToolReleased
    | ev.ToolCompleted
    | ev.ToolFailed
    | ev.ToolCancelled
    | ev.ToolNotStarted
    | ev.ToolUnknown
    | ev.ToolRefused,
) -> None:
    if isinstance(event, ev.ToolRequested):
        _requested(state, entry, event)
        return
    call = state.tool_calls.change(event.call)
    if call is None:
        return
    match event:
        case ev.ToolReleased():
            call.released_in, call.released, call.released_seq = event.life, entry.time, entry.seq
            call.releases, call.key, call.request = call.releases + 1, event.key, event.request
        case ev.ToolCompleted():
            call.source, call.detail = call.source or event.source, call.detail or event.detail
            _outcome(state, entry, call, "completed", event.result)
        case ev.ToolFailed():
            call.source, call.detail = call.source or event.source, call.detail or event.detail
            _outcome(state, entry, call, "failed", event.result)
        case ev.ToolCancelled():
            _outcome(state, entry, call, "cancelled", event.result)
        case ev.ToolNotStarted():
            _outcome(state, entry, call, "not_started", event.result)
        case ev.ToolUnknown():
            _outcome(state, entry, call, "unknown", event.result)
        case ev.ToolRefused():
            call.repeats = event.repeats
            state.refused.append(event.call)
            _outcome(state, entry, call, "not_started", event.result)
        case _:
            assert_never(event)


def _requested(state: Session, entry: ev.Entry, event: ev.ToolRequested) -> None:
    turn = state.last_turn
    if event.call in state.tool_calls:
        return
    call = ToolCall(
        event.call,
        event.name,
        event.input,
        event.model_call,
        turn.id if turn is not None else "",
        event.policy,
        event.origin,
        entry.seq,
        entry.time,
        event.agent,
    )
    state.tool_calls.add(event.call, call)
    if turn is not None:
        turn.tool_calls.append(event.call)


def _outcome(state: Session, entry: ev.Entry, call: ToolCall, outcome: Outcome, result: Payload) -> None:
    if call.outcome is not None:
        return
    if outcome in ("unknown", "cancelled"):
        state.cut_off.append(call.id)
    call.outcome, call.result = outcome, result
    call.outcome_seq, call.finished = entry.seq, entry.time
    if outcome in ("completed", "failed"):
        _progress(state, call.turn)


def _progress(state: Session, turn: str) -> None:
    """A finished model or tool call: the life was not in vain."""
    known, life = state.turns.get(turn), state.life
    if known is not None:
        known.fruitless = known.rescued = 0
    if life is not None:
        life.progress += 1
