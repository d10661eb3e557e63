"""A look into a request: which tools are offered, what was called, what came back.

Everything a policy may base its decision on. Nothing here remembers earlier requests: after a crash
the same conversation comes again, and must lead to the same decision.
"""

from __future__ import annotations

import json
from collections.abc import Mapping

from msgspec import Struct, ValidationError, convert, field

from harness_durable.errors import BadInput


class Block(Struct, frozen=True):
    """One content block; fields of other block types keep their defaults."""

    type: str
    text: str = ""
    id: str = ""
    name: str = ""
    input: object = None
    tool_use_id: str = ""
    content: object = None
    is_error: bool | None = None


class Message(Struct, frozen=True):
    """One message of the conversation, as it was sent."""

    role: str
    content: str | list[Block]

    def blocks(self) -> list[Block]:
        """The content as blocks, also where it was sent as a plain string."""
        if isinstance(self.content, str):
            return [Block(type="text", text=self.content)]
        return self.content


class OfferedTool(Struct, frozen=True):
    """A tool that the request offers to the model. ``kind`` is ``custom`` for one that takes a text; a tool
    in a ``namespace`` is named ``namespace__name``."""

    name: str = ""
    input_schema: dict[str, object] = field(default_factory=dict[str, object])
    kind: str = "function"
    namespace: str = ""

    def takes(self, parameter: str) -> bool:
        """Whether the schema names this parameter."""
        properties = self.input_schema.get("properties")
        return isinstance(properties, Mapping) and parameter in properties


class Request(Struct, frozen=True):
    """A model call. ``body`` is the whole of it, as parsed; all else has the form of the Messages API,
    whatever the wire. ``said`` are the messages with every member that they came with."""

    model: str
    messages: list[Message]
    stream: bool = False
    tools: list[OfferedTool] = field(default_factory=list[OfferedTool])
    body: dict[str, object] = field(default_factory=dict[str, object])
    said: list[dict[str, object]] = field(default_factory=list[dict[str, object]])


class ToolCall(Struct, frozen=True):
    """A call that the model made; ``at`` is its place among all calls of the conversation."""

    at: int
    id: str
    name: str
    input: dict[str, object]


class ToolResult(Struct, frozen=True):
    """What the model was told about a call: its texts joined, reminders left out; the error mark."""

    text: str
    is_error: bool


def parse(raw: bytes) -> Request:
    """The request in ``raw``, a ``POST /v1/messages``; raises :class:`BadInput` if it is not one."""
    try:
        found: object = json.loads(raw)
        if not isinstance(found, dict):
            raise BadInput("the request body is not a JSON object; send model and messages")
        body = convert(found, dict[str, object])
        return convert({**body, "said": body.get("messages"), "body": body}, Request)
    except (ValueError, ValidationError) as error:
        raise BadInput(f"the request body cannot be read: {error}; send model and messages") from error


def tool_calls(request: Request) -> list[ToolCall]:
    """All calls of the conversation, in order."""
    found = [
        block
        for message in request.messages
        if message.role == "assistant"
        for block in message.blocks()
        if block.type == "tool_use"
    ]
    return [
        ToolCall(at, block.id, block.name, convert(block.input or {}, dict[str, object]))
        for at, block in enumerate(found)
    ]


def results(request: Request) -> dict[str, ToolResult]:
    """The results by call id. If a call has several, the last one counts."""
    return {
        block.tool_use_id: ToolResult(_text_of(block.content), bool(block.is_error))
        for message in request.messages
        if message.role == "user"
        for block in message.blocks()
        if block.type == "tool_result"
    }


def last_user_text(request: Request) -> str:
    """The text of the last user message that has any, without reminders that the harness adds."""
    texts = [text for message in request.messages if (text := user_text(message))]
    return texts[-1] if texts else ""


def first_user_text(request: Request) -> str:
    """The text that started the conversation."""
    return next((text for message in request.messages if (text := user_text(message))), "")


def user_text(message: Message) -> str:
    """What a person said in this message; empty for other roles and for pure tool results."""
    if message.role != "user":
        return ""
    said = [block.text for block in message.blocks() if block.type == "text"]
    return "\n".join(text for text in said if not text.startswith("<system-reminder>"))


def assistant_turns(request: Request) -> int:
    """How many assistant messages there are; neighbours count as one, as the API merges them."""
    roles = [message.role for message in request.messages if message.role != "system"]
    before = ["", *roles]
    return sum(role == "assistant" != prior for prior, role in zip(before, roles, strict=False))


def without_reminders(text: str) -> str:
    """``text`` without the reminders that a harness hangs on its end, such as the tokens left."""
    while (kept := text.rstrip()).endswith("</system-reminder>") and "<system-reminder>" in kept:
        text = kept[: kept.rindex("<system-reminder>")].rstrip()
    return text


def _text_of(content: object) -> str:
    if isinstance(content, str):
        return without_reminders(content)
    if not isinstance(content, list):
        return ""
    texts = [block.text for block in convert(content, list[Block]) if block.type == "text"]
    return without_reminders("\n".join(texts))
