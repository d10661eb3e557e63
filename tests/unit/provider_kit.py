"""Help for the tests of the scripted provider: a strict reader of streams, and conversations in memory."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence

import httpx
from msgspec import Struct, convert

from harness_durable.testing.provider import Policy, ScriptedProvider, ToolUse
from harness_durable.testing.provider.encode import to_json
from harness_durable.testing.provider.messages import Request, parse
from harness_durable.testing.provider.reply import Text, Thinking

Json = dict[str, object]

BASH: Json = {
    "name": "Bash",
    "input_schema": {"properties": {"command": {}, "description": {}}},
}
READ: Json = {"name": "Read", "input_schema": {"properties": {"file_path": {}}}}
EDIT: Json = {
    "name": "Edit",
    "input_schema": {"properties": {"file_path": {}, "old_string": {}, "new_string": {}}},
}
DEPLOY: Json = {"name": "mcp__durable__deploy", "input_schema": {"properties": {"version": {}}}}
TOOLS: Sequence[Json] = (BASH, READ, EDIT, DEPLOY)


class Block(Struct):
    """A content block as a client has put it together; ``text`` also holds a call's arguments."""

    type: str
    text: str = ""
    id: str = ""
    name: str = ""
    signature: str = ""


class Heard(Struct):
    """What a client understood of a stream."""

    id: str = ""
    blocks: list[Block] = []
    stop_reason: str = ""
    usage: Json = {}
    events: list[str] = []
    error: str = ""
    finished: bool = False


def body(
    messages: Sequence[Json] | str = "hi",
    *,
    stream: bool = True,
    tools: Sequence[Json] = (),
    model: str = "m",
) -> Json:
    """A request body."""
    said = [{"role": "user", "content": messages}] if isinstance(messages, str) else list(messages)
    return {"model": model, "max_tokens": 9, "stream": stream, "messages": said, "tools": list(tools)}


def request(messages: Sequence[Json] | str = "hi", *, tools: Sequence[Json] = TOOLS) -> Request:
    """A parsed request."""
    return parse(to_json(body(messages, tools=tools)).encode())


def sse(raw: bytes) -> list[tuple[str, Json]]:
    """The events of a stream. Fails on bytes that are no UTF-8 and on data that is no JSON."""
    found: list[tuple[str, Json]] = []
    for part in raw.decode().replace("\r\n", "\n").split("\n\n"):
        lines = [line for line in part.split("\n") if line and not line.startswith(":")]
        fields = dict(line.split(": ", 1) for line in lines)
        if fields:
            found.append((fields["event"], convert(json.loads(fields["data"]), Json)))
    return found


def hear(raw: bytes) -> Heard:
    """Put a stream together, with the checks that a careful client would make."""
    heard = Heard(blocks=[], events=[])
    for name, data in sse(raw):
        assert data["type"] == name
        heard.events.append(name)
        _take(heard, name, data)
    return heard


def _take(heard: Heard, name: str, data: Json) -> None:
    if name == "message_start":
        heard.id = str(convert(data["message"], Json)["id"])
    elif name == "content_block_start":
        assert data["index"] == len(heard.blocks)
        heard.blocks.append(convert(convert(data["content_block"], Json) | {"text": ""}, Block))
    elif name == "content_block_delta":
        block, delta = heard.blocks[-1], convert(data["delta"], dict[str, str])
        assert data["index"] == len(heard.blocks) - 1
        block.signature += delta.get("signature", "")
        block.text += delta.get("text", "") + delta.get("thinking", "")
        block.text += delta.get("partial_json", "")
    elif name == "message_delta":
        heard.stop_reason = str(convert(data["delta"], Json)["stop_reason"])
        heard.usage = convert(data["usage"], Json)
    elif name == "error":
        heard.error = str(convert(data["error"], Json)["type"])
    elif name == "message_stop":
        heard.finished = True


async def ask(
    provider: ScriptedProvider, sent: Json | None = None, headers: Mapping[str, str] | None = None
) -> httpx.Response:
    """One POST with a client of its own; the body is read."""
    async with httpx.AsyncClient(base_url=provider.url) as client:
        content = to_json(sent or body(), escape=True)
        return await client.post("/v1/messages", content=content, headers=dict(headers or {}))


class Talk:
    """A conversation with a policy in memory: what the model says, and the results that we give."""

    def __init__(self, policy: Policy, prompt: str = "go", tools: Sequence[Json] = TOOLS) -> None:
        self._policy, self._tools = policy, tools
        self.messages: list[Json] = [{"role": "user", "content": prompt}]
        self.calls: list[ToolUse] = []
        self.text = ""

    def model(self) -> list[ToolUse]:
        """The model's next message; its calls."""
        asked = request(self.messages, tools=self._tools)
        reply = self._policy(asked)
        assert reply == self._policy(asked), "a policy must say the same to the same request"
        numbered = [self._numbered(block, at) for at, block in enumerate(reply.blocks)]
        self.calls = [block for block in numbered if isinstance(block, ToolUse)]
        self.text = "".join(block.text for block in numbered if isinstance(block, Text))
        content = [convert(_as_json(block), Json) for block in numbered]
        self.messages.append({"role": "assistant", "content": content})
        return self.calls

    def result(self, *texts: str, errors: bool = False) -> list[ToolUse]:
        """Answer the open calls in order, then let the model speak."""
        assert len(texts) == len(self.calls), self.calls
        content = [
            {"type": "tool_result", "tool_use_id": call.id, "content": text, "is_error": errors}
            for call, text in zip(self.calls, texts, strict=True)
        ]
        self.messages.append({"role": "user", "content": content})
        return self.model()

    def commands(self) -> list[object]:
        """The shell commands of the open calls."""
        return [call.input.get("command") for call in self.calls]

    def _numbered(self, block: Text | Thinking | ToolUse, at: int) -> Text | Thinking | ToolUse:
        if not isinstance(block, ToolUse):
            return block
        return ToolUse(block.name, block.input, id=f"toolu_{len(self.messages)}_{at}")


def _as_json(block: Text | Thinking | ToolUse) -> Json:
    match block:
        case Text(text):
            return {"type": "text", "text": text}
        case Thinking(thinking, signature):
            return {"type": "thinking", "thinking": thinking, "signature": signature}
        case ToolUse(name, given, call_id):
            return {"type": "tool_use", "id": call_id, "name": name, "input": given}
