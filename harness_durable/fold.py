"""Events to state. Pure: the same log always gives the same state.

``apply`` changes the state that it is given and returns nothing, so that following a log costs only what is
new. A fold never refuses an event that stands in the log: what was written has happened. Where the log
could say a thing twice (an outcome, a message id) the first one counts; the journal does not let the second
one in."""

from __future__ import annotations

from collections.abc import Iterable
from typing import assert_never

import msgspec

from harness_durable import events as ev
from harness_durable.payload import PREVIEW, Payload
from harness_durable.state import (
    Life,
    Message,
    ModelCall,
    Move,
    Outcome,
    Permission,
    Segment,
    Session,
    ToolCall,
    Transcript,
    Turn,
    TurnStatus,
    Withheld,
)

VERSION = 2
"""Of the state's shape and meaning. A snapshot of another version is ignored, and the log read instead."""

SHORT = 1024
"""Bytes of a payload that a state keeps whole after its turn is settled."""

_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(tuple[int, Session])
_version = msgspec.msgpack.Decoder(tuple[int, msgspec.Raw])


def fold(entries: Iterable[ev.Entry], state: Session | None = None) -> Session:
    """The state after these entries."""
    state = Session() if state is None else state
    for entry in entries:
        apply(state, entry)
    return state


def dump(state: Session) -> bytes:
    """A snapshot, for the World to keep."""
    return _encoder.encode((VERSION, state))


def copy(state: Session) -> Session:
    """One that can be folded on without changing this one."""
    return _decoder.decode(dump(state))[1]


def load(data: bytes) -> Session | None:
    """The state of a snapshot; ``None`` if it is none of ours (then the log is read from the start)."""
    try:
        return _decoder.decode(data)[1] if _version.decode(data)[0] == VERSION else None
    except msgspec.MsgspecError:
        return None


def apply(state: Session, entry: ev.Entry) -> None:
    """Take one entry into the state."""
    state.seq, state.updated = entry.seq, entry.time
    event = entry.event
    match event:
        case ev.SessionCreated():
            state.created, state.native_id = entry.time, event.native_id
            state.agent, state.title = event.agent, event.title
        case ev.SessionClaimed():
            state.epoch, state.worker = event.epoch, event.worker
            state.displaced_seq = entry.seq if event.displaced else state.displaced_seq
        case ev.SessionReleased():
            state.worker = ""
        case ev.SessionClosed():
            state.closed = True
        case ev.SessionMoved():
            if state.moved is None:
                state.moved = Move(event.to, entry.seq, event.status, event.due)
            state.closed = True
        case ev.MessageAccepted() | ev.MessageDelivered() | ev.SteerAccepted() | ev.SteerDelivered():
            _message(state, entry, event)
        case ev.MessageWithdrawn():
            if event.message in state.messages:
                state.messages[event.message].status = "withdrawn"
        case (
            ev.TurnStarted()
            | ev.TurnInterrupted()
            | ev.TurnResumed()
            | ev.StopRequested()
            | ev.TurnCompleted()
            | ev.TurnFailed()
            | ev.TurnCancelled()
            | ev.TurnNeedsInput()
        ):
            _turn(state, entry, event)
        case ev.LifeStarted() | ev.LifeAttached() | ev.LifeEnded():
            _life(state, entry, event)
        case ev.ModelRequested() | ev.ModelCompleted() | ev.ModelFailed() | ev.ModelReplayed():
            _model(state, entry, event)
        case ev.ModelWithheld():
            for media in event.media:
                state.withheld.setdefault(media.digest, Withheld(media, event.call, event.reason))
        case (
            ev.ToolRequested()
            | ev.ToolReleased()
            | ev.ToolCompleted()
            | ev.ToolFailed()
            | ev.ToolCancelled()
            | ev.ToolNotStarted()
            | ev.ToolUnknown()
            | ev.ToolRefused()
        ):
            _tool(state, entry, event)
        case ev.TranscriptAppended() | ev.TranscriptReplaced():
            _transcript(state, entry, event)
        case ev.PermissionRequested():
            state.permissions.setdefault(
                event.request, Permission(event.request, event.call, event.name, event.life, entry.time)
            )
        case ev.PermissionResolved():
            asked = state.permissions.get(event.request)
            if asked is not None and asked.allow is None:
                asked.allow, asked.by, asked.reason = event.allow, event.by, event.reason
        case _:
            assert_never(event)


def _message(
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
            state.messages.setdefault(event.message, steer)
        case ev.MessageDelivered() | ev.SteerDelivered():
            known = state.messages.get(event.message)
            if known is not None:
                known.status, known.delivered_in = "delivered", event.life
        case _:
            assert_never(event)


def _turn(
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
        state.model_calls[name].body = _shortened(state.model_calls[name].body)
    for call in state.calls(turn):
        call.result, call.detail = _shortened(call.result), _shortened(call.detail)
        if call.outcome not in ("unknown", "cancelled"):  # these are still compared with later calls
            call.input = _shortened(call.input) or call.input


def _shortened(payload: Payload | None) -> Payload | None:
    if payload is None or payload.blob is not None or payload.size <= SHORT:
        return payload
    preview = payload.text[:PREVIEW] if payload.text is not None else ""
    return Payload(payload.size, preview=preview)


def _life(state: Session, entry: ev.Entry, event: ev.LifeStarted | ev.LifeAttached | ev.LifeEnded) -> None:
    if isinstance(event, ev.LifeStarted):
        life = Life(
            event.life,
            len(state.lives) + 1,
            event.turn,
            event.sandbox,
            event.run_dir,
            event.host,
            event.harness_version,
            entry.time,
            [state.worker],
        )
        state.lives[event.life] = life
        turn = state.turns.get(event.turn)
        if turn is not None:
            turn.lives.append(event.life)
            turn.fruitless += 1
        return
    known = state.lives.get(event.life)
    if known is None:
        return
    if isinstance(event, ev.LifeAttached):
        known.workers.append(event.worker)
    elif known.ended is None:
        known.ended, known.reason, known.code = entry.time, event.reason, event.code


def _progress(state: Session, turn: str) -> None:
    """A finished model or tool call: the life was not in vain."""
    known, life = state.turns.get(turn), state.life
    if known is not None:
        known.fruitless = known.rescued = 0
    if life is not None:
        life.progress += 1


def _model(
    state: Session,
    entry: ev.Entry,
    event: ev.ModelRequested | ev.ModelCompleted | ev.ModelFailed | ev.ModelReplayed,
) -> None:
    if isinstance(event, ev.ModelRequested):
        turn = state.last_turn
        state.model_calls[event.call] = ModelCall(
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
        if turn is not None:
            turn.model_calls.append(event.call)
        return
    call = state.model_calls.get(event.call)
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
            call.replays.append(event.life)
        case _:
            assert_never(event)


def _tool(
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
    call = state.tool_calls.get(event.call)
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
            _outcome(state, entry, call, "not_started", event.result)
        case _:
            assert_never(event)


def _requested(state: Session, entry: ev.Entry, event: ev.ToolRequested) -> None:
    turn = state.last_turn
    if event.call in state.tool_calls:
        return
    state.tool_calls[event.call] = ToolCall(
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
    if turn is not None:
        turn.tool_calls.append(event.call)


def _outcome(state: Session, entry: ev.Entry, call: ToolCall, outcome: Outcome, result: Payload) -> None:
    if call.outcome is not None:
        return
    call.outcome, call.result = outcome, result
    call.outcome_seq, call.finished = entry.seq, entry.time
    if outcome in ("completed", "failed"):
        _progress(state, call.turn)


def _transcript(
    state: Session, entry: ev.Entry, event: ev.TranscriptAppended | ev.TranscriptReplaced
) -> None:
    transcript = state.transcripts.setdefault(event.file, Transcript(event.file))
    fresh = [Segment(entry.seq, event.count)] if event.count else []
    if isinstance(event, ev.TranscriptAppended):
        state.offsets[event.life] = max(state.offsets.get(event.life, 0), event.offset)
        transcript.segments.extend(fresh)
        return
    behind = [] if event.drop is None else transcript.part(event.keep + event.drop)
    transcript.segments = [*transcript.part(0, event.keep), *fresh, *behind]
    if event.shown is not None:
        transcript.summed_seq, transcript.shown = entry.seq, event.shown
