"""Responses of the Responses API turned from one form into the other, and with their tool calls renamed.

Only complete responses come here. What does not have to change stays byte for byte."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import msgspec
from msgspec import Raw

from harness_durable.gateway import rawjson, sse
from harness_durable.gateway.openai_common import NULL, Members, items_of
from harness_durable.gateway.openai_responses_response import INPUTS, ResponseCollector, index_of, is_call
from harness_durable.gateway.rawjson import quote
from harness_durable.gateway.sse import Frame, Framer
from harness_durable.gateway.wire import Parsed

_NOTHING, _NONE = Raw(b'""'), Raw(b"[]")
_DONE = "response.output_item.done"
_ITEMS = ("response.output_item.added", _DONE)
_END = "response.completed"


def to_json(body: bytes) -> bytes:
    """A complete stream as one response."""
    collector = ResponseCollector()
    collector.feed(body)
    collector.finish()
    return collector.whole()


# ------------------------------------------------------------------------------------- as a stream


def to_sse(body: bytes) -> bytes:
    """One response as a stream, with one delta for each part that grows."""
    response = rawjson.members(body)
    begun = {**response, "status": quote("in_progress"), "output": _NONE, "usage": NULL}
    events = [("response.created", {"response": _packed(begun)})]
    for index, item in enumerate(items_of(response.get("output"))):
        at: Members = {"output_index": Raw(b"%d" % index)}
        members = rawjson.members(item)
        events.append((_ITEMS[0], {**at, "item": _packed(_emptied(members))}))
        named: Members = {**at, "item_id": members.get("id", _NOTHING)}
        events.extend((kind, {**named, **told}) for kind, told in _grown(members))
        events.append((_DONE, {**at, "item": item}))
    events.append((_END, {"response": Raw(body)}))
    return b"".join(_event(kind, told, number) for number, (kind, told) in enumerate(events))


def _emptied(item: Members) -> Members:
    """An item as it begins."""
    grows = {"message": "content", "reasoning": "summary", **INPUTS}.get(rawjson.text(item.get("type")), "")
    if grows not in item:
        return item
    empty = _NONE if grows in ("content", "summary") else _NOTHING
    return {**item, "status": quote("in_progress"), grows: empty}


def _grown(item: Members) -> Iterator[tuple[str, Members]]:
    """The events between the beginning and the end of an item."""
    match rawjson.text(item.get("type")):
        case "message":
            yield from _parts(item.get("content"), "content", "response.content_part")
        case "reasoning":
            yield from _parts(item.get("summary"), "summary", "response.reasoning_summary_part")
        case "function_call":
            yield from _text("response.function_call_arguments", "arguments", item)
        case "custom_tool_call":
            yield from _text("response.custom_tool_call_input", "input", item)
        case _:
            return


def _parts(parts: Raw | None, name: str, kind: str) -> Iterator[tuple[str, Members]]:
    for index, raw in enumerate(items_of(parts)):
        at: Members = {f"{name}_index": Raw(b"%d" % index)}
        part = rawjson.members(raw)
        member = "refusal" if "refusal" in part else "text"
        yield f"{kind}.added", {**at, "part": _packed({**part, member: _NOTHING})}
        grows = {"summary": "reasoning_summary_text", "content": f"output_{member}"}[name]
        grows = "refusal" if member == "refusal" else grows
        yield from ((event, {**at, **told}) for event, told in _text(f"response.{grows}", member, part))
        yield f"{kind}.done", {**at, "part": raw}


def _text(kind: str, member: str, holder: Mapping[str, Raw]) -> Iterator[tuple[str, Members]]:
    text = holder.get(member, _NOTHING)
    yield f"{kind}.delta", {"delta": text}
    yield f"{kind}.done", {member: text}


def _packed(members: Mapping[str, Raw]) -> Raw:
    return Raw(rawjson.encode_object(members))


def _event(kind: str, members: Mapping[str, Raw], number: int) -> bytes:
    event = {"type": quote(kind), "sequence_number": Raw(b"%d" % number), **members}
    return sse.event(rawjson.encode_object(event), kind)


# ---------------------------------------------------------------------------------------- tool ids


def with_tool_ids(parsed: Parsed, ids: Sequence[str], *, streamed: bool) -> Parsed:
    """The response with its tool calls renamed; only what holds an id that changes is spelled anew."""
    tools = tuple(msgspec.structs.replace(tool, id=new) for tool, new in zip(parsed.tools, ids, strict=True))
    renamed = _renamed_stream if streamed else _renamed_response
    return msgspec.structs.replace(parsed, tools=tools, body=renamed(parsed.body, ids))


def _renamed_response(response: bytes | Raw, ids: Sequence[str]) -> bytes:
    members = rawjson.members(response)
    names, items = iter(ids), items_of(members.get("output"))
    changed = [_renamed(item, next(names)) if is_call(rawjson.members(item)) else item for item in items]
    if all(one is other for one, other in zip(items, changed, strict=True)):
        return bytes(response)
    return rawjson.encode_object({**members, "output": Raw(rawjson.encode_list(changed))})


def _renamed_stream(body: bytes, ids: Sequence[str]) -> bytes:
    framer = Framer()
    frames = [*framer.feed(body), *framer.finish()]
    indices = sorted({index for frame in frames for index in _index(frame)})
    names = dict(zip(indices, ids, strict=True)) if indices else {}
    return b"".join(_renamed_frame(frame, names, ids) for frame in frames) + framer.rest


def _index(frame: Frame) -> Iterator[int]:
    """The place of the call that this event ends, if it ends one."""
    event = _of_kind(frame, (_DONE,))
    if event and is_call(rawjson.members(event["item"])):
        yield index_of(event)


def _renamed_frame(frame: Frame, names: Mapping[int, str], ids: Sequence[str]) -> bytes:
    event = _of_kind(frame, (*_ITEMS, _END))
    if not event:
        return frame.raw
    kind = rawjson.text(event["type"])
    if kind == _END:
        changed, member = Raw(_renamed_response(event["response"], ids)), "response"
    else:
        new, member = names.get(index_of(event)), "item"
        changed = event["item"] if new is None else _renamed(event["item"], new)
    if bytes(changed) == bytes(event[member]):
        return frame.raw
    return sse.event(rawjson.encode_object({**event, member: changed}), kind)


def _of_kind(frame: Frame, kinds: Sequence[str]) -> Members:
    """The event if it is of one of the kinds, else nothing."""
    if not any(kind.encode() in frame.data for kind in kinds):
        return {}
    event = rawjson.members(frame.data)
    return event if rawjson.text(event.get("type")) in kinds else {}


def _renamed(item: Raw, new: str) -> Raw:
    members = rawjson.members(item)
    if rawjson.text(members.get("call_id")) == new:
        return item
    return Raw(rawjson.encode_object({**members, "call_id": quote(new)}))
