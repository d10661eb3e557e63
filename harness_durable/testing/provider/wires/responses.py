"""OpenAI's Responses API, as the provider speaks it."""

from __future__ import annotations

import random
from collections.abc import Iterator

from harness_durable.testing.provider import encode
from harness_durable.testing.provider.encode import Event, input_text, pieces, to_json
from harness_durable.testing.provider.messages import OfferedTool, Request
from harness_durable.testing.provider.reply import Block, StreamError, Style, Text, Thinking, ToolUse
from harness_durable.testing.provider.wires import openai
from harness_durable.testing.provider.wires.openai import Json
from harness_durable.testing.provider.wires.wire import Answer

_CUT_OFF = {"max_tokens": "max_output_tokens", "refusal": "content_filter"}
_FRAMES = ("<environment_context>", "<skills_instructions>")
"""Codex says where it is and what it can in the person's name; a policy wants to know what a person said."""
_PING = "keepalive", '{"type":"keepalive"}'


class Responses:
    """A ``Wire``; see there for what each method is for."""

    name = "openai-responses"
    path = "/v1/responses"
    message_prefix, call_prefix = "resp_", "call_"

    def parse(self, raw: bytes) -> Request:
        body = openai.body_of(raw)
        items = _items(body)
        tools = [*openai.objects(body.get("tools")), *_additional(items)]
        return openai.request(body, (said for item in items for said in _said(item)), _offered(tools))

    def complaint(self, request: Request) -> str:
        """A result must be of the kind of its call."""
        kinds: dict[object, str] = {}
        for item in _items(request.body):
            kind, call = str(item.get("type")), item.get("call_id")
            if not kind.endswith("_output"):
                kinds[call] = kind
            elif kind not in (f"{kinds.get(call)}_output", f"{kinds.get(call)}".replace("_call", "_output")):
                return f"No {kind.removesuffix('_output')} found for {kind} with call_id {call}."
        return ""

    def stream(self, answer: Answer, style: Style) -> list[bytes]:
        numbered = ({**event, "sequence_number": at} for at, event in enumerate(_events(answer, style)))
        return encode.frames([(str(event["type"]), to_json(event)) for event in numbered], style, _PING)

    def whole(self, answer: Answer) -> bytes:
        return to_json(_ended(answer, Style())).encode()

    def error(self, status: int, kind: str, message: str) -> Event:
        return openai.error(status, kind, message)

    def broken(self, fault: StreamError, message_id: str) -> bytes:
        error: Event = {"code": openai.CODES.get(fault.kind, fault.kind), "message": fault.message}
        head: Event = {"id": message_id, "object": "response", "status": "failed"}
        response: Event = {**head, "error": error, "output": []}
        event: Event = {"type": "response.failed", "response": response}
        return encode.frame("response.failed", to_json(event))


# ---------------------------------------------------------------------------------------- requests


def _items(body: Json) -> list[Json]:
    given = body.get("input")
    return [{"role": "user", "content": given}] if isinstance(given, str) else openai.objects(given)


def _additional(items: list[Json]) -> Iterator[Json]:
    for item in items:
        if item.get("type") == "additional_tools":
            yield from openai.objects(item.get("tools"))


def _offered(tools: list[Json], namespace: str = "") -> Iterator[Json]:
    for tool in tools:
        name = str(tool.get("name") or "")
        if tool.get("type") == "namespace":
            yield from _offered(openai.objects(tool.get("tools")), name)
        elif name:
            joined = f"{namespace.removesuffix('__')}__{name}" if namespace else name
            shape = {"kind": tool.get("type") or "function", "namespace": namespace}
            yield {"name": joined, "input_schema": tool.get("parameters") or {}, **shape}


def _said(item: Json) -> Iterator[tuple[str, Json]]:
    kind = str(item.get("type") or "message")
    if kind == "message":
        role = "system" if item.get("role") in ("system", "developer") else str(item.get("role"))
        blocks = openai.blocks(item.get("content"))
        yield from ((role, block) for block in blocks if not str(block.get("text")).startswith(_FRAMES))
    elif kind.endswith("_output"):
        yield openai.result(item.get("call_id"), item.get("output"))
    elif item.get("call_id"):
        yield openai.call(item["call_id"], _name(item), _input(item))
    elif kind != "additional_tools":
        yield "assistant", {"type": kind, "content": {n: v for n, v in item.items() if n != "id"}}


def _name(item: Json) -> str:
    space, name = str(item.get("namespace") or ""), str(item.get("name") or item["type"])
    return f"{space.removesuffix('__')}__{name}" if space else name


def _input(item: Json) -> Json:
    if "arguments" in item:
        return openai.arguments(item["arguments"])
    return {
        n: v for n, v in item.items() if n not in ("type", "id", "call_id", "status", "name", "namespace")
    }


# --------------------------------------------------------------------------------------- responses


def _events(answer: Answer, style: Style) -> Iterator[Event]:
    dice = random.Random(f"deltas {style.seed}")
    begun: Event = {**_head(answer), "status": "in_progress", "output": [], "usage": None}
    yield {"type": "response.created", "response": begun}
    yield {"type": "response.in_progress", "response": begun}
    for index, block in enumerate(answer.reply.blocks):
        item = _item(answer, index, block, style)
        at: Event = {"output_index": index}
        yield {"type": "response.output_item.added", **at, "item": {**item, **_emptied(item)}}
        yield from _growing(block, {**at, "item_id": item["id"]}, item, style, dice)
        yield {"type": "response.output_item.done", **at, "item": item}
    ended = _ended(answer, style)
    yield {"type": f"response.{ended['status']}", "response": ended}


def _growing(block: Block, at: Event, item: Event, style: Style, dice: random.Random) -> Iterator[Event]:
    match block:
        case Text(text):
            part: Event = {"type": "output_text", "text": "", "annotations": []}
            at = {**at, "content_index": 0}
            yield {"type": "response.content_part.added", **at, "part": part}
            yield from _deltas("response.output_text", "text", text, at, style.split_text, dice)
            yield {"type": "response.content_part.done", **at, "part": {**part, "text": text}}
        case Thinking(thinking):
            kind = "response.reasoning_summary_text"
            yield from _deltas(kind, "text", thinking, {**at, "summary_index": 0}, style.split_text, dice)
        case ToolUse():
            custom = item["type"] == "custom_tool_call"
            member = "input" if custom else "arguments"
            kind = "response.custom_tool_call_input" if custom else "response.function_call_arguments"
            yield from _deltas(kind, member, str(item[member]), at, style.split_input, dice)


def _deltas(
    kind: str, member: str, text: str, at: Event, longest: int, dice: random.Random
) -> Iterator[Event]:
    for piece in pieces(text, longest, dice):
        yield {"type": f"{kind}.delta", **at, "delta": piece}
    yield {"type": f"{kind}.done", **at, member: text}


def _head(answer: Answer) -> Event:
    return {
        "id": answer.reply.id,
        "object": "response",
        "created_at": 0,
        "model": answer.request.model,
        "error": None,
        "incomplete_details": None,
    }


def _ended(answer: Answer, style: Style) -> Event:
    why = _CUT_OFF.get(answer.reply.why_stopped())
    return {
        **_head(answer),
        "status": "incomplete" if why else "completed",
        "incomplete_details": {"reason": why} if why else None,
        "output": [_item(answer, index, block, style) for index, block in enumerate(answer.reply.blocks)],
        "usage": openai.usage_json(answer.usage, "input_tokens", "output_tokens"),
    }


def _item(answer: Answer, index: int, block: Block, style: Style) -> Event:
    suffix = f"{answer.reply.id.removeprefix('resp_')}_{index}"
    match block:
        case Text(text):
            content: list[Event] = [{"type": "output_text", "text": text, "annotations": []}]
            message: Event = {"id": f"msg_{suffix}", "type": "message", "status": "completed"}
            return {**message, "role": "assistant", "content": content}
        case Thinking(thinking, signature):
            summary = [{"type": "summary_text", "text": thinking}]
            reasoning: Event = {"id": f"rs_{suffix}", "type": "reasoning", "summary": summary}
            return {**reasoning, "encrypted_content": signature}
        case ToolUse(name, _, call_id):
            offered = next((tool for tool in answer.request.tools if tool.name == name), OfferedTool(name))
            space = offered.namespace
            called = name.removeprefix(f"{space.removesuffix('__')}__") if space else name
            return {
                "id": f"fc_{suffix}",
                "status": "completed",
                "call_id": call_id,
                "name": called,
                **({"namespace": space} if space else {}),
                **_written(block, offered, style),
            }


def _written(block: ToolUse, offered: OfferedTool, style: Style) -> Event:
    if offered.kind == "custom":
        given = block.raw or str(block.input.get("input", ""))
        return {"type": "custom_tool_call", "input": given}
    return {"type": "function_call", "arguments": input_text(block, style)}


def _emptied(item: Event) -> Event:
    """What an item does not have yet when it begins."""
    empty: Event = {"content": [], "summary": [], "arguments": "", "input": ""}
    return {name: value for name, value in empty.items() if name in item} | {"status": "in_progress"}
