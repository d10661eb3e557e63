"""The way out of a harness behind a wall, as it is from inside: a proxy that knows a few names."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager

import anyio
import pytest
from anyio.abc import SocketAttribute, SocketStream

from harness_durable.allowlist import allow_list
from harness_durable.gateway.connection import Connection, HungUp, Proxied
from harness_durable.gateway.way_out import WayOut


@asynccontextmanager
async def listening(handle: Callable[[SocketStream], Awaitable[None]]) -> AsyncGenerator[int]:
    """A server of this machine; its port."""
    listener = await anyio.create_tcp_listener(local_host="127.0.0.1")
    async with listener, anyio.create_task_group() as tasks:
        tasks.start_soon(listener.serve, handle)
        yield int(listener.extra(SocketAttribute.local_port))
        tasks.cancel_scope.cancel()


async def echo(stream: SocketStream) -> None:
    """Says back what it hears, then ends."""
    async with stream:
        heard = b""
        async for data in stream:
            heard += data
            if heard.endswith((b"\r\n\r\n", b"bye", b"body")):
                break
        await stream.send(b"<" + heard + b">")


@asynccontextmanager
async def proxy(allow: str = "", private: str = "") -> AsyncGenerator[int]:
    way_out = WayOut(allow_list(allow, private))

    async def handle(stream: SocketStream) -> None:
        async with stream:
            try:
                await Connection(stream).read()
            except Proxied as proxied:
                try:
                    await way_out.serve(stream, proxied)
                except HungUp:
                    return

    async with listening(handle) as port:
        yield port


async def asked(port: int, *parts: bytes) -> bytes:
    """All that the proxy says."""
    with anyio.fail_after(20):
        async with await anyio.connect_tcp("127.0.0.1", port) as stream:
            said = b""
            for part in parts:
                await stream.send(part)
                if len(parts) > 1 and part is parts[0]:
                    said += await stream.receive()
            async for data in stream:
                said += data
            return said


async def test_a_tunnel_carries_whatever_is_said_in_it() -> None:
    async with listening(echo) as there, proxy(private=f"localhost:{there}") as port:
        head = b"CONNECT localhost:%d HTTP/1.1\r\nHost: localhost\r\n\r\n" % there
        said = await asked(port, head, b"\x00\xff any bytes, bye")
        assert said == b"HTTP/1.1 200 Connection established\r\n\r\n<\x00\xff any bytes, bye>"
        said = await asked(port, head + b"early bye")
        assert said.endswith(b"<early bye>"), "what came with the head is not lost"


async def test_a_plain_request_is_passed_on_without_what_is_the_proxy_s() -> None:
    async with listening(echo) as there, proxy(private=f"localhost:{there}") as port:
        said = await asked(
            port,
            b"POST http://localhost:%d/a?b=c HTTP/1.1\r\nHost: inside.test\r\nX-Mine: kept\r\n"
            b"Proxy-Authorization: secret\r\nConnection: keep-alive\r\nContent-Length: 4\r\n\r\nbody" % there,
        )
    assert said.startswith(b"<POST /a?b=c HTTP/1.1\r\n"), said
    assert b"X-Mine: kept" in said or b"x-mine: kept" in said
    assert b"secret" not in said
    assert b"inside.test" not in said, "another host of the same address, which nobody has judged"
    assert b"host: localhost:%d\r\n" % there in said
    assert b"keep-alive" not in said
    assert said.endswith(b"\r\n\r\nbody>")


@pytest.mark.parametrize(
    ("head", "status", "said"),
    [
        (b"CONNECT elsewhere.test:443", 403, b"not on the list"),
        (b"CONNECT localhost:22", 403, b"not on the list"),
        (b"CONNECT 127.0.0.1:443", 403, b"not on the list"),
        (b"CONNECT [::1]:443", 403, b"not on the list"),
        (b"CONNECT localhost:443", 403, b"private network"),
        (b"GET http://localhost/", 403, b"private network"),
        (b"GET http://169.254.169.254/latest", 403, b"not on the list"),
        (b"GET http://user@localhost/", 400, b"nothing else"),
        (b"GET https://localhost/", 400, b"nothing else"),
        (b"GET ftp://localhost/", 400, b"nothing else"),
        (b"CONNECT localhost", 400, b"nothing else"),
        (b"CONNECT localhost:0", 400, b"nothing else"),
        (b"CONNECT localhost:99999", 400, b"nothing else"),
        (b"CONNECT nobody.invalid:443", 502, b"not found"),
    ],
)
async def test_what_is_not_allowed_is_refused_with_a_reason(head: bytes, status: int, said: bytes) -> None:
    async with proxy("localhost nobody.invalid") as port:
        answer = await asked(port, head + b" HTTP/1.1\r\nHost: x\r\n\r\n")
    assert answer.startswith(b"HTTP/1.1 %d" % status), answer
    assert said in answer


async def test_a_host_that_does_not_answer_is_said_not_to() -> None:
    async with listening(echo) as there:
        pass
    async with proxy(private=f"localhost:{there}") as port:
        answer = await asked(port, b"CONNECT localhost:%d HTTP/1.1\r\nHost: x\r\n\r\n" % there)
    assert answer.startswith(b"HTTP/1.1 502")
    assert b"cannot be reached" in answer


async def test_a_harness_that_hangs_up_ends_its_tunnel() -> None:
    ended = anyio.Event()

    async def listen(stream: SocketStream) -> None:
        async with stream:
            async for _ in stream:
                pass
        ended.set()

    async with listening(listen) as there, proxy(private=f"localhost:{there}") as port:
        async with await anyio.connect_tcp("127.0.0.1", port) as stream:
            await stream.send(b"CONNECT localhost:%d HTTP/1.1\r\nHost: x\r\n\r\n" % there)
            await stream.receive()
        with anyio.fail_after(20):
            await ended.wait()
