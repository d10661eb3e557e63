"""The harness's HTTP server, reached over the link to its life. A connection for each request: a server
within a sandbox has no address of its own, and what it says must not mix.

What surprises: every request may be sent again, since the server takes ids from us; one that broke is."""

from __future__ import annotations

import base64
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping

import anyio
import h11
from anyio.abc import ByteStream

from harness_durable import clock
from harness_durable.errors import HarnessStuck

from ..common.lines import Lines
from ..common.shapes import Json, decode, encode, mapping, value

_CHUNK = 256 << 10
_TRIES = 4
_PAUSE_SECONDS = 0.5
_PATIENCE_SECONDS = 120.0
"""For one answer. Each takes milliseconds; a machine under load may need far longer."""


class Refused(Exception):
    """An answer that says no; ``status`` in HTTP."""

    def __init__(self, status: int, said: str) -> None:
        self.status, self.said = status, said
        super().__init__(f"{status} {said[:500]}")


class Broken(Exception):
    """The connection ended before its answer did."""


class Server:
    """``dial`` connects to a port within the life, ``port`` is where it listens there; ``password`` what it
    was told to ask for."""

    def __init__(self, dial: Callable[[int], Awaitable[ByteStream]], port: int, password: str) -> None:
        self._dial, self._port = dial, port
        token = base64.b64encode(f"opencode:{password}".encode()).decode()
        self._headers = [("host", "127.0.0.1"), ("authorization", f"Basic {token}"), ("connection", "close")]

    async def call(self, method: str, path: str, body: Json | bytes | None = None) -> bytes:
        """The body of the answer. Raises ``Refused``, and ``HarnessStuck`` if the server does not answer."""
        sent = body if isinstance(body, bytes) else b"" if body is None else encode(body)
        for attempt in range(_TRIES):
            try:
                with anyio.fail_after(_PATIENCE_SECONDS):
                    return await self._once(method, path, sent)
            except (Broken, TimeoutError):
                await clock.sleep(_PAUSE_SECONDS * (1 + attempt))  # if it has ended, others say so first
        raise HarnessStuck(f"the harness's server does not answer {method} {path}")

    async def json(self, method: str, path: str, body: Json | bytes | None = None) -> object:
        """The same, read."""
        return value(await self.call(method, path, body))

    async def working(self) -> Json:
        """The sessions that work by the harness's own account, ours and those of subagents."""
        return mapping(await self.json("GET", "/session/status"))

    async def events(self, path: str) -> AsyncGenerator[Json]:
        """Server-sent events, until the connection ends. The first thing given is empty: it stands. Raises
        ``Broken`` and ``Refused``."""
        stream = await self._dial(self._port)
        try:
            http = h11.Connection(h11.CLIENT)
            await self._send(stream, http, "GET", path, b"")
            await self._head(stream, http)
            yield {}
            lines = Lines()
            async for data in self._data(stream, http):
                for _, line in lines.feed(data):
                    event = decode(line[5:]) if line.startswith(b"data:") else None
                    if event is not None:
                        yield event
        finally:
            await anyio.aclose_forcefully(stream)

    async def _once(self, method: str, path: str, body: bytes) -> bytes:
        stream = await self._dial(self._port)
        try:
            http = h11.Connection(h11.CLIENT)
            await self._send(stream, http, method, path, body)
            await self._head(stream, http)
            return b"".join([data async for data in self._data(stream, http)])
        finally:
            await anyio.aclose_forcefully(stream)

    async def _send(
        self, stream: ByteStream, http: h11.Connection, method: str, path: str, body: bytes
    ) -> None:
        headers = [*self._headers, ("content-type", "application/json"), ("content-length", str(len(body)))]
        head = http.send(h11.Request(method=method, target=path, headers=headers)) or b""
        rest = (http.send(h11.Data(data=body)) or b"") + (http.send(h11.EndOfMessage()) or b"")
        try:
            await stream.send(head + rest)
        except (anyio.BrokenResourceError, anyio.ClosedResourceError):
            raise Broken from None

    async def _head(self, stream: ByteStream, http: h11.Connection) -> Mapping[bytes, bytes]:
        """Raises ``Refused`` for an answer that is no success."""
        event = await self._next(stream, http)
        while isinstance(event, h11.InformationalResponse):
            event = await self._next(stream, http)
        if not isinstance(event, h11.Response):
            raise Broken
        if not 200 <= event.status_code < 300:
            said = b"".join([data async for data in self._data(stream, http)])
            raise Refused(event.status_code, said.decode("utf-8", "replace"))
        return dict(event.headers)

    async def _data(self, stream: ByteStream, http: h11.Connection) -> AsyncGenerator[bytes]:
        while not isinstance(event := await self._next(stream, http), h11.EndOfMessage):
            if not isinstance(event, h11.Data):
                raise Broken
            yield bytes(event.data)

    async def _next(self, stream: ByteStream, http: h11.Connection) -> object:
        try:
            while (event := http.next_event()) is h11.NEED_DATA:
                try:
                    data = await stream.receive(_CHUNK)
                except anyio.EndOfStream:
                    data = b""
                except (anyio.BrokenResourceError, anyio.ClosedResourceError):
                    raise Broken from None
                http.receive_data(data)
        except h11.RemoteProtocolError:
            raise Broken from None
        return event
