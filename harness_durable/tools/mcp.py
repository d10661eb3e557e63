"""Custom tools as an MCP server, message by message; how messages travel is the adapter's business.

Only what tools need of the protocol. What surprises: the id that counts is the model's tool-call id, which
the harness puts into ``_meta``. A JSON-RPC id is new with each connection, and harnesses send calls again."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import cast

from harness_durable.tools.host import ToolHost
from harness_durable.tools.results import ToolResult

VERSIONS = ("2025-11-25", "2025-06-18", "2025-03-26", "2024-11-05")
"""Of the protocol, newest first. Tools look the same in all of them."""

_INVALID_REQUEST, _NO_METHOD, _INVALID_PARAMS = -32600, -32601, -32602

Message = dict[str, object]


class _Refused(Exception):
    """A JSON-RPC error."""

    def __init__(self, code: int, text: str) -> None:
        self.code, self.text = code, text
        super().__init__(text)


class McpEndpoint:
    """One server of custom tools. ``call_id_key`` is where in ``_meta`` the harness puts the call's id."""

    def __init__(
        self, host: ToolHost, server: str, version: str, *, call_id_key: str = "claudecode/toolUseId"
    ) -> None:
        self._host, self._call_id_key = host, call_id_key
        self._info: Message = {"name": server, "version": version}
        self._requests: dict[str | int, str] = {}

    async def handle(self, message: Message) -> Message | None:
        """The answer to a message; ``None`` if it needs none. A call is answered when it has its outcome, so
        run each message in a task of its own.

        Raises ``StorageUnavailable`` and ``WriterFenced``: then nobody may be answered.
        """
        method, request = message.get("method"), message.get("id")
        if not isinstance(request, str | int):
            if isinstance(method, str):
                await self._notified(method, _object(message.get("params")))
            return None
        if not isinstance(method, str):
            if "result" in message or "error" in message:
                return None
            return _error(request, _INVALID_REQUEST, "the message has no method")
        try:
            result = await self._answer(method, _object(message.get("params")), request)
        except _Refused as refused:
            return _error(request, refused.code, refused.text)
        return {"jsonrpc": "2.0", "id": request, "result": result}

    async def _answer(self, method: str, params: Mapping[str, object], request: str | int) -> Message:
        match method:
            case "initialize":
                asked = params.get("protocolVersion")
                version = asked if asked in VERSIONS else VERSIONS[0]
                return {"protocolVersion": version, "capabilities": {"tools": {}}, "serverInfo": self._info}
            case "ping":
                return {}
            case "tools/list":
                return {"tools": self._host.specs()}
            case "tools/call":
                return await self._call(params, request)
            case _:
                raise _Refused(_NO_METHOD, f"no method {method!r}; this server has tools only")

    async def _call(self, params: Mapping[str, object], request: str | int) -> Message:
        name, arguments = params.get("name"), params.get("arguments")
        if not isinstance(name, str) or name not in self._host.tools:
            raise _Refused(
                _INVALID_PARAMS, f"no tool {name!r}; known: {', '.join(self._host.tools) or 'none'}"
            )
        call = _object(params.get("_meta")).get(self._call_id_key)
        if not isinstance(call, str) or not call:
            text = f"not run: without a call id in _meta[{self._call_id_key!r}] it cannot be recorded"
            return _content(ToolResult(text, True))
        # Bytes are arguments that the adapter could not read, as they came: the host says what is wrong.
        if not isinstance(arguments, bytes):
            arguments = json.dumps({} if arguments is None else arguments).encode()
        self._requests[request] = call
        try:
            return _content(await self._host.call(call, name, arguments))
        finally:
            self._requests.pop(request, None)

    async def _notified(self, method: str, params: Mapping[str, object]) -> None:
        request = params.get("requestId")
        if method == "notifications/cancelled" and isinstance(request, str | int):
            call = self._requests.get(request)
            if call is not None:
                await self._host.cancel(call)


def _object(value: object) -> Mapping[str, object]:
    return cast(Mapping[str, object], value) if isinstance(value, dict) else {}


def _content(result: ToolResult) -> Message:
    return {"content": [{"type": "text", "text": result.text}], "isError": result.is_error}


def _error(request: str | int, code: int, text: str) -> Message:
    return {"jsonrpc": "2.0", "id": request, "error": {"code": code, "message": text}}
