"""Responses of the Chat Completions API in the other form, and with their tool calls renamed.

Only complete responses come here. What does not have to change stays byte for byte."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence

import msgspec
from msgspec import Raw

from harness_durable.gateway import rawjson, sse
from harness_durable.gateway.openai_chat_choice import Numbering
from harness_durable.gateway.openai_chat_response import CompletionCollector
from harness_durable.gateway.openai_common import EMPTY, NULL, Members, is_null, items_of, object_of
from harness_durable.gateway.rawjson import quote
from harness_durable.gateway.sse import Frame, Framer
from harness_durable.gateway.wire import Parsed

_Place = tuple[int, int]
"""A call's choice, and its place among the calls of that."""
_DONE = sse.event(b"[DONE]")


def to_json(body: bytes) -> bytes:
    """A complete stream as one message."""
    collector = CompletionCollector()
    collector.feed(body)
    collector.finish()
    return collector.whole()


def to_sse(body: bytes) -> bytes:
    """One message as a stream: a chunk for each choice, one for each end, and one for the usage."""
    message = rawjson.members(body)
    choices = [rawjson.members(choice) for choice in items_of(message.get("choices"))]
    head: Members = {n: v for n, v in message.items() if n not in ("choices", "usage")}
    head["object"] = quote("chat.completion.chunk")
    parts = [_chunk(head, _choice(choice, _delta(choice), NULL)) for choice in choices]
    parts += [_chunk(head, _choice(choice, EMPTY, choice.get("finish_reason", NULL))) for choice in choices]
    if not is_null(message.get("usage")):
        parts.append(_chunk({**head, "usage": message["usage"]}))
    return b"".join([*parts, _DONE])


def _delta(choice: Members) -> Raw:
    message = object_of(choice.get("message"))
    delta = {name: value for name, value in message.items() if not is_null(value)}
    if "tool_calls" in delta:
        calls = [rawjson.members(call) for call in items_of(delta["tool_calls"])]
        placed = [
            Raw(rawjson.encode_object({"index": Raw(b"%d" % at), **call})) for at, call in enumerate(calls)
        ]
        delta["tool_calls"] = Raw(rawjson.encode_list(placed))
    return Raw(rawjson.encode_object(delta))


def _choice(choice: Members, delta: Raw, finish: Raw) -> Raw:
    index = choice.get("index", Raw(b"0"))
    return Raw(rawjson.encode_object({"index": index, "delta": delta, "finish_reason": finish}))


def _chunk(head: Mapping[str, Raw], *choices: Raw) -> bytes:
    return sse.event(rawjson.encode_object({**head, "choices": Raw(rawjson.encode_list(choices))}))


# ---------------------------------------------------------------------------------------- tool ids


def with_tool_ids(parsed: Parsed, ids: Sequence[str], *, streamed: bool) -> Parsed:
    """The response with its tool calls renamed; only the chunks whose ids change are spelled anew."""
    tools = tuple(msgspec.structs.replace(tool, id=new) for tool, new in zip(parsed.tools, ids, strict=True))
    renamed = _renamed_stream if streamed else _renamed_message
    return msgspec.structs.replace(parsed, tools=tools, body=renamed(parsed.body, ids))


def _renamed_message(body: bytes, ids: Sequence[str]) -> bytes:
    names = iter(ids)
    return _rewritten(body, "message", lambda _, call: _renamed(call, next(names)))


def _renamed_stream(body: bytes, ids: Sequence[str]) -> bytes:
    framer = Framer()
    frames = [*framer.feed(body), *framer.finish()]
    names = dict(zip(sorted(_places(frames)), ids, strict=True))
    numberings, begun = defaultdict[int, Numbering](Numbering), set[_Place]()

    def rename(choice: int, raw: Raw) -> Raw:
        call = rawjson.members(raw)
        place = choice, numberings[choice].place(call)
        # Only the first delta of a call must have its id; some providers repeat it in every one.
        named = place not in begun or bool(rawjson.text(call.get("id")))
        begun.add(place)
        return _renamed(raw, names[place]) if named else raw

    def renamed(frame: Frame) -> bytes:
        changed = _rewritten(frame.data, "delta", rename) if b'"tool_calls"' in frame.data else frame.data
        return frame.raw if changed == frame.data else sse.event(changed, frame.event)

    return b"".join(map(renamed, frames)) + framer.rest


def _places(frames: Sequence[Frame]) -> set[_Place]:
    numberings, found = defaultdict[int, Numbering](Numbering), set[_Place]()

    def note(choice: int, call: Raw) -> Raw:
        found.add((choice, numberings[choice].place(rawjson.members(call))))
        return call

    for frame in frames:
        if b'"tool_calls"' in frame.data:
            _rewritten(frame.data, "delta", note)
    return found


def _rewritten(body: bytes, holder: str, change: Callable[[int, Raw], Raw]) -> bytes:
    """The body with what ``change`` makes of each tool call in the ``holder`` of each choice."""
    whole = rawjson.members(body)
    choices = items_of(whole.get("choices"))
    changed = [_rewritten_choice(choice, holder, change) for choice in choices]
    if _same(choices, changed):
        return body
    return rawjson.encode_object({**whole, "choices": Raw(rawjson.encode_list(changed))})


def _rewritten_choice(raw: Raw, holder: str, change: Callable[[int, Raw], Raw]) -> Raw:
    choice = rawjson.members(raw)
    inner = object_of(choice.get(holder))
    calls = items_of(inner.get("tool_calls"))
    changed = list(_changed(rawjson.number(choice.get("index")), calls, change))
    if _same(calls, changed):
        return raw
    told = rawjson.encode_object({**inner, "tool_calls": Raw(rawjson.encode_list(changed))})
    return Raw(rawjson.encode_object({**choice, holder: Raw(told)}))


def _changed(choice: int, calls: Sequence[Raw], change: Callable[[int, Raw], Raw]) -> Iterator[Raw]:
    return (change(choice, call) for call in calls)


def _renamed(raw: Raw, new: str) -> Raw:
    call = rawjson.members(raw)
    if rawjson.text(call.get("id")) == new:
        return raw
    return Raw(rawjson.encode_object({**call, "id": quote(new)}))


def _same(before: Sequence[Raw], after: Sequence[Raw]) -> bool:
    return all(one is other for one, other in zip(before, after, strict=True))
