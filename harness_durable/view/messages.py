"""What a model was told and what it said, as people read it: messages of three APIs as role and text. Pure.

What surprises: nothing is refused here. Bytes that are no message that we know are shown as they are."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import cast

import msgspec

from harness_durable.errors import UnknownName
from harness_durable.gateway import wire

_NAMES = {"function_call": "tool call", "function_call_output": "tool result", "reasoning": "reasoning"}


class Said(msgspec.Struct, frozen=True):
    """One message. ``calls``: ids of the tool calls that it asks for or answers, for links."""

    role: str
    text: str
    calls: tuple[str, ...] = ()


def said(raw: bytes) -> Said:
    """One item of a request's list of messages. Of one that was left out, nothing is known."""
    if not raw:
        return Said("left out", "")
    try:
        found: object = json.loads(raw)
    except (ValueError, RecursionError):
        return Said("?", raw.decode("utf-8", "replace"))
    if not isinstance(found, dict):
        return Said("?", _text(found))
    item = cast(dict[str, object], found)
    kind = str(item.get("type", ""))
    role = str(item.get("role") or _NAMES.get(kind, kind) or "?")
    calls = [str(item[name]) for name in ("call_id", "tool_call_id") if name in item]
    parts: list[str] = []
    for block in _blocks(item):
        text, call = _block(block)
        parts.append(text)
        calls += [call] if call else []
    return Said(role, "\n\n".join(part for part in parts if part), tuple(calls))


def _blocks(item: dict[str, object]) -> Iterator[object]:
    content = item.get("content")
    if item.get("type") in ("function_call", "function_call_output", "custom_tool_call", "reasoning"):
        yield item
    elif isinstance(content, list):
        yield from cast(list[object], content)
    elif content is not None:
        yield content
    calls = item.get("tool_calls")
    if isinstance(calls, list):
        yield from cast(list[object], calls)


def _block(block: object) -> tuple[str, str]:
    """Its text, and the id of a tool call if it is about one."""
    if not isinstance(block, dict):
        return _text(block), ""
    part = cast(dict[str, object], block)
    kind, function = str(part.get("type", "")), part.get("function")
    if "text" in part:
        return _text(part["text"]), ""
    if kind in ("tool_use", "function_call", "custom_tool_call") or isinstance(function, dict):
        inner = cast(dict[str, object], function) if isinstance(function, dict) else part
        given = inner.get("input", inner.get("arguments", ""))
        return f"[calls {inner.get('name', '?')}] {_text(given)}", str(part.get("id", ""))
    if kind == "tool_result":
        result = part.get("content", "")
        blocks = cast(list[object], result) if isinstance(result, list) else [result]
        return "[result] " + "\n".join(_block(one)[0] for one in blocks), str(part.get("tool_use_id", ""))
    if kind == "function_call_output":
        return "[result] " + _text(part.get("output", "")), ""
    if kind == "thinking":
        return "[thinks] " + _text(part.get("thinking", "")), ""
    if kind == "reasoning":
        return "[thinks]", ""
    if kind in ("image", "document", "input_image", "image_url", "input_file", "file", "input_audio"):
        return f"[{kind}: not shown]", ""
    return _text(part), ""


def _text(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def answer(wire_name: str, content_type: str, body: bytes) -> str:
    """The visible text of a model's response; empty if there is none, or none that can be read."""
    try:
        found = wire(wire_name)
        collector = found.collector()
        collector.feed(body if "event-stream" in content_type else found.to_sse(body))
    except (UnknownName, ValueError, KeyError, TypeError, RecursionError, msgspec.MsgspecError):
        return ""
    return collector.text_delta()


def messages_field(wire_name: str) -> str:
    try:
        return wire(wire_name).list_field
    except UnknownName:
        return ""
