"""One TCP connection: requests in, bytes out, and ways to hang up that a library would not offer.

h11 does the protocol; we keep the socket, because the point is to cut a stream at a chosen byte, by a
reset if asked. A client that closes its sending side counts as gone: no harness or gateway does that
and still waits for an answer.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import struct

import anyio
import h11
from msgspec import Struct

_READ = 65536


class Incoming(Struct, frozen=True):
    """One request as it came; header names in lower case."""

    method: str
    target: str
    headers: dict[str, str]
    body: bytes

    @property
    def path(self) -> str:
        """The target without its query."""
        return self.target.partition("?")[0]


class Link:
    """The server's side of one connection."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer
        self._http = h11.Connection(h11.SERVER)
        # drain() then means: handed to the kernel, nothing left in this process.
        writer.transport.set_write_buffer_limits(high=0)
        writer.get_extra_info("socket").setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    async def next_request(self) -> Incoming | None:
        """The next request, or None when the client has hung up (or speaks no HTTP)."""
        try:
            if self._http.our_state is h11.DONE:
                self._http.start_next_cycle()
            if self._http.our_state is not h11.IDLE:
                return None
            return await self._read_request()
        except (h11.RemoteProtocolError, h11.LocalProtocolError, OSError):
            return None

    async def _read_request(self) -> Incoming | None:
        head: h11.Request | None = None
        body = bytearray()
        while True:
            event = self._http.next_event()
            if event is h11.NEED_DATA:
                if self._http.they_are_waiting_for_100_continue:
                    await self.send(h11.InformationalResponse(status_code=100, headers=[]))
                self._http.receive_data(await self._reader.read(_READ))
            elif isinstance(event, h11.Request):
                head = event
            elif isinstance(event, h11.Data):
                body += event.data
            elif isinstance(event, h11.EndOfMessage) and head is not None:
                return Incoming(
                    method=head.method.decode("ascii"),
                    target=head.target.decode("latin-1"),
                    headers={k.decode("latin-1"): v.decode("latin-1") for k, v in head.headers},
                    body=bytes(body),
                )
            else:
                return None

    async def gone(self) -> None:
        """Return when the client hangs up; runs beside the sending. Early bytes are kept."""
        with contextlib.suppress(OSError):
            while data := await self._reader.read(_READ):
                self._http.receive_data(data)

    async def send(self, event: h11.Event) -> None:
        """Send one h11 event; returns when the kernel has all of it. Raises OSError."""
        self._writer.write(self._http.send(event) or b"")
        await self._writer.drain()

    async def respond(self, status: int, headers: dict[str, str], body: bytes) -> None:
        """A whole response with a length."""
        await self.start(status, headers | {"content-length": str(len(body))})
        await self.send(h11.Data(data=body))
        await self.send(h11.EndOfMessage())

    async def start(self, status: int, headers: dict[str, str]) -> None:
        """Status line and headers. Without ``content-length`` the body is sent in chunks."""
        await self.send(h11.Response(status_code=status, headers=list(headers.items())))

    async def cut(self, *, reset: bool) -> None:
        """Hang up now: politely (FIN), or with a reset, which drops what the client has not read."""
        if reset:
            linger = struct.pack("ii", 1, 0)
            sock = self._writer.get_extra_info("socket")
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
            self._writer.transport.abort()
        await self.close()

    @property
    def all_out(self) -> bool:
        """Whether a whole response was handed to the kernel and the connection still stands."""
        ended = self._http.our_state in (h11.DONE, h11.MUST_CLOSE)
        return ended and not self.closing and not self._writer.transport.get_write_buffer_size()

    @property
    def closing(self) -> bool:
        """Whether this side has hung up."""
        return self._writer.is_closing()

    async def close(self) -> None:
        """Close and wait until it is closed, also when cancelled; harmless when repeated.

        A client that does not read must not hold us up: what the kernel has not taken is dropped.
        """
        if self._writer.transport.get_write_buffer_size():
            self._writer.transport.abort()
        self._writer.close()
        with anyio.CancelScope(shield=True), contextlib.suppress(OSError):
            await self._writer.wait_closed()
