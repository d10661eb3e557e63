"""Responses of the Responses API: collected from a stream, or parsed as a whole.

Nothing is repaired. A stream counts only after ``response.completed``. A tool call is what comes in a
``response.output_item.done``, since harnesses begin it there; the list at the end only has to agree.

Which items are calls for the harness: those with a ``call_id`` that are no result. So a kind of call that is
not known here yet is recorded as well, and what the provider runs itself (a web search) is not."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import msgspec
from msgspec import Raw

from harness_durable.gateway import rawjson
from harness_durable.gateway.openai_common import (
    EMPTY,
    Members,
    fault,
    is_null,
    items_of,
    object_of,
    usage,
)
from harness_durable.gateway.rawjson import Unreadable
from harness_durable.gateway.sse import Frame, Framer
from harness_durable.gateway.wire import Fault, Parsed, ToolUse

STATUSES = {"rate_limit_exceeded": 503}
"""Codex tries again after a response that failed by a rate limit; it gives the turn up at a status of 429."""

INPUTS = {"function_call": "arguments", "custom_tool_call": "input"}
"""The member of a call that holds, as a string, what the model wrote."""

_NO_INPUT = {"type", "id", "call_id", "status", "name", "namespace"}


class ResponseCollector:
    """A ``Collector`` for the Responses API. Parses each event when it is whole, so that no chunk keeps the
    event loop for long."""

    def __init__(self) -> None:
        self._chunks: list[bytes] = []
        self._framer = Framer()
        self._response: Members = {}
        self._came = False
        self._begun: set[int] = set()
        self._items: dict[int, Raw] = {}
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
        tools: tuple[ToolUse, ...] = ()
        failed = self._fault
        try:
            if failed is None:
                tools = tuple(tool_of(item) for item in calls(self._output()))
        except Unreadable as error:
            failed = _none(error)
        # An id says that something of the response has come.
        response = self._response if failed is None or self._came else {}
        return _parsed(b"".join(self._chunks), response, failed, tools)

    def whole(self) -> bytes:
        """The response in the form of one that was not streamed."""
        return rawjson.encode_object({**self._response, "output": Raw(rawjson.encode_list(self._output()))})

    def _output(self) -> list[Raw]:
        """All items in order. Some providers leave them out at the end, others say them only there. Raises
        ``Unreadable`` if the response is not whole."""
        done = [self._items[index] for index in sorted(self._items)]
        told = items_of(self._response.get("output"))
        if not self._ended or not (self._begun <= self._items.keys() or (told and not done)):
            raise Unreadable("it ended before the response did")
        if done and told and len(calls(done)) != len(calls(told)):
            raise Unreadable("its tool calls are not those that it names at its end")
        return done if len(done) >= len(told) else told

    def _take(self, frames: Iterable[Frame]) -> None:
        for frame in frames:
            if self._ended or self._fault is not None:
                return
            try:
                frame.data.decode()
                self._event(rawjson.members(frame.data))
            except (ValueError, KeyError) as error:  # no UTF-8, no JSON, or not what the API sends
                if frame.data.strip() != b"[DONE]":
                    self._fault = _none(error)

    def _event(self, event: Members) -> None:
        kind = rawjson.text(event.get("type"))
        self._came = self._came or "output_index" in event
        match kind:
            case "response.created" | "response.in_progress" | "response.queued":
                self._response = rawjson.members(event["response"])
            case "response.output_item.added":
                if is_call(rawjson.members(event["item"])):
                    self._begun.add(index_of(event))
            case "response.output_item.done":
                rawjson.members(event["item"])
                self._items[index_of(event)] = event["item"]
            case "response.output_text.delta" | "response.refusal.delta":
                self._fresh.append(rawjson.text(event.get("delta")))
            case "response.completed" | "response.incomplete" | "response.failed" | "response.cancelled":
                self._response = rawjson.members(event["response"])
                self._fault = failure(self._response, kind.removeprefix("response."))
                self._ended = True
            case "error":
                flat = Raw(rawjson.encode_object(event))
                self._fault = fault(
                    flat if is_null(event.get("error")) else event["error"], statuses=STATUSES
                )
            case _:  # the other deltas, and what a later version of the API adds
                return


def parse_json(body: bytes) -> Parsed:
    """A response that was not streamed. Never raises."""
    try:
        body.decode()
        response = rawjson.members(body)
        failed = failure(response, rawjson.text(response.get("status")) or "completed")
        if failed is None and "output" not in response:
            raise Unreadable("it has no output")
        tools = [tool_of(item) for item in calls(items_of(response.get("output")))]
    except ValueError as error:  # no UTF-8, no JSON, or something else than a response
        return Parsed(body, False, fault=_none(error))
    return _parsed(body, response, failed, tuple(tools))


def failure(response: Mapping[str, Raw], status: str) -> Fault | None:
    """Why a response that has ended with this status is none; None if it is one."""
    if not is_null(response.get("error")):
        return fault(response["error"], statuses=STATUSES)
    match status:
        case "completed":
            return None
        case "incomplete":
            # To ask again would be paid again and end the same way; so it is a status that nobody repeats.
            why = (
                rawjson.text(object_of(response.get("incomplete_details")).get("reason")) or "no reason given"
            )
            return Fault(
                400, f"incomplete: the provider cut the response off ({why}); allow more, or ask for less"
            )
        case _:
            return Fault(502, f"the provider's response ended as {status}")


def calls(items: Iterable[Raw]) -> list[Members]:
    """Those that the harness has to run."""
    return [item for item in map(rawjson.members, items) if is_call(item)]


def is_call(item: Mapping[str, Raw]) -> bool:
    return not is_null(item.get("call_id")) and not rawjson.text(item.get("type")).endswith("_output")


def index_of(event: Mapping[str, Raw]) -> int:
    """The place of an event's item in the output."""
    return rawjson.number(event.get("output_index"))


def tool_of(item: Mapping[str, Raw]) -> ToolUse:
    """A call. One without a name is named by its kind, as ``local_shell``; a tool in a namespace as
    ``namespace__name``."""
    kind = rawjson.text(item.get("type"))
    space, name = rawjson.text(item.get("namespace")), rawjson.text(item.get("name"))
    if space:
        name = f"{space.removesuffix('__')}__{name}"
    if kind in INPUTS:
        written = rawjson.unquoted(rawjson.text(item.get(INPUTS[kind])))
    else:
        given = {member: value for member, value in item.items() if member not in _NO_INPUT}
        written = rawjson.encode_object(given)
    named = name or kind.removesuffix("_call")
    return ToolUse(rawjson.text(item.get("call_id")), named, written if written.strip() else bytes(EMPTY))


def _parsed(body: bytes, response: Members, failed: Fault | None, tools: tuple[ToolUse, ...]) -> Parsed:
    parsed = Parsed(
        body,
        failed is None,
        rawjson.text(response.get("id")),
        "" if failed is not None else "completed",
        usage(object_of(response.get("usage")), "input_tokens", "output_tokens"),
        fault=failed,
    )
    return parsed if failed is not None else msgspec.structs.replace(parsed, tools=tools)


def _none(error: Exception) -> Fault:
    return Fault(502, f"the provider's answer is no response ({error})")
