"""Responses of the Chat Completions API: collected from a stream, or parsed as a whole.

Nothing is repaired. What ends a stream is the ``finish_reason`` of each choice, as OpenCode and Pi have it:
some providers never send ``[DONE]``, and proxies send one after a stream that was cut. Usage may follow."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from msgspec import Raw

from harness_durable.gateway import rawjson
from harness_durable.gateway.openai_chat_choice import Choice, tool_of
from harness_durable.gateway.openai_common import EMPTY, Members, fault, is_null, items_of, object_of, usage
from harness_durable.gateway.rawjson import Unreadable, quote
from harness_durable.gateway.sse import Frame, Framer
from harness_durable.gateway.wire import Fault, Parsed, ToolUse

_BROKEN = ("error", "network_error")
"""Reasons to finish that some providers give for a failure of theirs."""
_VOID = (b"", b'""', b"null")


class CompletionCollector:
    """A ``Collector`` for the Chat Completions API. Parses each chunk when it is whole, so that none keeps
    the event loop for long."""

    def __init__(self) -> None:
        self._chunks: list[bytes] = []
        self._framer = Framer()
        self._head: Members = {}
        self._usage: Members = {}
        self._choices: dict[int, Choice] = {}
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
        choices = self._in_order()
        failed = self._fault or _broken(choice.finish for choice in choices)
        if failed is None and (not choices or any(is_null(choice.finish) for choice in choices)):
            failed = Fault(502, "the provider's stream ended before its message did")
        reason = choices[0].finish if choices else None
        tools = tuple(tool for choice in choices for tool in choice.tools())
        return _parsed(b"".join(self._chunks), self._head, self._usage, reason, failed, tools)

    def whole(self) -> bytes:
        """The message in the form of a response that was not streamed."""
        choices = Raw(rawjson.encode_list([choice.whole() for choice in self._in_order()]))
        told: Members = {"object": quote("chat.completion"), "choices": choices}
        if self._usage:
            told["usage"] = Raw(rawjson.encode_object(self._usage))
        return rawjson.encode_object({**self._head, **told})

    def _in_order(self) -> list[Choice]:
        return [self._choices[index] for index in sorted(self._choices)]

    def _take(self, frames: Iterable[Frame]) -> None:
        for frame in frames:
            if self._ended or self._fault is not None:
                return
            if frame.data.strip() == b"[DONE]":
                self._ended = True
                return
            try:
                frame.data.decode()
                self._chunk(rawjson.members(frame.data))
            except (ValueError, KeyError) as error:  # no UTF-8, no JSON, or not what the API sends
                self._fault = _none(error)

    def _chunk(self, chunk: Members) -> None:
        if not is_null(chunk.get("error")):
            self._fault = fault(chunk["error"])
            return
        for name, value in chunk.items():  # some chunks have no id, or an empty one
            if name not in ("choices", "usage") and bytes(self._head.get(name, b"")) in _VOID:
                self._head[name] = value
        if not is_null(chunk.get("usage")):
            self._usage = object_of(chunk["usage"])
        for raw in items_of(chunk.get("choices")):
            members = rawjson.members(raw)
            index = rawjson.number(members.get("index"))
            choice = self._choices.setdefault(index, Choice(index))
            delta = object_of(members.get("delta"))
            choice.grow(delta)
            self._fresh.append(rawjson.text(delta.get("content")))
            if not is_null(members.get("finish_reason")):
                choice.finish = members["finish_reason"]


def parse_json(body: bytes) -> Parsed:
    """A response that was not streamed. Never raises."""
    try:
        body.decode()
        message = rawjson.members(body)
        if not is_null(message.get("error")):
            return Parsed(body, False, fault=fault(message["error"]))
        choices = [rawjson.members(choice) for choice in items_of(message.get("choices"))]
        if not choices:
            raise Unreadable("it has no choices")
        tools = tuple(tool_of(call) for choice in choices for call in calls_of(choice))
    except ValueError as error:  # no UTF-8, no JSON, or something else than a completion
        return Parsed(body, False, fault=_none(error))
    reasons = [choice.get("finish_reason", Raw(b"null")) for choice in choices]
    counted = object_of(message.get("usage"))
    return _parsed(body, message, counted, reasons[0], _broken(reasons), tools)


def calls_of(choice: Mapping[str, Raw]) -> list[Members]:
    """The tool calls of a choice that was not streamed. Raises ``Unreadable``."""
    message = rawjson.members(choice.get("message", EMPTY))
    if not is_null(message.get("function_call")):
        raise Unreadable("it calls a tool in the old form, which has no ids")
    return [rawjson.members(call) for call in items_of(message.get("tool_calls"))]


def _broken(reasons: Iterable[Raw]) -> Fault | None:
    for reason in map(rawjson.text, reasons):
        if reason in _BROKEN:
            return Fault(502, f"{reason}: the provider broke its message off")
    return None


def _parsed(
    body: bytes,
    message: Mapping[str, Raw],
    counted: Members,
    reason: Raw | None,
    failed: Fault | None,
    tools: tuple[ToolUse, ...],
) -> Parsed:
    used = usage(counted, "prompt_tokens", "completion_tokens")
    names = rawjson.text(message.get("id")), rawjson.text(reason)
    return Parsed(body, failed is None, *names, used, () if failed is not None else tools, failed)


def _none(error: Exception) -> Fault:
    return Fault(502, f"the provider's answer is no message ({error})")
