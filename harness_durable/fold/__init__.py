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
from harness_durable.fold import calls, lives, turns, workspace
from harness_durable.state import Move, Permission, Session, Withheld

VERSION = 3
"""Of the state's shape and meaning. A snapshot of another version is ignored, and the log read instead."""

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
