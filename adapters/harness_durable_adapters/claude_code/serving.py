"""Requests of the harness, each answered in a task of its own: a hook that waits for a person, or a custom
tool that takes an hour, keeps nothing else waiting."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import anyio

from harness_durable import clock
from harness_durable.adapter import LifeContext
from harness_durable.tools.mcp import McpEndpoint

from . import frames
from .gate import hook
from .naming import SERVER
from .shapes import Json, mapping, word

_MCP_NOTHING: Json = {"jsonrpc": "2.0", "result": {}}


class Serving:
    """``start`` begins a task that the conversation owns. ``last``: when a request was last answered, by the
    monotonic clock."""

    def __init__(
        self,
        ctx: LifeContext,
        write: Callable[[bytes], Awaitable[None]],
        start: Callable[[Callable[[], Awaitable[object]]], None],
    ) -> None:
        self._ctx, self._write, self._start = ctx, write, start
        self._mcp = McpEndpoint(ctx.tools, SERVER, "1")
        self._scopes: dict[str, anyio.CancelScope] = {}
        self.last = clock.monotonic()

    @property
    def busy(self) -> bool:
        """Is a request being answered?"""
        return bool(self._scopes)

    def begin(self, frame: Json) -> None:
        """Answer a ``control_request``."""
        number = word(frame.get("request_id"))
        scope = self._scopes[number] = anyio.CancelScope()

        async def serve() -> None:
            try:
                with scope:
                    await self._write(await self._reply(number, mapping(frame.get("request"))))
            finally:
                self._scopes.pop(number, None)
                self.last = clock.monotonic()

        self._start(serve)

    def cancel(self, number: str) -> None:
        """The harness took a request back: it must not be answered any more."""
        scope = self._scopes.get(number)
        if scope is not None:
            scope.cancel()

    async def _reply(self, number: str, request: Json) -> bytes:
        match request.get("subtype"):
            case "hook_callback":
                name = word(request.get("callback_id"))
                return frames.answer(number, await hook(self._ctx, name, mapping(request.get("input"))))
            case "mcp_message":
                reply = await self._mcp.handle(mapping(request.get("message")))
                return frames.answer(number, {"mcp_response": reply or _MCP_NOTHING})
            case other:
                return frames.refusal(number, f"{other} is not supported here")
