"""A log as lines that a person can follow: one event, at most one line. Pure.

``tell`` is given the state *after* the event, so that a line can say which call, which life, how long.
"""

from __future__ import annotations

from typing import Literal

import msgspec

from harness_durable import events as ev
from harness_durable.cli.common import one_line
from harness_durable.payload import Payload
from harness_durable.state import Session, ToolCall

Tone = Literal["plain", "good", "bad", "warn", "life", "person", "quiet"]
WIDTH = 88


class Line(msgspec.Struct, frozen=True):
    """``mark`` is a sign with a meaning of its own, so that nothing depends on colour."""

    mark: str
    text: str
    tone: Tone = "plain"


def tell(state: Session, entry: ev.Entry) -> Line | None:
    """The line for an event; ``None`` for one that only machines need."""
    event = entry.event
    match event:
        case ev.SessionCreated():
            agent = event.agent
            what = f"{agent.adapter} {agent.harness_version}, {agent.model}, in {agent.workspace}"
            return Line("◆", f"session created: {what}", "quiet")
        case ev.MessageAccepted():
            return Line("❯", f"message {event.message}: {_text(event.text)}", "person")
        case ev.SteerAccepted():
            return Line("❯", f"steer {event.message}: {_text(event.text)}", "person")
        case ev.StopRequested():
            return Line("■", f"{event.by} asked for a stop", "person")
        case ev.PermissionRequested():
            return Line("?", f"permission {event.request} asked for {event.name}", "person")
        case ev.PermissionResolved():
            return Line("?", f"permission {'given' if event.allow else 'refused'} by {event.by}", "person")
        case ev.LifeStarted() | ev.LifeAttached() | ev.LifeEnded() | ev.TurnInterrupted() | ev.TurnResumed():
            return _life(state, event)
        case ev.TurnCompleted():
            return Line("✔", f"turn completed: {_text(event.text)}", "good")
        case ev.TurnFailed():
            return Line("✘", f"turn failed ({event.code}): {event.reason}", "bad")
        case ev.TurnCancelled():
            return Line("■", f"turn cancelled: {event.reason}", "warn")
        case ev.TurnNeedsInput():
            return Line("?", f"needs a person: {event.reason}", "warn")
        case ev.ModelRequested() | ev.ModelCompleted() | ev.ModelFailed() | ev.ModelReplayed():
            return _model(state, event)
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
            return _tool(state, event)
        case _:
            return None


def _life(
    state: Session,
    event: ev.LifeStarted | ev.LifeAttached | ev.LifeEnded | ev.TurnInterrupted | ev.TurnResumed,
) -> Line | None:
    match event:
        case ev.LifeStarted():
            return Line("┏", f"life {state.lives[event.life].number} begins", "life")
        case ev.LifeAttached():
            number = _number(state, event.life)
            return Line("┣", f"a new worker attaches to life {number}; the harness never noticed", "life")
        case ev.LifeEnded():
            settled = event.reason == "the turn was settled"
            sign, tone = ("┗", "life") if settled else ("╳", "bad")
            return Line(sign, f"life {_number(state, event.life)} ended: {event.reason}", tone)
        case ev.TurnInterrupted():
            return None
        case ev.TurnResumed():
            if event.rung == "attach":
                return None
            told = "; ".join(event.told) or "nothing had to be told"
            return Line("↻", f"the same turn goes on in life {_number(state, event.life)}: {told}", "warn")


def _model(
    state: Session, event: ev.ModelRequested | ev.ModelCompleted | ev.ModelFailed | ev.ModelReplayed
) -> Line | None:
    call = state.model_calls[event.call]
    who = f"model {event.call}" + (f" (subagent {call.agent})" if call.agent else "")
    match event:
        case ev.ModelRequested():
            return None
        case ev.ModelCompleted():
            usage = event.usage
            asked = f", asks for {len(event.tool_calls)} tool call(s)" if event.tool_calls else ""
            took = _took(call.requested, call.finished)
            return Line("•", f"{who} answered{took}: {usage.input} in, {usage.output} out{asked}")
        case ev.ModelFailed():
            status = "no answer" if event.status is None else f"status {event.status}"
            return Line("✘", f"{who}: {status}, {event.reason}", "bad")
        case ev.ModelReplayed():
            return Line("⟲", f"{who} answered from the log; not paid again", "good")


def _tool(
    state: Session,
    event: ev.ToolRequested
    | ev.ToolReleased
    | ev.ToolCompleted
    | ev.ToolFailed
    | ev.ToolCancelled
    | ev.ToolNotStarted
    | ev.ToolUnknown
    | ev.ToolRefused,
) -> Line | None:
    call = state.tool_calls.get(event.call)
    if call is None:
        return None
    took = _took(call.released, call.finished)
    match event:
        case ev.ToolRequested():
            return None
        case ev.ToolReleased():
            again = f" again (release {call.releases})" if call.releases > 1 else ""
            return Line("▸", f"{_name(call)} released{again} {_input(call)}")
        case ev.ToolCompleted():
            how = "" if event.source in ("hook", "host", "transcript") else f" (by {event.source})"
            return Line("✓", f"{_name(call)} completed{how}{took}: {_text(event.result)}", "good")
        case ev.ToolFailed():
            return Line("✗", f"{_name(call)} failed{took}: {_text(event.result)}", "bad")
        case ev.ToolCancelled():
            return Line("■", f"{_name(call)} cancelled{took}", "warn")
        case ev.ToolNotStarted():
            return Line("○", f"{_name(call)} not started", "warn")
        case ev.ToolUnknown():
            return Line(
                "▲", f"{_name(call)} UNKNOWN: released, and its outcome was lost {_input(call)}", "warn"
            )
        case ev.ToolRefused():
            return Line(
                "⊘", f"{_name(call)} refused once: it repeats {event.repeats}, which is unknown", "warn"
            )


def _name(call: ToolCall) -> str:
    inside = f" (subagent {call.agent})" if call.agent else ""
    return f"{call.name}{inside}"


def _input(call: ToolCall) -> str:
    return _text(call.input)


def _number(state: Session, life: str) -> str:
    return str(state.lives[life].number) if life in state.lives else "?"


def _text(payload: Payload) -> str:
    if payload.text is not None:
        return one_line(payload.text, WIDTH)
    if payload.blob is not None:
        return one_line(payload.preview, WIDTH - 20) + f" ({payload.size} bytes)"
    return f"({payload.size} bytes that are no text)"


def _took(start: int | None, end: int | None) -> str:
    return "" if start is None or end is None else f" in {(end - start) / 1000:.1f} s"
