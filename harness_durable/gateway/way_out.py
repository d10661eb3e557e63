"""The way out of a harness behind a wall: an HTTP proxy for the hosts that its session allows.

A harness without a network sends its other requests to the relay, too, as to a proxy. What surprises: this is
no part of what is durable. What goes through here is not recorded, and is cut when the worker dies; a request
that no answer came for is given to the next worker like any other.
"""

from __future__ import annotations

import contextlib
import logging
import socket
from collections.abc import AsyncIterator
from urllib.parse import urlsplit

import anyio
import h11
from anyio.abc import ByteStream, SocketStream

from harness_durable.allowlist import AllowList
from harness_durable.errors import KeeperGone
from harness_durable.gateway.connection import Connection, HungUp, Malformed, Proxied
from harness_durable.sandbox import Request

log = logging.getLogger("harness_durable.gateway")

_CONNECT_SECONDS = 20.0
_CHUNK = 256 << 10
_OURS = frozenset({b"connection", b"host", b"keep-alive", b"proxy-authorization", b"proxy-connection"})
"""Headers that a proxy does not pass on as they are. With another ``Host`` one could reach others than the
one that was judged, where several share an address."""


class _Refused(Exception):
    def __init__(self, status: int, sentence: str) -> None:
        self.status = status
        super().__init__(sentence)


class WayOut:
    """``allowed`` may be empty: then each request is refused, with a sentence that says why."""

    def __init__(self, allowed: AllowList) -> None:
        self._allowed = allowed

    async def serve_all(self, requests: AsyncIterator[Request]) -> None:
        """For a command without a gateway: until its keeper is gone. Whatever else it asks for is refused."""
        async with anyio.create_task_group() as tasks:
            try:
                async for request in requests:
                    tasks.start_soon(self._serve_one, request)
            except KeeperGone:
                return

    async def _serve_one(self, request: Request) -> None:
        connection = Connection(request.stream)
        try:
            await connection.read()
            await connection.send(404, [], b"")
        except Proxied as proxied:
            with contextlib.suppress(HungUp):
                await self.serve(request.stream, proxied)
                await request.done()
        except (HungUp, Malformed):
            return
        finally:
            await anyio.aclose_forcefully(request.stream)

    async def serve(self, stream: ByteStream, proxied: Proxied) -> None:
        """Join the harness with the host that it asks for, until both have said all. Raises ``HungUp`` if one
        of them went away before."""
        try:
            host, port, first = _wanted(proxied)
            remote = await self._connected(host, port)
        except _Refused as refused:
            log.info("a harness was refused a way out: %s", refused)
            await _send(stream, _answer(refused.status, str(refused)))
            return
        try:
            if proxied.method == "CONNECT":
                await _send(stream, b"HTTP/1.1 200 Connection established\r\n\r\n")
            await _send(remote, first + proxied.early)
            await _join(stream, remote)
        finally:
            await anyio.aclose_forcefully(remote)

    async def _connected(self, host: str, port: int) -> SocketStream:
        """By an address that was judged: a second look at the name could give another one."""
        rule = self._allowed.rule(host, port)
        if rule is None:
            raise _Refused(
                403,
                f"{host}:{port} is not on the list of hosts that this session may reach; "
                "whoever makes the session can name it there (sandbox option allow)",
            )
        try:
            found = await anyio.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        except OSError as error:
            raise _Refused(502, f"{host} was not found: {error}") from error
        addresses = [address for *_, (address, *_) in found if rule.may_reach(str(address))]
        if not addresses:
            raise _Refused(
                403,
                f"{host} is on a private network; whoever makes the session can allow that "
                "(sandbox option allow_private)",
            )
        trouble: Exception | None = None
        for address in dict.fromkeys(addresses):
            try:
                with anyio.fail_after(_CONNECT_SECONDS):
                    return await anyio.connect_tcp(str(address), port)
            except (OSError, TimeoutError) as error:
                trouble = error
        raise _Refused(502, f"{host}:{port} cannot be reached: {trouble or 'no answer'}")


def _wanted(proxied: Proxied) -> tuple[str, int, bytes]:
    """Host, port, and what is to be sent there first. Raises ``_Refused``."""
    bad = _Refused(400, "a proxy serves CONNECT HOST:PORT and http:// addresses; nothing else")
    connect = proxied.method == "CONNECT"
    try:
        url = urlsplit(f"//{proxied.target}" if connect else proxied.target)
        host, port = url.hostname or "", url.port or (0 if connect else 80)
    except ValueError:
        raise bad from None
    if not host or not port or url.username is not None or (not connect and url.scheme != "http"):
        raise bad
    if connect:
        return host, port, b""
    target = (url.path or "/") + (f"?{url.query}" if url.query else "")
    lines = [f"{proxied.method} {target} HTTP/1.1".encode("ascii"), f"host: {url.netloc}".encode("ascii")]
    lines += [name + b": " + value for name, value in proxied.headers if name.lower() not in _OURS]
    return host, port, b"\r\n".join([*lines, b"connection: close", b"", b""])


async def _join(stream: ByteStream, remote: ByteStream) -> None:
    """Carry bytes both ways. The end of the remote's answer is the end."""
    try:
        async with anyio.create_task_group() as tasks:

            async def up() -> None:
                await _pour(stream, remote)
                await remote.send_eof()

            tasks.start_soon(up)
            await _pour(remote, stream)
            tasks.cancel_scope.cancel()
    except* (anyio.BrokenResourceError, anyio.ClosedResourceError):
        raise HungUp from None


async def _pour(source: ByteStream, sink: ByteStream) -> None:
    try:
        while True:
            await sink.send(await source.receive(_CHUNK))
    except anyio.EndOfStream:
        return


async def _send(stream: ByteStream, data: bytes) -> None:
    try:
        if data:
            await stream.send(data)
    except (anyio.BrokenResourceError, anyio.ClosedResourceError):
        raise HungUp from None


def _answer(status: int, sentence: str) -> bytes:
    connection = h11.Connection(h11.SERVER)
    body = f"harness-durable: {sentence}\n".encode()
    headers = [
        ("content-type", "text/plain; charset=utf-8"),
        ("content-length", str(len(body))),
        ("connection", "close"),
    ]
    parts = (h11.Response(status_code=status, headers=headers), h11.Data(data=body), h11.EndOfMessage())
    return b"".join(connection.send(part) or b"" for part in parts)
