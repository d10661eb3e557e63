"""One choice of a chat completion as it grows, with its tool calls: what belongs to which call, and what of
it the model wrote."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import msgspec
from msgspec import Raw

from harness_durable.gateway import rawjson
from harness_durable.gateway.openai_common import EMPTY, Members, is_null, items_of, object_of
from harness_durable.gateway.rawjson import Unreadable, quote
from harness_durable.gateway.wire import ToolUse

INPUTS = {"function": "arguments", "custom": "input"}
"""By the kind of a call: the member that holds, as a string, what the model wrote."""


class Numbering:
    """Which call of its choice a delta belongs to. Some providers send no index; with them a name begins a
    call."""

    def __init__(self) -> None:
        self._last = -1

    def place(self, delta: Mapping[str, Raw]) -> int:
        if not is_null(delta.get("index")):
            self._last = rawjson.number(delta["index"])
        elif self._last < 0 or rawjson.text(body_of(delta).get("name")):
            self._last += 1
        return self._last


class _Call(msgspec.Struct):
    """A call as it grows. ``members`` are those of its first delta."""

    members: Members
    id: str = ""
    name: str = ""
    written: list[str] = []

    def grow(self, delta: Members) -> None:
        body = body_of(delta)
        self.id = self.id or rawjson.text(delta.get("id"))
        self.name = self.name or rawjson.text(body.get("name"))
        self.written.append(_written(body, kind_of(delta)))

    def tool(self) -> ToolUse:
        return _tool(self.id, self.name, "".join(self.written))

    def whole(self) -> Raw:
        """As it stands in a response that was not streamed."""
        kind = kind_of(self.members)
        body = {"name": quote(self.name), INPUTS[kind]: quote("".join(self.written))}
        members = {name: value for name, value in self.members.items() if name != "index"}
        call = {"id": quote(self.id), "type": quote(kind), kind: Raw(rawjson.encode_object(body))}
        return Raw(rawjson.encode_object({**members, **call}))


class Choice(msgspec.Struct):
    """A choice as it grows."""

    index: int
    texts: dict[str, list[str]] = {}
    others: dict[str, list[Raw]] = {}
    calls: dict[int, _Call] = {}
    numbering: Numbering = msgspec.field(default_factory=Numbering)
    finish: Raw = Raw(b"null")

    def grow(self, delta: Members) -> None:
        if not is_null(delta.get("function_call")):
            raise Unreadable("it calls a tool in the old form, which has no ids")
        for raw in items_of(delta.get("tool_calls")):
            call = rawjson.members(raw)
            place = self.numbering.place(call)
            self.calls.setdefault(place, _Call(call)).grow(call)
        for name, value in delta.items():
            if bytes(value)[:1] == b'"' and name != "role":
                self.texts.setdefault(name, []).append(rawjson.text(value))
            elif name not in ("tool_calls", "role") and not is_null(value):
                self.others.setdefault(name, []).append(value)

    def tools(self) -> Iterator[ToolUse]:
        return (self.calls[place].tool() for place in sorted(self.calls))

    def whole(self) -> Raw:
        """As it stands in a response that was not streamed."""
        message: Members = {"role": quote("assistant"), "content": Raw(b"null")}
        message.update((name, quote("".join(pieces))) for name, pieces in self.texts.items())
        message.update((name, _joined(values)) for name, values in self.others.items())
        if self.calls:
            calls = [self.calls[place].whole() for place in sorted(self.calls)]
            message["tool_calls"] = Raw(rawjson.encode_list(calls))
        choice: Members = {
            "index": Raw(b"%d" % self.index),
            "message": Raw(rawjson.encode_object(message)),
            "finish_reason": self.finish,
        }
        return Raw(rawjson.encode_object(choice))


def tool_of(call: Mapping[str, Raw]) -> ToolUse:
    """A call of a response that was not streamed."""
    body = body_of(call)
    return _tool(rawjson.text(call.get("id")), rawjson.text(body.get("name")), _written(body, kind_of(call)))


def kind_of(call: Mapping[str, Raw]) -> str:
    """``custom``, or ``function`` for all else: many providers leave the type out."""
    return "custom" if not is_null(call.get("custom")) else "function"


def body_of(call: Mapping[str, Raw]) -> Members:
    """What a call, or a delta of one, says of its tool."""
    return object_of(call.get(kind_of(call)))


def _written(body: Mapping[str, Raw], kind: str) -> str:
    """What the model wrote. Some providers send the object itself."""
    value = body.get(INPUTS[kind])
    if value is not None and bytes(value)[:1] == b"{":
        return bytes(value).decode()
    return rawjson.text(value)


def _tool(name: str, tool: str, written: str) -> ToolUse:
    raw = rawjson.unquoted(written)
    return ToolUse(name, tool, raw if raw.strip() else bytes(EMPTY))


def _joined(values: list[Raw]) -> Raw:
    """Lists (of details of reasoning, for instance) grow; of all else the last counts."""
    if bytes(values[0])[:1] != b"[":
        return values[-1]
    return Raw(rawjson.encode_list([item for value in values for item in rawjson.items(value)]))
