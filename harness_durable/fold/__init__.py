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
from harness_durable.calls import Calls
from harness_durable.fold import calls, lives, turns, workspace
from harness_durable.state import Fork, ModelCall, Move, Permission, Session, ToolCall, Turn, Withheld

VERSION = 4
"""Of the state's shape and meaning. A snapshot of another version is ignored, and the log read instead."""


_encoder = msgspec.msgpack.Encoder(enc_hook=lambda _: 0)  # the calls have a place of their own
_rest = msgspec.msgpack.Decoder(Session, dec_hook=lambda _, __: Calls(msgspec.Struct))
_parts = msgspec.msgpack.Decoder(tuple[msgspec.Raw, dict[str, msgspec.Raw], dict[str, msgspec.Raw]])
_version = msgspec.msgpack.Decoder(tuple[int, msgspec.Raw])


def fold(entries: Iterable[ev.Entry], state: Session | None = None) -> Session:
    """The state after these entries."""
    state = Session() if state is None else state
    for entry in entries:
        apply(state, entry)
    return state


def dump(state: Session) -> bytes:
    """A snapshot, for the World to keep: the state apart from its calls, and those."""
    return _encoder.encode((VERSION, (state, state.model_calls.stored, state.tool_calls.stored)))


def copy(state: Session) -> Session:
    """One that can be folded on without changing this one. The calls of settled turns are shared."""
    twin = _rest.decode(_encoder.encode(state))
    twin.model_calls, twin.tool_calls = state.model_calls.copy(), state.tool_calls.copy()
    return twin


def load(data: bytes) -> Session | None:
    """The state of a snapshot; ``None`` if it is none of ours (then the log is read from the start). Calls of
    settled turns are decoded when somebody asks for one."""
    try:
        version, stored = _version.decode(data)
        if version != VERSION:
            return None
        rest, models, tools = _parts.decode(stored)
        state = _rest.decode(rest)
        state.model_calls, state.tool_calls = Calls(ModelCall, models), Calls(ToolCall, tools)
        turn = state.last_turn
        if turn is not None and (not turn.settled or turn.status == "needs_input"):
            _make_own(state, turn)
    except msgspec.MsgspecError:
        return None
    return state


def _make_own(state: Session, turn: Turn) -> None:
    """What goes on changing stays one object, whoever holds it."""
    for name in turn.model_calls:
        state.model_calls.change(name)
    for name in turn.tool_calls:
        state.tool_calls.change(name)


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
        case ev.SessionForked():
            _forked(state, entry, event)
        case ev.SessionMoved():
            if state.moved is None:
                state.moved = Move(event.to, entry.seq, event.status, event.due)
            state.closed = True
        case ev.MessageAccepted() | ev.MessageDelivered() | ev.SteerAccepted() | ev.SteerDelivered():
            turns.message(state, entry, event)
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
            turns.turn(state, entry, event)
        case ev.LifeStarted() | ev.LifeAttached() | ev.LifeEnded():
            lives.life(state, entry, event)
        case ev.ModelRequested() | ev.ModelCompleted() | ev.ModelFailed() | ev.ModelReplayed():
            calls.model(state, entry, event)
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
            calls.tool(state, entry, event)
        case ev.TranscriptAppended() | ev.TranscriptReplaced():
            lives.transcript(state, entry, event)
        case ev.WorkspaceCommitted():
            workspace.committed(state, entry, event)
        case ev.PermissionRequested():
            state.permissions.setdefault(
                event.request,
                Permission(
                    event.request, event.call, event.name, event.life, entry.time, asked_seq=entry.seq
                ),
            )
        case ev.PermissionResolved():
            asked = state.permissions.get(event.request)
            if asked is not None and asked.allow is None:
                asked.allow, asked.by, asked.reason = event.allow, event.by, event.reason
        case _:
            assert_never(event)


def _forked(state: Session, entry: ev.Entry, event: ev.SessionForked) -> None:
    """Who drove it, and that it may have ended, is the parent's story. What was open is closed by the events
    that follow this one. The model of a fork that was not told so knows of the first parent's place only."""
    agent, before = state.agent, state.untold
    place = before.workspace if before is not None else agent.workspace if agent is not None else ""
    state.forked = Fork(event.parent, event.at, entry.seq, place)
    if agent is not None:
        state.agent = msgspec.structs.replace(agent, workspace=event.workspace, files=event.files)
    state.worker, state.closed = "", False
