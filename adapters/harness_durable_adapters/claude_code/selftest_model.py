"""A model for the self-test: an HTTP server that gives a few fixed answers, in order of the conversation."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager

import anyio
from anyio.abc import SocketAttribute, SocketStream
from anyio.streams.buffered import BufferedByteReceiveStream

from harness_durable.gateway.anthropic import Anthropic

from ..common.shapes import Json, decode, encode, objects

Reply = tuple[str, Json]
"""Id and only block of a message."""

_HEAD_CAP = 64 << 10


class Model:
    """``last`` is the newest request, ``given`` how many of the replies were asked for."""

    def __init__(self, replies: Sequence[Reply], port: int) -> None:
        self._replies, self.port = replies, port
        self.last = ""
        self.given = 0

    @classmethod
    @asynccontextmanager
    async def serve(cls, replies: Sequence[Reply]) -> AsyncGenerator[Model]:
        """On a free port of the loopback interface, until the block ends."""
        listener = await anyio.create_tcp_listener(local_host="127.0.0.1")
        model = cls(replies, int(listener.extra(SocketAttribute.local_port)))
        async with listener, anyio.create_task_group() as tasks:
            tasks.start_soon(listener.serve, model._serve)
            yield model
            tasks.cancel_scope.cancel()

    async def _serve(self, stream: SocketStream) -> None:
        async with stream:
            lines = BufferedByteReceiveStream(stream)
            try:
                head = (await lines.receive_until(b"\r\n\r\n", _HEAD_CAP)).decode("latin-1").lower()
                length = next((line for line in head.split("\r\n") if line.startswith("content-length:")), "")
                body = await lines.receive_exactly(int(length.partition(":")[2] or 0))
                await stream.send(self._answer(body))
            except (anyio.EndOfStream, anyio.IncompleteRead, anyio.DelimiterNotFound):
                return
            except (anyio.BrokenResourceError, anyio.ClosedResourceError):
                return

    def _answer(self, body: bytes) -> bytes:
        request = decode(body) or {}
        if "messages" not in request:
            return _http(b"", "text/plain")
        self.last = body.decode("utf-8", "replace")
        place = sum(message.get("role") == "assistant" for message in objects(request.get("messages")))
        self.given = max(self.given, min(place + 1, len(self._replies)))
        name, block = self._replies[min(place, len(self._replies) - 1)]
        message: Json = {
            "id": name,
            "type": "message",
            "role": "assistant",
            "model": request.get("model"),
            "content": [block],
            "stop_reason": "tool_use" if block.get("type") == "tool_use" else "end_turn",
            "stop_sequence": None,
            "usage": {"input_tokens": 1, "output_tokens": 1},
        }
        if request.get("stream") is True:
            return _http(Anthropic().to_sse(encode(message)), "text/event-stream")
        return _http(encode(message), "application/json")


def _http(body: bytes, kind: str) -> bytes:
    head = (
        f"HTTP/1.1 200 OK\r\ncontent-type: {kind}\r\ncontent-length: {len(body)}\r\nconnection: close\r\n\r\n"
    )
    return head.encode() + body
