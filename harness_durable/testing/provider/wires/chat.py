"""OpenAI's Chat Completions API, as the provider speaks it."""

from __future__ import annotations

import random
from collections.abc import Iterator

from harness_durable.testing.provider import encode
from harness_durable.testing.provider.encode import Event, input_text, pieces, to_json
from harness_durable.testing.provider.messages import Request
from harness_durable.testing.provider.reply import StreamError, Style, Text, Thinking, ToolUse
from harness_durable.testing.provider.wires import openai
from harness_durable.testing.provider.wires.openai import Json
from harness_durable.testing.provider.wires.wire import Answer

_REASONS = {"end_turn": "stop", "tool_use": "tool_calls", "max_tokens": "length", "refusal": "content_filter"}
_PING = "", '{"object":"chat.completion.chunk","choices":[]}'


class Chat:
    """A ``Wire``; see there for what each method is for."""

    name = "openai-chat"
    path = "/v1/chat/completions"
    message_prefix, call_prefix = "chatcmpl-", "call_"

    def parse(self, raw: bytes) -> Request:
        body = openai.body_of(raw)
        messages = openai.objects(body.get("messages"))
        tools = openai.objects(body.get("tools"))
        said = (block for message in messages for block in _said(message))
        return openai.request(body, said, map(_offered, tools))

    def complaint(self, request: Request) -> str:
        """The results of calls must follow their message at once."""
        waiting: list[object] = []
        for at, message in enumerate(openai.objects(request.body.get("messages"))):
            if message.get("role") == "tool":
                if message.get("tool_call_id") not in waiting:
                    return f"messages.[{at}]: a message with role 'tool' must answer a preceding 'tool_calls'"
                waiting.remove(message.get("tool_call_id"))
                continue
            if waiting:
                return f"messages.[{at}]: 'tool_calls' without a tool message right after it: {waiting}"
            waiting = [call.get("id") for call in openai.objects(message.get("tool_calls"))]
        return ""

    def stream(self, answer: Answer, style: Style) -> list[bytes]:
        found = [
            ("", to_json({**_head(answer, "chat.completion.chunk"), **one})) for one in _chunks(answer, style)
        ]
        framed = encode.frames([*found, ("", "[DONE]")], style, _PING)
        # The end of the message, its usage and the end of the stream are one event: a client has a whole
        # message as soon as it has the first of them, so nothing may be cut after it.
        end = 3 if _wants_usage(answer.request) else 2
        return [*framed[:-end], b"".join(framed[-end:])]

    def whole(self, answer: Answer) -> bytes:
        calls = [_call(block, Style()) for block in answer.reply.blocks if isinstance(block, ToolUse)]
        message: Event = {"role": "assistant", "content": _joined(answer, Text), "refusal": None}
        if thought := _joined(answer, Thinking):
            message["reasoning_content"] = thought
        if calls:
            message["tool_calls"] = calls
        choice: Event = {"index": 0, "message": message, "finish_reason": _finish(answer)}
        told: Event = {"choices": [choice], "usage": _usage(answer)}
        return to_json({**_head(answer, "chat.completion"), **told}).encode()

    def error(self, status: int, kind: str, message: str) -> Event:
        return openai.error(status, kind, message)

    def broken(self, fault: StreamError, message_id: str) -> bytes:
        return encode.frame("", to_json(openai.error(0, fault.kind, fault.message)))


# ---------------------------------------------------------------------------------------- requests


def _offered(tool: Json) -> Json:
    kind = str(tool.get("type") or "function")
    described = openai.inner(tool.get(kind))
    schema = openai.inner(described.get("parameters"))
    return {"name": described.get("name") or "", "input_schema": schema, "kind": kind}


def _said(message: Json) -> Iterator[tuple[str, Json]]:
    role, content = str(message.get("role")), message.get("content")
    if role == "tool":
        yield openai.result(message.get("tool_call_id"), content)
        return
    role = "system" if role == "developer" else role
    if message.get("reasoning_content"):
        yield role, {"type": "thinking", "text": message["reasoning_content"]}
    yield from ((role, block) for block in openai.blocks(content))
    for call in openai.objects(message.get("tool_calls")):
        kind = "custom" if "custom" in call else "function"
        body = openai.inner(call.get(kind))
        given = {"input": body.get("input")} if kind == "custom" else openai.arguments(body.get("arguments"))
        yield openai.call(call.get("id"), body.get("name"), given)


# --------------------------------------------------------------------------------------- responses


def _chunks(answer: Answer, style: Style) -> Iterator[Event]:
    dice = random.Random(f"deltas {style.seed}")
    yield _delta({"role": "assistant", "content": ""})
    index = 0
    for block in answer.reply.blocks:
        match block:
            case Text(text):
                yield from (_delta({"content": piece}) for piece in pieces(text, style.split_text, dice))
            case Thinking(text):
                thought = pieces(text, style.split_text, dice)
                yield from (_delta({"reasoning_content": piece}) for piece in thought)
            case ToolUse():
                yield from _call_deltas(block, index, style, dice)
                index += 1
    yield _delta({}, _finish(answer))
    if _wants_usage(answer.request):
        yield {"choices": [], "usage": _usage(answer)}


def _call_deltas(block: ToolUse, index: int, style: Style, dice: random.Random) -> Iterator[Event]:
    begun: Event = {"name": block.name, "arguments": ""}
    yield _delta({"tool_calls": [{"index": index, "id": block.id, "type": "function", "function": begun}]})
    for piece in pieces(input_text(block, style), style.split_input, dice):
        yield _delta({"tool_calls": [{"index": index, "function": {"arguments": piece}}]})


def _delta(delta: Event, finish: str | None = None) -> Event:
    return {"choices": [{"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish}]}


def _call(block: ToolUse, style: Style) -> Event:
    body: Event = {"name": block.name, "arguments": input_text(block, style)}
    return {"id": block.id, "type": "function", "function": body}


def _joined(answer: Answer, kind: type[Text | Thinking]) -> str | None:
    said = [_text(block) for block in answer.reply.blocks if isinstance(block, kind)]
    return "".join(said) if said else None


def _text(block: Text | Thinking) -> str:
    return block.text if isinstance(block, Text) else block.thinking


def _head(answer: Answer, kind: str) -> Event:
    return {"id": answer.reply.id, "object": kind, "created": 0, "model": answer.request.model}


def _finish(answer: Answer) -> str:
    reason = answer.reply.why_stopped()
    return _REASONS.get(reason, reason)


def _usage(answer: Answer) -> Event:
    return openai.usage_json(answer.usage, "prompt_tokens", "completion_tokens")


def _wants_usage(request: Request) -> bool:
    return openai.inner(request.body.get("stream_options")).get("include_usage") is True
