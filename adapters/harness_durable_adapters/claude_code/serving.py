"""What the harness asks us: about its tools, and for ours."""

from __future__ import annotations

from harness_durable.adapter import LifeContext
from harness_durable.tools.mcp import McpEndpoint

from ..common.shapes import Json, mapping, word
from . import frames
from .gate import hook

_MCP_NOTHING: Json = {"jsonrpc": "2.0", "result": {}}


async def reply(ctx: LifeContext, mcp: McpEndpoint, number: str, request: Json) -> bytes:
    """The answer to a ``control_request``. Raises what the journal raises: then nobody may be answered."""
    match request.get("subtype"):
        case "hook_callback":
            name = word(request.get("callback_id"))
            return frames.answer(number, await hook(ctx, name, mapping(request.get("input"))))
        case "mcp_message":
            answered = await mcp.handle(mapping(request.get("message")))
            return frames.answer(number, {"mcp_response": answered or _MCP_NOTHING})
        case other:
            return frames.refusal(number, f"{other} is not supported here")
