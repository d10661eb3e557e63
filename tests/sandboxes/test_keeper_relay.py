"""The relay's limits, and what becomes of requests that somebody gives up."""

from __future__ import annotations

import resource
import select
import socket
from collections.abc import Generator
from contextlib import closing, contextmanager
from pathlib import Path

import anyio
import pytest
from anyio.abc import ByteStream, SocketStream

from harness_durable_sandboxes.keeper import CHUNK
from harness_durable_sandboxes.link import KeeperLink
from tests.sandboxes.keeper_kit import attached, life, taken, until

MB = 1 << 20


async def ask(port: int) -> SocketStream:
    return await anyio.connect_tcp("127.0.0.1", port)


@contextmanager
def stuffed(port: int) -> Generator[int]:
    """A client that sends until nobody takes any more; gives how much that was."""
    with closing(socket.create_connection(("127.0.0.1", port))) as client:
        client.setblocking(False)
        yield _stuff(client)


def _stuff(client: socket.socket) -> int:
    """Stops when the other side has not read for a while, as far as the kernel's buffers tell."""
    sent = 0
    while select.select([], [client], [], 0.3)[1]:
        sent += client.send(b"x" * 65536)
    return sent


async def port_of(link: KeeperLink) -> int:
    return int((await link.status())["port"])


async def kept(link: KeeperLink) -> int:
    return int((await link.status())["kept"])


async def held(link: KeeperLink) -> list[int]:
    ids: list[int] = (await link.status())["held"]
    return ids


async def read_all(stream: ByteStream) -> bytes:
    got = b""
    with pytest.raises(anyio.EndOfStream):
        while True:
            got += await stream.receive()
    return got


async def test_the_bytes_kept_of_one_request_are_limited(tmp_path: Path) -> None:
    async with (
        life(tmp_path / "run", "cat", caps=[MB, 100 * MB]) as one,
        attached(one) as link,
    ):
        with stuffed(await port_of(link)) as sent:
            assert sent > MB
            assert MB - 2 * CHUNK < await kept(link) <= MB
            request = await taken(link)  # a worker's memory is not the keeper's: it flows again
            seen = 0
            while seen < sent:
                seen += len(await request.stream.receive())
            assert seen == sent
            assert await kept(link) == 0, "what can no longer be offered again is still kept"
            await request.stream.aclose()


async def test_the_bytes_kept_of_all_requests_are_limited(tmp_path: Path) -> None:
    async with (
        life(tmp_path / "run", "cat", caps=[MB, 2 * MB]) as one,
        attached(one) as link,
    ):
        port = await port_of(link)
        with stuffed(port), stuffed(port), stuffed(port), stuffed(port):
            assert MB < await kept(link) <= 2 * MB
            assert len(await held(link)) == 4
        for _ in range(4):  # whoever is not read cannot be seen to have left, until it is taken
            request = await taken(link)
            await read_all(request.stream)
            await request.stream.aclose()
        assert await kept(link) == 0
        assert not await held(link)


async def test_the_number_of_connections_is_limited(tmp_path: Path) -> None:
    async with life(tmp_path / "run", "cat") as one, attached(one) as link:
        port = await port_of(link)
        clients = [await ask(port) for _ in range(300)]
        assert len(await held(link)) == 256
        for client in clients[:100]:
            await client.aclose()
        await until(lambda: _count(link, 200))
        for client in clients[100:]:
            await client.aclose()
        await until(lambda: _count(link, 0))


async def _count(link: KeeperLink, number: int) -> bool:
    return len(await held(link)) == number


async def test_a_client_that_leaves_while_held_is_not_offered(tmp_path: Path) -> None:
    async with life(tmp_path / "run", "cat") as one:
        async with attached(one) as first:
            port = await port_of(first)
        ghost, real = await ask(port), await ask(port)
        await ghost.send(b"ghost")
        await real.send(b"real")
        await ghost.aclose()
        async with attached(one, 2) as link:
            await until(lambda: _count(link, 1))
            request = await taken(link)
            assert await request.stream.receive() == b"real"
            await request.stream.send(b"yes")
            await request.done()
            assert await read_all(real) == b"yes"
        await real.aclose()


async def test_a_client_that_leaves_while_taken_is_seen_to_leave(tmp_path: Path) -> None:
    async with life(tmp_path / "run", "cat") as one, attached(one) as link:
        client = await ask(await port_of(link))
        await client.send(b"question")
        request = await taken(link)
        assert await request.stream.receive() == b"question"
        await client.aclose()
        with pytest.raises(anyio.EndOfStream):
            await request.stream.receive()
        await request.stream.aclose()


async def test_a_request_that_a_living_worker_gives_up_is_reset(tmp_path: Path) -> None:
    async with life(tmp_path / "run", "cat") as one, attached(one) as link:
        client = await ask(await port_of(link))
        await client.send(b"question")
        request = await taken(link)
        await request.stream.aclose()
        with pytest.raises(anyio.BrokenResourceError):
            await client.receive()
        await client.aclose()


async def test_a_worker_that_closes_before_it_says_done_has_answered(tmp_path: Path) -> None:
    async with life(tmp_path / "run", "cat") as one, attached(one) as link:
        client = await ask(await port_of(link))
        await client.send(b"question")
        request = await taken(link)
        await request.stream.send(b"answer")
        await request.stream.aclose()
        await request.done()
        assert await read_all(client) == b"answer"
        await client.aclose()


async def test_a_finished_answer_reaches_a_slow_reader_whole(tmp_path: Path) -> None:
    """``done``, and the worker's end, overtake the answer on its way."""
    answer = bytes(range(256)) * (12 * MB // 256)
    async with life(tmp_path / "run", "cat") as one, attached(one) as link:
        client = await ask(await port_of(link))
        await client.send(b"question")
        request = await taken(link)
        got, finished = bytearray(), anyio.Event()

        async def answering() -> None:
            await request.stream.send(answer)
            await request.done()
            async with attached(one, 2):
                finished.set()

        async with anyio.create_task_group() as group:
            group.start_soon(answering)
            while not finished.is_set():
                got += await client.receive()
                await anyio.sleep(0.002)
        assert len(got) < len(answer), "the reader was not slow enough for this test"
        got += await read_all(client)
        await client.aclose()
        assert bytes(got) == answer


async def test_a_slow_reader_does_not_fill_the_keeper(tmp_path: Path) -> None:
    async with life(tmp_path / "run", "cat") as one, attached(one) as link:
        client = await ask(await port_of(link))
        await client.send(b"question")
        request = await taken(link)
        before = _memory(link)
        with anyio.move_on_after(0.5) as limit:  # nobody reads: it must block, not fill memory
            for _ in range(200):
                await request.stream.send(b"z" * MB)
        assert limit.cancelled_caught
        assert _memory(link) - before < 10 * MB
        await request.stream.aclose()
        await client.aclose()


def _memory(link: KeeperLink) -> int:
    text = Path(f"/proc/{link.keeper_pid}/statm").read_text()
    return int(text.split()[1]) * resource.getpagesize()
