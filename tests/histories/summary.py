"""What a recorded log must amount to, in every later version: made when it is recorded, compared for ever."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from functools import partial
from typing import Any, cast

from harness_durable import events, workspace
from harness_durable.journal import Reader
from harness_durable.journal.requests import body_of
from harness_durable.payload import Payload
from harness_durable.state import Session


async def summary(reader: Reader) -> dict[str, Any]:
    """Counts and words, as they go into a JSON file. Every payload of the log is read, too."""
    state = await reader.load()
    return {
        "records": state.seq,
        "epoch": state.epoch,
        "status": state.status,
        "adapter": state.agent.adapter if state.agent is not None else "",
        "messages": {message.id: message.status for message in state.messages.values()},
        "turns": [await _turn(reader, state, turn) for turn in state.turns],
        "lives": [
            {"rung": life.rung, "workers": len(life.workers), "reason": life.reason}
            for life in state.lives.values()
        ],
        "calls": _counted(f"{call.name} {call.policy} {call.outcome}" for call in state.tool_calls.values()),
        "model_calls": _counted(call.status for call in state.model_calls.values()),
        "replays": sum(len(call.replays) for call in state.model_calls.values()),
        "output_tokens": sum(call.usage.output for call in state.model_calls.values()),
        "requests": [len(await body_of(reader, state, call, "messages")) for call in state.model_calls],
        "transcripts": {file: transcript.lines for file, transcript in state.transcripts.items()},
        "payloads": await _payloads(reader),
        **({"files": await _files(reader, state)} if state.files.steps else {}),
    }


async def _files(reader: Reader, state: Session) -> dict[str, Any]:
    """The content of every file of the last snapshot is read."""
    files, read = state.files, partial(reader.world.blob, reader.session)
    found = [entry.event async for entry in reader.entries()]
    changed = await workspace.diff("", files.root, read)
    return {
        "steps": [
            {"cause": event.cause, "changes": [f"{one.op} {one.path}" for one in event.changes]}
            for event in found
            if isinstance(event, events.WorkspaceCommitted)
        ],
        "content": {change.path: len(await workspace.content(change.new, read)) for change in changed},
        "uncovered": files.uncovered_seq,
    }


async def _turn(reader: Reader, state: Session, name: str) -> dict[str, Any]:
    turn = state.turns[name]
    return {
        "status": turn.status,
        "text": await reader.text(turn.text) if turn.text is not None else None,
        "lives": len(turn.lives),
        "model_calls": len(turn.model_calls),
        "tool_calls": len(turn.tool_calls),
        "told": list(turn.told),
    }


async def _payloads(reader: Reader) -> dict[str, int]:
    """How many there are, in the log and in blobs, and how many bytes they hold together."""
    found = [payload async for entry in reader.entries() for payload in payloads(entry.event)]
    sizes = [len(await reader.content(payload)) for payload in found]
    assert sizes == [payload.size for payload in found]
    return {
        "inline": sum(payload.blob is None for payload in found),
        "blobs": sum(payload.blob is not None for payload in found),
        "bytes": sum(sizes),
    }


def payloads(event: events.AnyEvent) -> list[Payload]:
    """All payloads of an event."""
    found: list[Payload] = []
    for name in event.__struct_fields__:
        value = getattr(event, name)
        several = cast(tuple[object, ...], value) if isinstance(value, tuple) else (value,)
        found.extend(one for one in several if isinstance(one, Payload))
    return found


def _counted(words: Iterable[str]) -> dict[str, int]:
    return dict(sorted(Counter(words).items()))
