"""Messages and steers, and the turns that they start."""

from __future__ import annotations

from typing import assert_never

from harness_durable import events as ev
from harness_durable.payload import PREVIEW, Payload
from harness_durable.state import Message, Session, Turn, TurnStatus

SHORT = 1024
"""Bytes of a payload that a state keeps whole after its turn is settled."""


def message(
    state: Session,
    entry: ev.Entry,
    event: ev.MessageAccepted | ev.MessageDelivered | ev.SteerAccepted | ev.SteerDelivered,
) -> None:
    match event:
        case ev.MessageAccepted():
            message = Message(event.message, "message", event.text, entry.seq, entry.time)
            message.not_before = message.due = event.not_before
            if not message.due:  # never before one that was accepted earlier, whatever a sender's clock says
                state.queue_time = message.due = max(state.queue_time, entry.time)
            state.messages.setdefault(event.message, message)
        case ev.SteerAccepted():
            steer = Message(event.message, "steer", event.text, entry.seq, entry.time, turn=event.turn)
            steer.remark = event.remark
            state.messages.setdefault(event.message, steer)
        case ev.MessageDelivered() | ev.SteerDelivered():
            known = state.messages.get(event.message)
            if known is not None:
                known.status, known.delivered_in = "delivered", event.life
        case _:
            assert_never(event)


def turn(
    state: Session,
    entry: ev.Entry,
    event: ev.TurnStarted
    | ev.TurnInterrupted
    | ev.TurnResumed
    | ev.StopRequested
    | ev.TurnCompleted
    | ev.TurnFailed
    | ev.TurnCancelled
    | ev.TurnNeedsInput,
) -> None:
    if isinstance(event, ev.TurnStarted):
        state.turns.setdefault(event.turn, Turn(event.turn, entry.seq, entry.time))
        message = state.messages.get(event.turn)
        if message is not None:
            message.status, message.turn = "started", event.turn
        return
    turn = state.turns.get(event.turn)
    if turn is None:
        return
    match event:
        case ev.TurnInterrupted():
            turn.status, turn.reason = "interrupted", event.reason
            turn.fruitless = max(0, turn.fruitless - event.planned)
            turn.rescued += event.transient
        case ev.TurnResumed():
            turn.status, turn.finished, turn.reason = "running", None, ""
            turn.told.extend(event.told)
            life = state.lives.get(event.life)
            if life is not None:
                life.rung = event.rung
            if event.by_person:
                turn.fruitless, turn.rescued, turn.stop_by = 0, 0, None
        case ev.StopRequested():
            turn.stop_by = turn.stop_by or event.by
            if turn.status == "needs_input":  # a person gives it up; somebody has to close it
                turn.status, turn.finished = "interrupted", None
        case ev.TurnCompleted():
            _settled(state, turn, "completed", entry)
            turn.text = event.text
        case ev.TurnFailed():
            _settled(state, turn, "failed", entry)
            turn.code, turn.reason = event.code, event.reason
        case ev.TurnCancelled():
            _settled(state, turn, "cancelled", entry)
            turn.reason = event.reason
        case ev.TurnNeedsInput():
            turn.status, turn.finished, turn.reason = "needs_input", entry.time, event.reason
            turn.ended_seq = entry.seq
        case _:
            assert_never(event)


def _settled(state: Session, turn: Turn, status: TurnStatus, entry: ev.Entry) -> None:
    """Nothing of the turn will be needed again but for looking at it, so its long payloads shrink to what
    they begin with: a state must not grow into a copy of the log. They stand in the log as they were."""
    turn.status, turn.finished, turn.ended_seq = status, entry.time, entry.seq
    for name in turn.model_calls:
        if asked := state.model_calls.change(name):
            asked.body = _shortened(asked.body)
    for name in turn.tool_calls:
        if call := state.tool_calls.change(name):
            call.result, call.detail = _shortened(call.result), _shortened(call.detail)
            if call.outcome not in ("unknown", "cancelled"):  # these are still compared with later calls
                call.input = _shortened(call.input) or call.input
    state.model_calls.settle(turn.model_calls)
    state.tool_calls.settle(turn.tool_calls)


def _shortened(payload: Payload | None) -> Payload | None:
    if payload is None or payload.blob is not None or payload.size <= SHORT:
        return payload
    preview = payload.text[:PREVIEW] if payload.text is not None else ""
    return Payload(payload.size, preview=preview)
