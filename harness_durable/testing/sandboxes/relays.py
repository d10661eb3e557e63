"""Checks of the relay: what a harness asks for is held, offered again, answered, or reset."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import cast

import anyio

from harness_durable.sandbox import LifeRef, Link, Request
from harness_durable.testing.sandboxes.bench import PATIENCE, Bench, expect, said_by

_ASK = """
import socket, sys
with socket.create_connection(("127.0.0.1", int(sys.argv[1]))) as s:
    s.sendall(b"ask" + b"." * int(sys.argv[2]) + b"\\n")
    print("asked", flush=True)
    got, end = b"", "end"
    try:
        while data := s.recv(65536):
            got += data
            print("data", flush=True)
    except ConnectionResetError:
        end = "reset"
    print("<" + got.decode() + ">", end, flush=True)
sys.stdin.read(1)
"""


async def _ask(b: Bench, size: int = 0) -> tuple[LifeRef, Link]:
    return await b.start(b.spec(b.place.python, "-c", _ASK, "@PORT@", str(size)))


async def _taken(link: Link) -> Request:
    with anyio.fail_after(PATIENCE):
        requests = cast("AsyncGenerator[Request]", link.requests())
        async with aclosing(requests):
            return await anext(requests)


async def _read(request: Request, size: int = 0) -> None:
    """The request from its first byte."""
    want, seen = b"ask" + b"." * size + b"\n", bytearray()
    with anyio.fail_after(PATIENCE):
        while len(seen) < len(want):
            seen += await request.stream.receive()
    expect(bytes(seen) == want, f"the request came as {bytes(seen[:40])!r}, {len(seen)} bytes")


async def an_answer_goes_through(b: Bench) -> str:
    _, link = await _ask(b, 3_000_000)
    request = await _taken(link)
    await _read(request, 3_000_000)
    answer = "y" * 2_000_000
    await request.stream.send(answer.encode())
    await request.done()
    await said_by(link, f"<{answer}> end\n".encode())
    return "a request of 3 MB, an answer of 2 MB, and its end"


async def a_held_request_waits(b: Bench) -> str:
    ref, first = await _ask(b, 100_000)
    await said_by(first, b"asked")
    await first.aclose()
    second = await b.attach(ref, 2)
    request = await _taken(second)
    await _read(request, 100_000)
    await request.stream.send(b"late")
    await request.done()
    await said_by(second, b"<late> end\n")
    return "asked while nobody was there, answered by the next worker"


async def an_unanswered_request_is_offered_again(b: Bench) -> str:
    ref, link = await _ask(b, 100_000)
    for epoch in (2, 3):
        request = await _taken(link)
        await _read(request, 100_000)
        if epoch == 2:  # one worker goes, the other is superseded
            await link.aclose()
            await request.stream.aclose()
        link = await b.attach(ref, epoch)
        await request.stream.aclose()
    request = await _taken(link)
    await _read(request, 100_000)
    await request.stream.send(b"third")
    await request.done()
    await said_by(link, b"<third> end\n")
    return "two workers took it and left; the third got it from its first byte"


async def a_begun_answer_is_reset(b: Bench) -> str:
    ref, first = await _ask(b)
    request = await _taken(first)
    await _read(request)
    await request.stream.send(b"half")
    await said_by(first, b"data\n")
    await first.aclose()
    await request.stream.aclose()
    second = await b.attach(ref, 2)
    await said_by(second, b"<half> reset\n")
    return "the harness saw a reset, not an end"


async def a_finished_answer_is_not_reset(b: Bench) -> str:
    ref, first = await _ask(b)
    request = await _taken(first)
    await _read(request)
    await request.stream.send(b"whole")
    await request.done()
    await first.aclose()
    second = await b.attach(ref, 2)
    await said_by(second, b"<whole> end\n")
    return "a worker that said done may leave at once"


_SERVE = """
import socket, sys
with socket.create_server(("127.0.0.1", 0)) as server:
    print(server.getsockname()[1], flush=True)
    while True:
        connection, _ = server.accept()
        with connection:
            got = b""
            while data := connection.recv(65536):
                got += data
            connection.sendall(str(len(got)).encode())
"""


async def a_server_of_the_harness_is_reached(b: Bench) -> str:
    ref, first = await b.start(b.spec(b.place.python, "-c", _SERVE))
    _, said = await said_by(first, b"\n")
    port = int(said)
    expect(await _told(first, port, b"x" * 2_000_000) == b"2000000", "its answer did not come back")
    second = await b.attach(ref, 2)
    expect(await _told(second, port, b"again") == b"5", "the next worker did not reach it")
    try:
        nothing = await _told(second, 1, b"?")
    except (anyio.BrokenResourceError, anyio.ClosedResourceError):
        nothing = b""
    expect(nothing == b"", "something answered where nobody listens")
    return "2 MB to a server of the harness, also by the next worker; where nobody listens, it ends"


async def _told(link: Link, port: int, sent: bytes) -> bytes:
    """All that a server says to this."""
    got = b""
    with anyio.fail_after(PATIENCE):
        stream = await link.dial(port)
        try:
            await stream.send(sent)
            await stream.send_eof()
            async for data in stream:
                got += data
        finally:
            await anyio.aclose_forcefully(stream)
    return got
