"""One HTTP/1.1 exchange with the harness, over a connection taken from its keeper.

What surprises: nothing is kept alive. One connection is one request, so that "answered" is never ambiguous;
and as long as no byte was sent, the keeper can give the request to another worker."""

from __future__ import annotations

from collections.abc import Sequence

import anyio
import h11
import msgspec
from anyio.abc import ByteStream

MAX_BODY = 64 << 20
"""Bytes of a request's body; the keeper keeps no more of one, either."""

_MAX_HEAD = 256 << 10
_CHUNK = 256 << 10


class Malformed(Exception):
    """What was sent is no request that we can serve; ``status`` says so in HTTP."""

    def __init__(self, status: int, sentence: str) -> None:
        self.status = status
        super().__init__(sentence)


class Proxied(Exception):
    """A request that is for somebody else, as one sends it to a proxy. ``early`` is what came after its head.
    It was not read further."""

    def __init__(
        self, method: str, target: str, headers: Sequence[tuple[bytes, bytes]], early: bytes
    ) -> None:
        self.method, self.target, self.headers, self.early = method, target, headers, early
        super().__init__(f"{method} {target}")


class HungUp(Exception):
    """The harness closed the connection."""


class Incoming(msgspec.Struct, frozen=True):
    """A whole request. ``target`` is the path with its query; header names are in lower case."""

    method: str
    target: str
    headers: Sequence[tuple[str, str]]
    body: bytes

    @property
    def path(self) -> str:
        return self.target.partition("?")[0]

    @property
    def named(self) -> dict[str, str]:
        """Headers by name; of a repeated one, the last."""
        return dict(self.headers)


class Connection:
    """Reads one request and sends one response."""

    def __init__(self, stream: ByteStream) -> None:
        self.stream = self._stream = stream
        self._h11 = h11.Connection(h11.SERVER, max_incomplete_event_size=_MAX_HEAD)

    async def read(self) -> Incoming:
        """The request. Raises ``Malformed``, ``Proxied`` and ``HungUp``."""
        try:
            head = await self._next()
            if not isinstance(head, h11.Request):
                raise HungUp
            method, target = head.method.decode("ascii"), head.target.decode("ascii")
            if not target.startswith("/"):
                raise Proxied(method, target, list(head.headers), self._h11.trailing_data[0])
            body = await self._body()
        except h11.RemoteProtocolError as error:
            if self._h11.their_state is h11.ERROR and self._h11.trailing_data[1]:
                raise HungUp from None
            raise Malformed(error.error_status_hint, f"not a readable HTTP request: {error}") from None
        headers = [(name.decode("ascii"), value.decode("latin-1")) for name, value in head.headers]
        return Incoming(method, target, headers, body)

    async def send(self, status: int, headers: Sequence[tuple[str, str]], body: bytes) -> None:
        """The response. Raises ``HungUp``."""
        framing = [("content-length", str(len(body))), ("connection", "close")]
        encoded = [
            (name.encode(), value.encode("latin-1", "replace")) for name, value in [*headers, *framing]
        ]
        head = h11.Response(status_code=status, headers=encoded)
        parts = [
            self._h11.send(head),
            self._h11.send(h11.Data(data=body)),
            self._h11.send(h11.EndOfMessage()),
        ]
        try:
            await self._stream.send(b"".join(part for part in parts if part))
        except (anyio.BrokenResourceError, anyio.ClosedResourceError):
            raise HungUp from None

    async def until_hung_up(self) -> None:
        """Return when the harness has closed its side. What it sends meanwhile is not for us."""
        try:
            while True:
                await self._stream.receive(_CHUNK)
        except (anyio.EndOfStream, anyio.BrokenResourceError, anyio.ClosedResourceError):
            return

    async def _body(self) -> bytes:
        """All of it. A body that is too large is read to its end all the same, so that the harness gets to
        read our answer."""
        parts: list[bytes] = []
        size = 0
        while not isinstance(event := await self._next(), h11.EndOfMessage):
            if isinstance(event, h11.ConnectionClosed):
                raise HungUp
            if isinstance(event, h11.Data):
                size += len(event.data)
                if size > MAX_BODY:
                    parts.clear()
                else:
                    parts.append(bytes(event.data))
        if size > MAX_BODY:
            raise Malformed(413, f"the request has {size} bytes; at most {MAX_BODY} can be kept")
        return b"".join(parts)

    async def _next(self) -> object:
        """The next event of h11."""
        while (event := self._h11.next_event()) is h11.NEED_DATA:
            try:
                if self._h11.they_are_waiting_for_100_continue:
                    await self._stream.send(self._continue())
                data = await self._stream.receive(_CHUNK)
            except anyio.EndOfStream:
                data = b""
            except (anyio.BrokenResourceError, anyio.ClosedResourceError):
                raise HungUp from None
            self._h11.receive_data(data)
        return event

    def _continue(self) -> bytes:
        go_on = self._h11.send(h11.InformationalResponse(status_code=100, headers=[]))
        return go_on or b""
