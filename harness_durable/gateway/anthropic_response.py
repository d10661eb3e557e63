"""Responses of the Messages API: collected from a stream, or parsed as a whole.

Nothing is repaired. A stream counts only when each block has ended and ``message_stop`` has come; what was
cut before that is never taken for a tool call."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import msgspec
from msgspec import Raw

from harness_durable.events import Usage
from harness_durable.gateway import rawjson
from harness_durable.gateway.rawjson import Unreadable, quote
from harness_durable.gateway.sse import Frame, Framer
from harness_durable.gateway.wire import Fault, Parsed, ToolUse

_STATUS = {
    "invalid_request_error": 400,
    "authentication_error": 401,
    "permission_error": 403,
    "not_found_error": 404,
    "request_too_large": 413,
    "rate_limit_error": 429,
    "overloaded_error": 529,
}
DELTAS = {
    "text_delta": "text",
    "thinking_delta": "thinking",
    "signature_delta": "signature",
    "input_json_delta": "partial_json",
}
"""Kinds of delta, and the member that each makes grow."""

_NULL, _EMPTY = Raw(b"null"), Raw(b"{}")
_Members = dict[str, Raw]


class _Block(msgspec.Struct):
    """A content block as it grows: how it began, and the pieces of its growing members."""

    start: _Members
    pieces: dict[str, list[str]] = {}
    citations: list[Raw] = []
    ended: bool = False

    @property
    def kind(self) -> str:
        return rawjson.text(self.start.get("type"))

    def joined(self, member: str) -> str:
        return "".join(self.pieces.get(member, ()))

    def input(self) -> bytes:
        """Exactly what the model wrote."""
        written = rawjson.unquoted(self.joined("partial_json"))
        return written if written.strip() else bytes(self.start.get("input", _EMPTY))

    def whole(self) -> Raw:
        """As it stands in a response that was not streamed."""
        members = dict(self.start)
        for member in ("text", "thinking", "signature"):
            if member in self.pieces:
                members[member] = quote(rawjson.text(members.get(member)) + self.joined(member))
        if "partial_json" in self.pieces:
            members["input"] = Raw(self.input())
        if self.citations:
            members["citations"] = Raw(rawjson.encode_list(self.citations))
        return Raw(rawjson.encode_object(members))


class MessageCollector:
    """A ``Collector`` for the Messages API. Parses each event when it is whole, so that no chunk keeps the
    event loop for long."""

    def __init__(self) -> None:
        self._chunks: list[bytes] = []
        self._framer = Framer()
        self._message: _Members | None = None
        self._usage: _Members = {}
        self._blocks: dict[int, _Block] = {}
        self._fresh: list[str] = []
        self._ended = False
        self._fault: Fault | None = None

    def feed(self, chunk: bytes) -> None:
        self._chunks.append(chunk)
        self._take(self._framer.feed(chunk))

    def text_delta(self) -> str:
        fresh, self._fresh = "".join(self._fresh), []
        return fresh

    def finish(self) -> Parsed:
        self._take(self._framer.finish())
        body = b"".join(self._chunks)
        fault = self._fault or self._cut()
        message = self._message or {}
        parsed = _parsed(body, message, self._usage, fault)
        if fault is not None:
            return parsed
        return msgspec.structs.replace(parsed, tools=tuple(self._tools()))

    def whole(self) -> bytes:
        """The message in the form of a response that was not streamed."""
        content = rawjson.encode_list([block.whole() for block in self._blocks.values()])
        usage = rawjson.encode_object(self._usage)
        return rawjson.encode_object({**(self._message or {}), "content": Raw(content), "usage": Raw(usage)})

    def _take(self, frames: Iterable[Frame]) -> None:
        for frame in frames:
            if self._ended or self._fault is not None:
                return
            try:
                frame.data.decode()
                self._event(rawjson.members(frame.data))
            except (ValueError, KeyError) as error:  # no UTF-8, no JSON, or not what the API sends
                if frame.data.strip() != b"[DONE]":
                    self._fault = Fault(502, f"the provider's stream holds an event that is none ({error})")

    def _event(self, event: _Members) -> None:
        match rawjson.text(event.get("type")):
            case "message_start":
                self._message = rawjson.members(event["message"])
                self._usage = rawjson.members(self._message.get("usage", _EMPTY))
            case "content_block_start":
                block = _Block(rawjson.members(event["content_block"]))
                self._blocks[rawjson.number(event.get("index"))] = block
                self._fresh.append(rawjson.text(block.start.get("text")))
            case "content_block_delta":
                self._grow(self._at(event), rawjson.members(event["delta"]))
            case "content_block_stop":
                self._at(event).ended = True
            case "message_delta":
                if self._message is None:
                    raise Unreadable("it comes before the message begins")
                self._message.update(rawjson.members(event.get("delta", _EMPTY)))
                self._usage.update(rawjson.members(event.get("usage", _EMPTY)))
            case "message_stop":
                self._ended = True
            case "error":
                self._fault = _fault(event)
            case _:  # pings, and what a later version of the API adds
                return

    def _at(self, event: _Members) -> _Block:
        block = self._blocks.get(rawjson.number(event.get("index")))
        if block is None:
            raise Unreadable("it belongs to no block that has begun")
        return block

    def _grow(self, block: _Block, delta: _Members) -> None:
        kind = rawjson.text(delta.get("type"))
        if kind == "citations_delta":
            block.citations.append(delta["citation"])
        member = DELTAS.get(kind)
        if member is None:
            return
        piece = rawjson.text(delta.get(member))
        block.pieces.setdefault(member, []).append(piece)
        if member == "text":
            self._fresh.append(piece)

    def _tools(self) -> Iterator[ToolUse]:
        for block in self._blocks.values():
            if block.kind == "tool_use":
                yield _tool(block.start, block.input())

    def _cut(self) -> Fault | None:
        whole = self._message is not None and all(block.ended for block in self._blocks.values())
        if self._ended and whole:
            return None
        return Fault(502, "the provider's stream ended before its message did")


def parse_json(body: bytes) -> Parsed:
    """A response that was not streamed. Never raises."""
    try:
        body.decode()
        message = rawjson.members(body)
        if rawjson.text(message.get("type")) == "error":
            return Parsed(body, False, fault=_fault(message))
        blocks = [rawjson.members(block) for block in rawjson.items(message.get("content", _NULL))]
        usage = rawjson.members(message.get("usage", _EMPTY))
    except ValueError as error:  # no UTF-8, no JSON, or something else than a message
        return Parsed(body, False, fault=Fault(502, f"the provider's answer is no message ({error})"))
    tools = (block for block in blocks if rawjson.text(block.get("type")) == "tool_use")
    found = tuple(_tool(block, bytes(block.get("input", _EMPTY))) for block in tools)
    return msgspec.structs.replace(_parsed(body, message, usage, None), tools=found)


def _parsed(body: bytes, message: _Members, usage: _Members, fault: Fault | None) -> Parsed:
    counts = Usage(
        rawjson.number(usage.get("input_tokens")),
        rawjson.number(usage.get("output_tokens")),
        rawjson.number(usage.get("cache_read_input_tokens")),
        rawjson.number(usage.get("cache_creation_input_tokens")),
    )
    names = rawjson.text(message.get("id")), rawjson.text(message.get("stop_reason"))
    return Parsed(body, fault is None, *names, counts, fault=fault)


def _tool(block: _Members, written: bytes) -> ToolUse:
    return ToolUse(rawjson.text(block.get("id")), rawjson.text(block.get("name")), written)


def _fault(event: _Members) -> Fault:
    error = rawjson.members(event.get("error", _EMPTY))
    kind = rawjson.text(error.get("type")) or "api_error"
    return Fault(_STATUS.get(kind, 502), f"{kind}: {rawjson.text(error.get('message')) or 'no reason given'}")
