"""The fold as rows of a page: what an event makes visible, and what it changes. Pure.

``rows`` is given the state *after* the event. The things of a state (messages, lives, calls, permissions)
have functions in ``items`` that say how they look; every event that changes one gives a new version of it, so
that the last versions up to a place are the fold of the log so far. The tests check that, at every place."""

from __future__ import annotations

import msgspec

from harness_durable import codec
from harness_durable import events as ev
from harness_durable.runtime.lives import SETTLED
from harness_durable.state import Life, Session
from harness_durable.view import files
from harness_durable.view.items import life, message, model, number, permission, tool
from harness_durable.view.row import Row, row
from harness_durable.view.words import bare, counted, cut, excerpt


def rows(state: Session, entry: ev.Entry) -> list[Row]:
    """The versions that an event gives, its own first. Never empty: a kind that is not known here is shown
    by its name."""
    word, event = codec.kind_of(entry.event), entry.event
    match event:
        case ev.MessageAccepted() | ev.SteerAccepted() | ev.MessageDelivered() | ev.SteerDelivered():
            return _about(entry, word, [message(state, entry, event.message, word)])
        case ev.MessageWithdrawn():
            return _about(entry, word, [message(state, entry, event.message, word)])
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
            return _turn(state, entry, event, word)
        case ev.LifeStarted() | ev.LifeAttached() | ev.LifeEnded():
            return _life(state, entry, event, word)
        case ev.ModelRequested() | ev.ModelCompleted() | ev.ModelFailed():
            return _about(entry, word, [model(state, entry, event.call, word)])
        case ev.ModelReplayed():
            return _replayed(state, entry, event, word)
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
            return _tool(state, entry, event, word)
        case ev.PermissionRequested() | ev.PermissionResolved():
            return _about(entry, word, [permission(state, entry, event.request, word)])
        case ev.WorkspaceCommitted():
            return [files.committed(state, entry, event, word)]
        case _:
            return [_plain(entry, word)]


def _about(entry: ev.Entry, word: str, found: list[Row | None]) -> list[Row]:
    return [one for one in found if one is not None] or [row(entry, "log", "", word, word=word)]


def _plain(entry: ev.Entry, word: str) -> Row:
    """What stands alone and never changes."""
    match entry.event:
        case ev.SessionCreated(agent=agent):
            what = f"{agent.adapter} {agent.harness_version}, model {agent.model}, in {agent.workspace}"
            return row(entry, "session", "created", "Session created", cut(what), word=word)
        case ev.SessionForked(parent=parent, at=at, workspace=workspace):
            what = f"from {parent}, as it was at its event {at}; from here on in {workspace}"
            return row(entry, "session", "forked", "Session forked", cut(what), word=word)
        case ev.SessionMoved(to=to):
            return row(entry, "session", "moved", "Session moved", cut(f"it goes on in {to}"), word=word)
        case ev.SessionClosed(reason=reason):
            return row(entry, "session", "closed", "Session closed", cut(reason), word=word)
        case ev.SessionClaimed(worker=worker, host=host, pid=pid, epoch=epoch):
            who = f"worker {worker[:8]}, pid {pid} on {host}, drives it from here on (epoch {epoch})"
            who += "; the one before it may be alive still" if entry.event.displaced else ""
            return row(entry, "log", "", "Claimed", cut(who), word=word)
        case ev.SessionReleased(reason=reason):
            return row(entry, "log", "", "Released by its worker", cut(reason), word=word)
        case ev.TranscriptAppended(count=count):
            said = f"{counted(count, 'line')} of the agent's own transcript kept"
            return row(entry, "log", "", "Transcript", said, word=word)
        case ev.TranscriptReplaced(reason=reason):
            return row(entry, "log", "", "Transcript rewritten", cut(reason), word=word)
        case ev.ModelWithheld(media=media, reason=reason):
            what = f"{', '.join(map(str, media))}: the provider refused it ({reason})"
            return row(entry, "withheld", "withheld", "Withheld from the model", cut(what), word=word)
        case _:
            return row(entry, "log", "", word, word=word)


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
    word: str,
) -> list[Row]:
    match event:
        case ev.TurnStarted():
            own = row(entry, "log", "", "Turn started", word=word)
            return _about(entry, word, [own, message(state, entry, event.turn)])
        case ev.TurnInterrupted():
            own = row(entry, "log", "", "Turn interrupted", cut(event.reason), word=word)
            how = "stopped" if event.planned else "gave_up"
            return [
                own,
                *(_no_crash(state, entry, event.turn, how) if event.planned or event.transient else []),
            ]
        case ev.TurnResumed():
            where = number(state, event.life)
            if event.rung == "attach":  # the row of the worker's death says all of it
                return [row(entry, "log", "", "Turn goes on", "undisturbed", word=word, life=where)]
            told = cut("; ".join(_named(state, sentence) for sentence in event.told))
            text = told or ("a person had it go on" if event.by_person else "no call was cut off")
            own = row(entry, "resumed", "resumed", "Turn resumed", text, word=word, life=where)
            return _about(entry, word, [own, life(state, entry, event.life)])
        case ev.StopRequested():
            return [row(entry, "stop", "asked", "Stop", f"{cut(event.by)} asked for it", word=word)]
        case ev.TurnCompleted():
            return [row(entry, "turn", "completed", "Turn completed", excerpt(event.text), word=word)]
        case ev.TurnFailed():
            text = cut(f"{event.code}: {event.reason}")
            return [row(entry, "turn", "failed", "Turn failed", text, word=word)]
        case ev.TurnCancelled():
            return [row(entry, "turn", "cancelled", "Turn cancelled", cut(event.reason), word=word)]
        case ev.TurnNeedsInput():
            return [row(entry, "turn", "needs_input", "A person is needed", cut(event.reason), word=word)]


def _named(state: Session, told: str) -> str:
    """Without the ids of calls, which say nothing to a person."""
    for call in state.calls(state.turn) if state.turn is not None else ():
        told = told.replace(f"{call.name} ({call.id})", bare(call))
    return told


def _life(
    state: Session, entry: ev.Entry, event: ev.LifeStarted | ev.LifeAttached | ev.LifeEnded, word: str
) -> list[Row]:
    now = life(state, entry, event.life, word if isinstance(event, ev.LifeStarted) else "")
    match event:
        case ev.LifeStarted():
            return _about(entry, word, [now])
        case ev.LifeAttached():
            return _about(entry, word, [_attached(state, entry, event.life, word), now])
        case ev.LifeEnded():
            how = "settled" if event.reason == SETTLED else "died"
            return _about(entry, word, [_end(state, entry, event.life, how, word), now])


def _no_crash(state: Session, entry: ev.Entry, turn: str, how: str) -> list[Row]:
    """We ended it ourselves, as in a deploy, or the agent gave the turn up: its end is no crash."""
    known = state.turns.get(turn)
    last = state.lives.get(known.lives[-1]) if known is not None and known.lives else None
    end = _end(state, entry, last.id, how, "") if last is not None and last.ended_seq else None
    return [end] if end is not None else []


def _attached(state: Session, entry: ev.Entry, name: str, word: str) -> Row | None:
    """A worker is gone and the agent that it drove is not. ``begun`` is the last recorded step, ``over`` when
    another worker came. What ran in the worker itself, a tool of ours, was cut off."""
    known = state.lives.get(name)
    if known is None:
        return None
    title, text = f"The worker of life {known.number} was lost", "another one came; the agent never noticed"
    turn = state.turns.get(known.turn)
    lost = [
        bare(call)
        for call in (state.calls(turn) if turn is not None else ())
        if call.open and call.origin == "custom" and call.released_in == name
    ]
    return row(
        entry,
        "attached",
        "attached",
        title,
        text,
        word=word,
        life=known.number,
        begun=_last_step(state, known),
        over=entry.time,
        badges=_during(lost),
    )


def _during(names: list[str]) -> tuple[str, ...]:
    return (f"while {cut(', '.join(names), 60)} ran",) if names else ()


def _end(state: Session, entry: ev.Entry, name: str, how: str, word: str) -> Row | None:
    """The end of a life. ``begun`` is its last recorded step: it died after that; ``over`` when that was
    found out."""
    known = state.lives.get(name)
    if known is None:
        return None
    turn = state.turns.get(known.turn)
    text, badges = known.reason, tuple[str, ...]()
    if how == "settled" or (turn is not None and turn.settled):
        how, title, text = "settled", f"Life {known.number} ended", "its turn was settled"
    else:
        title = f"Life {known.number} {_ENDS[how]}"
        cut_off = [
            bare(call)
            for call in (state.calls(turn) if turn is not None else ())
            if call.open and call.released_in == name
        ]
        badges = _during(cut_off)
    return row(
        entry,
        "end",
        how,
        title,
        cut(text),
        word=word,
        item=known.ended_seq,
        life=known.number,
        begun=_last_step(state, known),
        over=known.ended or 0,
        badges=badges,
    )


_ENDS = {"died": "died", "stopped": "was stopped as planned", "gave_up": "gave up, for what may pass"}


def _last_step(state: Session, known: Life) -> int:
    """When the last thing of a life was recorded (ms) before anybody found it dead."""
    turn, found = state.turns.get(known.turn), [known.started]
    for name in turn.model_calls if turn is not None else ():
        asked = state.model_calls[name]
        if asked.life == known.id:
            found += [asked.requested, *([asked.finished or 0] if asked.status == "completed" else [])]
    for call in state.calls(turn) if turn is not None else ():
        if call.released_in == known.id:
            ended = call.finished if call.source != "recovery" else 0
            found += [call.released or 0, ended or 0]
    return max(found)


def _replayed(state: Session, entry: ev.Entry, event: ev.ModelReplayed, word: str) -> list[Row]:
    where, again = number(state, event.life), model(state, entry, event.call)
    title, text = "Model answer from the log", "the provider was not asked, nothing was paid again"
    own = row(
        entry, "replay", "completed", title, text, word=word, life=where, begun=entry.time, over=entry.time
    )
    return _about(entry, word, [own, again])


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
    word: str,
) -> list[Row]:
    now, call = tool(state, entry, event.call, word), state.tool_calls.get(event.call)
    late = isinstance(event, ev.ToolUnknown) or (
        isinstance(event, ev.ToolCompleted | ev.ToolFailed) and event.source in ("probe", "recovery")
    )
    if now is None or call is None or not late:
        return _about(entry, word, [now])
    name = cut(bare(call), 60)
    if isinstance(event, ev.ToolUnknown):
        title = f"{name}: nobody knows if it happened"
        text = "the model is told so, and to look before it repeats it"
    else:
        probed = call.source == "probe"
        title = f"{name}: {'its probe found out' if probed else 'settled by recovery'}"
        text = excerpt(call.result)
    own = row(entry, "settled", call.outcome or "", title, text, word=word)
    return [
        msgspec.structs.replace(own, mark=now.mark, tone=now.tone),
        msgspec.structs.replace(now, word=""),
    ]
