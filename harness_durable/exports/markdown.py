"""A session as a page that people read and send on: its story, with what was said in fences.

What surprises: a fence is one backtick longer than the longest run of them within, and a line of the story
has neither markup nor control characters, so that nothing that an agent said can leave its place."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from typing import Protocol

from harness_durable import events as ev
from harness_durable import fold
from harness_durable.exports.material import Material, shown
from harness_durable.exports.said import said
from harness_durable.payload import Payload
from harness_durable.state import Session

LONGEST = 20_000
"""Characters of one fence; what is longer is cut, and says so. ``jsonl`` has all of it."""

_MARKUP = re.compile(r"([\\`*_{}\[\]<>()#+!|~&$@])")
_TICKS = re.compile(r"`+")


class Line(Protocol):
    """One line of a story: ``cli.story.Line``."""

    @property
    def mark(self) -> str: ...
    @property
    def text(self) -> str: ...


Tell = Callable[[Session, ev.Entry], Line | None]
"""The line for an event, given the state after it."""
Plain = Callable[[str], str]
"""Makes what could steer a terminal, or hide, visible."""


def markdown(material: Material, tell: Tell, plain: Plain, strip: Sequence[str] = ()) -> Iterator[bytes]:
    """The page, in pieces. ``strip`` are lines of characters that show the lives."""
    state = material.state
    yield f"# Session {escaped(plain(material.session))}\n\n".encode()
    yield "".join(f"- {line}\n" for line in _facts(state, plain)).encode()
    if strip:
        yield ("\n## Lives\n\n" + fenced("\n".join(strip), plain)).encode()
    yield b"\n## Story\n"
    told = Session()
    for entry in material.entries:
        fold.apply(told, entry)
        if isinstance(entry.event, ev.TurnStarted):
            yield f"\n### Turn {escaped(plain(entry.event.turn))}\n".encode()
        line = tell(told, entry)
        inside = "".join(_fences(material, entry.event, plain))
        if line is not None:
            text = escaped(" ".join(plain(line.text).split()))
            yield f"\n{entry.seq}\\. {line.mark} {text}\n{inside}".encode("utf-8", "replace")
        elif inside:
            yield f"\n{entry.seq}\\.\n{inside}".encode("utf-8", "replace")


def escaped(text: str) -> str:
    """Text that means nothing in markdown or HTML."""
    return _MARKUP.sub(r"\\\1", text).replace("\\<", "&lt;").replace("\\>", "&gt;").replace("\\&", "&amp;")


def fenced(text: str, plain: Plain) -> str:
    """A block that shows the text as it is and ends where it ends."""
    cut = f"\n… {len(text) - LONGEST} more characters" if len(text) > LONGEST else ""
    text = plain(text[:LONGEST] + cut)
    fence = "`" * max(3, 1 + max((len(ticks) for ticks in _TICKS.findall(text)), default=0))
    return f"{fence}text\n{text}\n{fence}\n"


def _facts(state: Session, plain: Plain) -> Iterator[str]:
    agent = state.agent
    if agent is not None:
        yield escaped(plain(f"agent: {agent.adapter} {agent.harness_version}, {agent.model}"))
    if state.title:
        yield escaped(plain(" ".join(f"title: {state.title}".split())))
    usage = [call.usage for call in state.model_calls.values()]
    unknown = sum(call.outcome == "unknown" for call in state.tool_calls.values())
    yield f"turns: {len(state.turns)}; lives: {len(state.lives)}; now: {state.status.replace('_', ' ')}"
    yield (
        f"model calls: {len(state.model_calls)}; tool calls: {len(state.tool_calls)}, {unknown} unknown; "
        f"{sum(u.input + u.cache_read + u.cache_write for u in usage)} tokens in, "
        f"{sum(u.output for u in usage)} out"
    )


def _fences(material: Material, event: ev.AnyEvent, plain: Plain) -> Iterator[str]:
    """What was said, where the story has its beginning only."""
    match event:
        case ev.MessageAccepted() | ev.SteerAccepted() | ev.TurnCompleted():
            yield from _fence("", event.text, plain)
        case ev.ToolReleased():
            call = material.state.tool_calls.get(event.call)
            asked = material.event(call.requested_seq) if call is not None else None
            if isinstance(asked, ev.ToolRequested):
                yield from _fence("input", asked.input, plain)
        case ev.ToolCompleted() | ev.ToolFailed() | ev.ToolCancelled() | ev.ToolNotStarted():
            yield from _fence("result", event.result, plain)
        case ev.ToolUnknown() | ev.ToolRefused():
            yield from _fence("what the model was told", event.result, plain)
        case ev.ModelCompleted():
            asker = material.state.model_calls.get(event.call)
            text = said(asker.wire, event.body.inline or b"") if asker is not None else ""
            if text:
                yield "\n" + fenced(text, plain)
        case ev.TurnResumed(told=(_, *_)):
            yield "\ntold:\n\n" + fenced("\n".join(event.told), plain)
        case _:
            return


def _fence(what: str, payload: Payload, plain: Plain) -> Iterator[str]:
    text = shown(payload)
    head = f"\n{what}:\n" if what else ""
    if payload.inline is None:
        yield f"{head}\n{payload.size} bytes\n"
    elif text:
        yield f"{head}\n{fenced(text, plain)}"
