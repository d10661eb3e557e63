"""All that is known of one item: facts, texts to read, and the events themselves.

Every fact and every text carries the number of the event that it is from, so that the page shows only what
was known at the place that it looks at. Long texts come in pages; ``body`` gets the rest."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from typing import cast

import msgspec

from harness_durable import codec
from harness_durable import events as ev
from harness_durable.errors import DamagedLog, NotFound
from harness_durable.payload import Payload
from harness_durable.view import crash
from harness_durable.view.facts import Fact, facts
from harness_durable.view.messages import answer, said
from harness_durable.view.requests import request
from harness_durable.view.sheet import Sheet
from harness_durable.view.words import cut

PAGE = 64 << 10
"""Characters of a text that the page gets at once."""

MESSAGES = 60
"""Messages of a request that a detail shows; the earlier ones are those of the request before."""


class Text(msgspec.Struct, frozen=True):
    """``name`` asks ``body`` for the rest. ``size`` in characters, -1 if it is not known; ``missing`` says
    why there is no text."""

    seq: int
    name: str
    label: str
    text: str
    size: int
    fresh: bool = False
    missing: str = ""


class Changed(msgspec.Struct, frozen=True):
    """One file that a step changed; ``number`` is its place in the event."""

    seq: int
    number: int
    op: str
    path: str


class Detail(msgspec.Struct, frozen=True):
    """``raw``: each event of the item as JSON, by its number."""

    item: int
    facts: list[Fact]
    texts: list[Text]
    raw: list[tuple[int, str]]
    changes: list[Changed]


async def detail(sheet: Sheet, item: int) -> Detail:
    """Raises ``NotFound``."""
    found = Detail(item, [], [], [], [])
    places = {one.seq for one in sheet.versions(item)} | {item}
    for seq in sorted(places):
        entry = await sheet.entry(seq)
        found.facts.extend(facts(sheet, entry))
        for name, label, payload in payloads(entry.event):
            found.texts.append(await text(sheet, seq, name, label, payload))
        if isinstance(entry.event, ev.ModelRequested):
            found.texts.extend(await _told(sheet, seq))
        if isinstance(entry.event, ev.WorkspaceCommitted):
            named = enumerate(entry.event.changes)
            found.changes.extend(Changed(seq, number, one.op, one.path) for number, one in named)
        found.raw.append((seq, raw(entry)))
    found.facts.sort(key=lambda fact: fact.seq)
    if sheet.versions(item)[-1].kind in ("end", "attached"):
        found.texts.extend(await crash.around(sheet, item))
    return found


async def said_of(sheet: Sheet, items: Sequence[int]) -> dict[str, str]:
    """The beginning of what models said, by the items of the calls; for rows that are looked at."""
    found: dict[str, str] = {}
    for item in items:
        answers = [one.seq for one in sheet.versions(item) if one.word == "model.completed"]
        event = (await sheet.entry(answers[0])).event if answers else None
        call = sheet.state.model_calls.get(event.call) if isinstance(event, ev.ModelCompleted) else None
        if isinstance(event, ev.ModelCompleted) and call is not None:
            with contextlib.suppress(DamagedLog, NotFound):  # the detail says what is missing
                content = await sheet.reader.content(event.body)
                found[str(item)] = cut(answer(call.wire, call.content_type, content), 400)
    return found


def raw(entry: ev.Entry) -> str:
    """The event as JSON that people can read. Long payloads stay the names of their blobs."""
    fields = cast(dict[str, object], msgspec.to_builtins(entry.event))
    head = {"seq": entry.seq, "time": entry.time, "epoch": entry.epoch, "kind": codec.kind_of(entry.event)}
    return msgspec.json.format(msgspec.json.encode(head | fields), indent=2).decode()


def payloads(event: ev.AnyEvent) -> list[tuple[str, str, Payload]]:
    """The texts of an event: name, label for people, payload."""
    match event:
        case ev.MessageAccepted() | ev.SteerAccepted():
            return [("text", "Message", event.text)]
        case ev.TurnCompleted():
            return [("text", "Answer", event.text)]
        case ev.ToolRequested():
            return [("input", "Input", event.input)]
        case ev.ToolCompleted() | ev.ToolFailed():
            return [("result", "Output, as the model got it", event.result)]
        case ev.ToolUnknown() | ev.ToolNotStarted() | ev.ToolCancelled() | ev.ToolRefused():
            return [("result", "What the model was told in place of an output", event.result)]
        case ev.ModelCompleted():
            return [("body", "Answer", event.body)]
        case ev.TranscriptAppended() | ev.TranscriptReplaced():
            return [("lines", "Lines", event.lines)]
        case _:
            return []


async def text(sheet: Sheet, seq: int, name: str, label: str, payload: Payload) -> Text:
    """The first page of a payload."""
    try:
        whole = await readable(sheet, seq, name, payload)
    except (DamagedLog, NotFound) as missing:
        return Text(seq, name, label, "", -1, missing=str(missing))
    return Text(seq, name, label, whole[:PAGE], len(whole))


async def body(sheet: Sheet, seq: int, name: str, at: int) -> Text:
    """A later page of a text. Raises ``NotFound``."""
    event = (await sheet.entry(seq)).event
    if name.startswith("m") and name[1:].isdigit() and isinstance(event, ev.ModelRequested):
        found = await request(sheet, seq)
        number = int(name[1:])
        if found is not None and number < len(found.parts):
            whole = said(await sheet.reader.content(found.parts[number])).text
            return Text(seq, name, "", whole[at : at + PAGE], len(whole))
    for known, label, payload in payloads(event):
        if known == name:
            whole = await readable(sheet, seq, name, payload)
            return Text(seq, name, label, whole[at : at + PAGE], len(whole))
    raise NotFound(f"event {seq} has no text {name!r}; reload the page")


async def readable(sheet: Sheet, seq: int, name: str, payload: Payload) -> str:
    """A payload as people read it: of a model's response what the model said."""
    content = await sheet.reader.content(payload)
    if name == "body":
        event = (await sheet.entry(seq)).event
        call = sheet.state.model_calls.get(event.call) if isinstance(event, ev.ModelCompleted) else None
        spoken = answer(call.wire, call.content_type, content) if call is not None else ""
        calls = [
            _called(sheet, one) for one in (event.tool_calls if isinstance(event, ev.ModelCompleted) else ())
        ]
        return "\n\n".join([*([spoken] if spoken else []), *calls]) or content.decode("utf-8", "replace")
    decoded = content.decode("utf-8", "replace")
    return _pretty(decoded) if name in ("input", "frame") else decoded


def _called(sheet: Sheet, call: str) -> str:
    known = sheet.state.tool_calls.get(call)
    return f"[calls {known.name if known is not None else call}]"


def _pretty(content: str) -> str:
    """JSON with line breaks; anything else, and numbers of any size, as they are."""
    try:
        return msgspec.json.format(content, indent=2)
    except (msgspec.MsgspecError, UnicodeEncodeError, RecursionError):
        return content


async def _told(sheet: Sheet, seq: int) -> list[Text]:
    """What a model was sent: the new messages, and before them as many of the earlier ones as are shown."""
    found = await request(sheet, seq)
    if found is None:
        return [Text(seq, "", "What the model was sent", "", -1, missing="the log lacks a request before it")]
    texts: list[Text] = []
    frame = found.frame
    if frame is not None and len(found.parts) > 1:
        missing = f"{frame.size} bytes; the raw event names them"
        texts.append(Text(seq, "m0", "System prompt and tools", "", frame.size, missing=missing))
    first = max(1, len(found.parts) - MESSAGES)
    for number in range(first, len(found.parts)):
        try:
            message = said(await sheet.reader.content(found.parts[number]))
        except (DamagedLog, NotFound) as missing:
            texts.append(Text(seq, "", f"Message {number}", "", -1, missing=str(missing)))
            continue
        label = f"Message {number} of {len(found.parts) - 1}, {message.role}"
        texts.append(
            Text(
                seq,
                f"m{number}",
                label,
                message.text[:PAGE],
                len(message.text),
                fresh=found.grew and number >= found.kept,
            )
        )
    return texts
