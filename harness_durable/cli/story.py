"""A log as lines that a person can follow: one event, at most one line. Pure.

``tell`` is given the state *after* the event, so that a line can say which call, which life, how long.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Literal, cast

import msgspec

from harness_durable import events as ev
from harness_durable.cli.common import one_line
from harness_durable.cli.times import shown
from harness_durable.payload import Payload
from harness_durable.state import Session, ToolCall

Tone = Literal["plain", "good", "bad", "warn", "life", "person", "quiet"]
WIDTH = 96


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
        case ev.SessionForked():
            whence = f"event {event.at} of {one_line(event.parent, WIDTH)}"
            return Line(
                "◆", f"forked from {whence}; from here on in {one_line(event.workspace, WIDTH)}", "quiet"
            )
        case ev.SessionMoved():
            return Line("◆", f"moved to {event.to}", "quiet")
        case ev.MessageAccepted():
            later = f" (not before {shown(event.not_before)})" if event.not_before else ""
            return Line("❯", f"message {event.message}{later}: {_text(event.text)}", "person")
        case ev.MessageWithdrawn():
            return Line("❯", f"{event.by} took message {event.message} back", "person")
        case ev.SteerAccepted():
            return Line("❯", f"steer {event.message}: {_text(event.text)}", "person")
        case ev.StopRequested():
            return Line("■", f"{event.by} asked for a stop", "person")
        case ev.PermissionRequested():
            call = state.tool_calls.get(event.call)
            what = event.name if call is None else f"{named(call)} ({given(call)})"
            how = f"`harness-durable answer SESSION {event.request} --allow` (or --deny)"
            return Line("?", f"permission asked for {what}: {how}", "person")
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
        case ev.ModelWithheld():
            what = " and ".join(one_line(str(media), WIDTH) for media in event.media)
            why = f"the provider refused it ({one_line(event.reason, WIDTH)})"
            kept = f"the original is in the log, in the request of {event.call}"
            return Line("▲", f"withheld from the model: {what}; {why}; {kept}", "warn")
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
        case ev.WorkspaceCommitted():
            return _files(state, event)
        case _:
            return None


def _files(state: Session, event: ev.WorkspaceCommitted) -> Line:
    if event.skipped:
        return Line("▲", f"files not saved: {event.skipped}", "warn")
    counts = event.counts
    pairs = ((counts.modified, "modified"), (counts.added, "added"), (counts.removed, "removed"))
    told = [f"{count} {word}" for count, word in pairs if count] or ["as they were"]
    begin = {
        "found": "files found changed",
        "restored": "files made anew from the log",
        "fork": "files of the fork made from the log",
    }
    parts = [f"{begin.get(event.cause, 'files')}: {', '.join(told)} (step {state.files.steps})"]
    if event.torn:
        parts.append(f"written to while they were read: {_paths(event.torn)}")
    if event.left_out:
        names = [f"{left.path} ({left.reason})" for left in event.left_out]
        parts.append(f"left out: {_paths(names, event.left_out_more)}")
    return (
        Line("↻", "; ".join(parts), "warn") if event.cause in begin else Line("±", "; ".join(parts), "quiet")
    )


def _paths(names: Sequence[str], more: int = 0) -> str:
    """A few of them; \\x20 is a space."""
    named = [one_line(name.replace("\\x20", " "), WIDTH) for name in names[:5]]
    more += len(names) - len(named)
    return ", ".join(named) + (f" and {more} more" if more else "")


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
            said = f"life {_number(state, event.life)} ended: {event.reason}"
            settled = event.reason == "the turn was settled"
            return Line("┗", said, "life") if settled else Line("╳", said, "bad")
        case ev.TurnInterrupted():
            return None
        case ev.TurnResumed():
            if event.rung == "attach":
                return None
            told = _shortened(state, "; ".join(event.told)) or "no call was cut off"
            where = f" in life {_number(state, event.life)}" if event.life else ""
            return Line("↻", f"the same turn goes on{where}: {told}", "warn")


def _model(
    state: Session, event: ev.ModelRequested | ev.ModelCompleted | ev.ModelFailed | ev.ModelReplayed
) -> Line | None:
    call = state.model_calls.get(event.call)
    if call is None:
        return None
    who = f"model {event.call}" + (f" (subagent {call.agent})" if call.agent else "")
    match event:
        case ev.ModelRequested():
            return None
        case ev.ModelCompleted():
            usage = event.usage
            took = _took(call.requested, call.finished)
            return Line("•", f"{who} answered{took} ({usage.input} tokens in, {usage.output} out)")
        case ev.ModelFailed():
            return Line("✘", f"{who} failed: {event.reason}", "bad")
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
            return Line("▸", f"{named(call)} released{again}: {given(call)}")
        case ev.ToolCompleted():
            how = "" if event.source in ("hook", "host", "transcript") else f" (by {event.source})"
            return Line("✓", f"{named(call)} completed{how}{took}: {_text(event.result)}", "good")
        case ev.ToolFailed():
            return Line("✗", f"{named(call)} failed{took}: {_text(event.result)}", "bad")
        case ev.ToolCancelled():
            return Line("■", f"{named(call)} cancelled{took}", "warn")
        case ev.ToolNotStarted():
            return Line("○", f"{named(call)} not started", "warn")
        case ev.ToolUnknown():
            return Line("▲", f"{named(call)} UNKNOWN: released, and its outcome was lost", "warn")
        case ev.ToolRefused():
            return Line("⊘", f"{named(call)} refused once: it repeats a call that is unknown", "warn")


def named(call: ToolCall) -> str:
    """A tool as people know it: custom ones without what a harness puts before their name."""
    inside = f" (subagent {call.agent})" if call.agent else ""
    return f"{_bare(call)}{inside}"


def _bare(call: ToolCall) -> str:
    if call.origin != "custom":
        return call.name
    return call.name.rpartition("__")[2].removeprefix("durable_") or call.name


def given(call: ToolCall) -> str:
    """A call's input as people read it: the first argument bare, the others by name."""
    try:
        found: object = json.loads(call.input.text or "")
    except (ValueError, RecursionError):
        return _text(call.input)
    if not isinstance(found, dict) or not found:
        return _text(call.input)
    first, *others = cast(dict[str, object], found).items()
    parts = [_plain(first[1]), *(f"{key}={_plain(value)}" for key, value in others)]
    return one_line(", ".join(parts), WIDTH)


def _plain(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _shortened(state: Session, told: str) -> str:
    """Without the ids of calls, which say nothing to a person."""
    if state.turn is not None:
        for call in state.calls(state.turn):
            told = told.replace(f"{call.name} ({call.id})", _bare(call))
    return told


def _number(state: Session, life: str) -> str:
    return str(state.lives[life].number) if life in state.lives else "?"


def _text(payload: Payload) -> str:
    if payload.text is not None:
        return one_line(payload.text, WIDTH)
    if payload.blob is not None:
        return one_line(payload.preview, WIDTH - 20) + f" ({payload.size} bytes)"
    return f"({payload.size} bytes{' that are no text' if payload.data is not None else ''})"


def _took(start: int | None, end: int | None) -> str:
    return "" if start is None or end is None else f" in {(end - start) / 1000:.1f} s"
