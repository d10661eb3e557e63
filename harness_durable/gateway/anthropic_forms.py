"""Responses of the Messages API turned from one form into the other, and with their tool calls renamed.

Only complete responses come here. What does not have to change stays byte for byte."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import msgspec
from msgspec import Raw

from harness_durable.gateway import rawjson, sse
from harness_durable.gateway.anthropic_response import DELTAS, MessageCollector
from harness_durable.gateway.rawjson import quote
from harness_durable.gateway.sse import Frame, Framer
from harness_durable.gateway.wire import Parsed

_NULL, _EMPTY, _NOTHING = Raw(b"null"), Raw(b"{}"), Raw(b'""')
_Members = dict[str, Raw]


def to_json(body: bytes) -> bytes:
    """A complete stream as one message."""
    collector = MessageCollector()
    collector.feed(body)
    collector.finish()
    return collector.whole()


def to_sse(body: bytes) -> bytes:
    """One message as a stream, with one delta for each member that grows."""
    message = rawjson.members(body)
    end: _Members = {name: message.get(name, _NULL) for name in ("stop_reason", "stop_sequence")}
    usage = message.get("usage", _EMPTY)
    head = {**message, "content": Raw(b"[]"), "stop_reason": _NULL, "stop_sequence": _NULL}
    parts = [_frame("message_start", message=Raw(rawjson.encode_object(head)))]
    for index, block in enumerate(rawjson.items(message["content"])):
        parts.extend(_block_frames(Raw(b"%d" % index), rawjson.members(block)))
    parts.append(_frame("message_delta", delta=Raw(rawjson.encode_object(end)), usage=usage))
    parts.append(_frame("message_stop"))
    return b"".join(parts)


def _block_frames(index: Raw, block: _Members) -> Iterator[bytes]:
    start, deltas = dict(block), list[tuple[str, str, Raw]]()
    for kind, member in DELTAS.items():
        if member in block:
            start[member] = _NOTHING
            deltas.append((kind, member, block[member]))
    if rawjson.text(block.get("type")).endswith("tool_use") and "input" in block:
        start["input"] = _EMPTY
        deltas.append(("input_json_delta", "partial_json", quote(bytes(block["input"]).decode())))
    for citation in rawjson.items(start.pop("citations")) if _is_list(block.get("citations")) else ():
        deltas.append(("citations_delta", "citation", citation))
    yield _frame("content_block_start", index=index, content_block=Raw(rawjson.encode_object(start)))
    for kind, member, value in deltas:
        delta = rawjson.encode_object({"type": quote(kind), member: value})
        yield _frame("content_block_delta", index=index, delta=Raw(delta))
    yield _frame("content_block_stop", index=index)


def with_tool_ids(parsed: Parsed, ids: Sequence[str], *, streamed: bool) -> Parsed:
    """The response with its tool calls renamed; only the blocks whose id changes are spelled anew."""
    tools = tuple(msgspec.structs.replace(tool, id=new) for tool, new in zip(parsed.tools, ids, strict=True))
    renamed = _renamed_stream if streamed else _renamed_json
    return msgspec.structs.replace(parsed, tools=tools, body=renamed(parsed.body, iter(ids)))


def _renamed_json(body: bytes, ids: Iterator[str]) -> bytes:
    message = rawjson.members(body)
    blocks = [_renamed(block, ids) for block in rawjson.items(message["content"])]
    return rawjson.encode_object({**message, "content": Raw(rawjson.encode_list(blocks))})


def _renamed_stream(body: bytes, ids: Iterator[str]) -> bytes:
    framer = Framer()
    frames = [*framer.feed(body), *framer.finish()]
    return b"".join(_renamed_frame(frame, ids) for frame in frames) + framer.rest


def _renamed_frame(frame: Frame, ids: Iterator[str]) -> bytes:
    if b"tool_use" not in frame.data:
        return frame.raw
    event = rawjson.members(frame.data)
    if rawjson.text(event.get("type")) != "content_block_start":
        return frame.raw
    block = _renamed(event["content_block"], ids)
    if block is event["content_block"]:
        return frame.raw
    event["content_block"] = block
    return _framed("content_block_start", event)


def _renamed(block: Raw, ids: Iterator[str]) -> Raw:
    members = rawjson.members(block)
    if rawjson.text(members.get("type")) != "tool_use":
        return block
    new = next(ids)
    if rawjson.text(members.get("id")) == new:
        return block
    return Raw(rawjson.encode_object({**members, "id": quote(new)}))


def _frame(kind: str, **members: Raw) -> bytes:
    return _framed(kind, {"type": quote(kind), **members})


def _framed(kind: str, event: Mapping[str, Raw]) -> bytes:
    return sse.event(rawjson.encode_object(event), kind)


def _is_list(raw: Raw | None) -> bool:
    return raw is not None and bytes(raw)[:1] == b"["
