"""What the gateway adds to a model call: at its end, where a response with a tool call waits for the log, and
at its beginning, until somebody else sees the text.

An append beside it is of the very bytes of the response, after a pause as long as the response takes.

What surprises: the provider here is a few lines that note when they wrote what, in this same process, so that
one clock tells how long a byte was under way. Who follows is another handle of the World, as another process
would have it, that looks every few milliseconds.
"""

from __future__ import annotations

import json
import os
import statistics
import tempfile
import time
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

import anyio
import msgspec
from anyio.abc import ByteStream, SocketAttribute

from bench.driving import Server
from bench.measure import Options, Result, Table, interleaved
from harness_durable.gateway import Gateway, Upstream, wire
from harness_durable.payload import pack
from harness_durable.runtime.progress import ProgressWriter, shown
from harness_durable.world import Record, RowUpdate, World
from harness_durable.worlds import open_world
from tests.unit.gateway_kit import KEY, TOKEN, Rig, body, classify
from tests.unit.memory_world import MemoryWorld
from tests.unit.session_kit import SESSION, begun

NAME = "gateway"
CASES = {
    "80 KB, paced": (80 << 10, 64, 5),
    "80 KB at once": (80 << 10, 64, 5),
    "5 MB at once": (5 << 20, 512, 1),
}
"""Bytes of text, characters of each event, and how often in a round."""
WORLDS = ("file", "sqlite", "postgresql")
PACED, PACE_SECONDS = 32, 0.01
"""Events that arrive together, and how long after them the next ones do: faster than any model."""
LOOK_SECONDS = 0.002
TOKENS, TOKEN_SECONDS = 40, 0.02


def event(kind: str, **facts: object) -> bytes:
    return f"event: {kind}\ndata: {json.dumps({'type': kind, **facts})}\n\n".encode()


def response(texts: Sequence[str]) -> list[bytes]:
    """The events of a response that says so, piece by piece, and then asks for a tool."""
    usage = {"input_tokens": 9, "output_tokens": 9}
    message: dict[str, object] = {
        "id": "msg_1",
        "type": "message",
        "role": "assistant",
        "model": "model-x",
        "content": [],
    }
    tool: dict[str, object] = {
        "type": "tool_use",
        "id": f"toolu_{time.perf_counter_ns()}",
        "name": "Bash",
        "input": {},
    }
    given = {"type": "input_json_delta", "partial_json": '{"command":"true"}'}
    return [
        event(
            "message_start", message=message | {"stop_reason": None, "stop_sequence": None, "usage": usage}
        ),
        event("content_block_start", index=0, content_block={"type": "text", "text": ""}),
        *(
            event("content_block_delta", index=0, delta={"type": "text_delta", "text": text})
            for text in texts
        ),
        event("content_block_stop", index=0),
        event("content_block_start", index=1, content_block=tool),
        event("content_block_delta", index=1, delta=given),
        event("content_block_stop", index=1),
        event("message_delta", delta={"stop_reason": "tool_use", "stop_sequence": None}, usage=usage),
        event("message_stop"),
    ]


class Provider:
    """Streams ``events`` to whoever asks, with a pause of so many seconds after each ``together`` of them;
    ``written``: when each had gone out."""

    def __init__(self) -> None:
        self.events: list[bytes] = []
        self.pause, self.together = 0.0, 1
        self.written: list[float] = []

    async def serve(self, stream: ByteStream) -> None:
        async with stream:
            await _request(stream)
            self.written = []
            head = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
            await stream.send(head)
            for number, each in enumerate(self.events):
                await stream.send(b"%x\r\n%s\r\n" % (len(each), each))
                self.written.append(time.perf_counter())
                if self.pause and number % self.together == 0:
                    await anyio.sleep(self.pause)
            await stream.send(b"0\r\n\r\n")


async def _request(stream: ByteStream) -> None:
    """Read all of it."""
    got = b""
    while b"\r\n\r\n" not in got:
        got += await stream.receive()
    head, _, rest = got.partition(b"\r\n\r\n")
    lines = (line.partition(b":") for line in head.lower().split(b"\r\n"))
    left = next(int(value) for name, _, value in lines if name == b"content-length") - len(rest)
    while left > 0:
        left -= len(await stream.receive())


@asynccontextmanager
async def opened(url: str) -> AsyncGenerator[tuple[Provider, Rig, World]]:
    """A provider, a gateway before it in a turn that runs, and its World."""
    world, provider = await open_world(url, "bench"), Provider()
    try:
        journal = await begun(world)
        writer = ProgressWriter(world, SESSION)
        async with (
            await anyio.create_tcp_listener(local_host="127.0.0.1") as listener,
            anyio.create_task_group() as tasks,
        ):
            tasks.start_soon(listener.serve, provider.serve)
            tasks.start_soon(writer.run)
            ready = anyio.Event()
            ready.set()
            made = Gateway(
                journal=journal,
                wire=wire("anthropic"),
                upstream=Upstream(f"http://127.0.0.1:{listener.extra(SocketAttribute.local_port)}", KEY),
                life="L1",
                token=TOKEN,
                ready=ready,
                classify=classify,
                on_progress=writer.model,
            )
            rig = Rig(journal, MemoryWorld(), made, ready, [])
            tasks.start_soon(rig.serve)
            yield provider, rig, world
            rig.give.close()
            await rig.ended.wait()
            tasks.cancel_scope.cancel()
    finally:
        await world.aclose()


async def ended(rig: Rig, name: str) -> float:
    """When the harness had all of the response."""
    sent, last = await rig.start(body(name)), 0.0
    size = 0
    try:
        while True:
            size += len(await sent.stream.receive())
            last = time.perf_counter()
    except anyio.EndOfStream:
        await sent.stream.aclose()
    assert size > 1000, f"the gateway answered with {size} bytes"
    return last


class Beside:
    """A session that nobody drives, for appends of bytes alone."""

    def __init__(self, world: World) -> None:
        self._world, self._head = world, 1

    async def begin(self) -> None:
        first = Record(os.urandom(8).hex(), "bench.note", 1, b"{}")
        await self._world.create("beside", [first], RowUpdate("parked", None))
        await self.append_ms(b"x")

    async def append_ms(self, body: bytes) -> float:
        """One durable append of these bytes, once they are packed as the log packs everything: that is the
        gateway's own work."""
        packed = pack(body)
        note = Record(os.urandom(8).hex(), "bench.note", 1, msgspec.json.encode(packed.payload))
        began = time.perf_counter()
        self._head = await self._world.append(
            "beside", expected_head=self._head, epoch=0, records=[note], blobs=packed.blobs
        )
        return (time.perf_counter() - began) * 1000


async def seen_ms(provider: Provider, rig: Rig, url: str, name: str) -> tuple[float, float]:
    """Of a text that arrives piece by piece: until its first piece is seen by a follower, and the median of
    all pieces. Milliseconds."""
    provider.events = response([f"<{n}>" for n in range(TOKENS)])
    provider.pause, provider.together = TOKEN_SECONDS, 1
    seen: dict[int, float] = {}
    follower = await open_world(url, "bench")

    async def follow() -> None:
        while True:
            text = shown(await follower.progress(SESSION)).text
            for number in range(len(seen), text.count(">")):
                seen[number] = time.perf_counter()
            await anyio.sleep(LOOK_SECONDS)

    try:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(follow)
            await ended(rig, name)
            tasks.cancel_scope.cancel()
    finally:
        provider.pause = 0.0
        await follower.aclose()
    late = sorted((when - provider.written[number + 2]) * 1000 for number, when in seen.items())
    return (seen[0] - provider.written[2]) * 1000, late[len(late) // 2]


async def one_round(url: str, name: str, tables: dict[str, Table]) -> None:
    async with opened(url) as (provider, rig, world):
        beside = Beside(world)
        await beside.begin()
        small = [await beside.append_ms(os.urandom(512).hex().encode()) for _ in range(7)]
        tables["end"].add(name, "one append of 1 KB", statistics.median(small))
        for case, (size, piece, times) in CASES.items():
            provider.pause, provider.together = (PACE_SECONDS, PACED) if "paced" in case else (0.0, 1)
            late, plain = list[float](), list[float]()
            for number in range(times):
                provider.events = response([os.urandom(piece // 2).hex() for _ in range(size // piece)])
                # As long as the response will take to arrive: who has slept wakes up more slowly.
                await anyio.sleep(provider.pause * len(provider.events) / provider.together)
                plain.append(await beside.append_ms(b"".join(provider.events)))
                last = await ended(rig, f"{case} {number}")
                late.append((last - provider.written[-1]) * 1000)
            tables["end"].add(name, case, statistics.median(late))
            if size == 80 << 10:
                tables["end"].add(name, f"one append of {case}", statistics.median(plain))
                beyond = statistics.median(a - b for a, b in zip(late, plain, strict=True))
                tables["beyond"].add(name, case, beyond)
        first, middle = await seen_ms(provider, rig, url, "tokens")
        tables["follower"].add(name, "first text", first)
        tables["follower"].add(name, "all text, median", middle)


def run(options: Options) -> Result:
    rounds = options.rounds or (2 if options.quick else 7)
    tables = {
        "end": Table("end", "From the provider's last byte to the harness's last byte", "ms", False),
        "beyond": Table("beyond", "The same, less one append of the same bytes just before", "ms", False),
        "follower": Table("follower", "From a text's arrival until a follower sees it", "ms", False),
    }
    names = options.of(WORLDS)
    with tempfile.TemporaryDirectory(prefix="hd-bench-") as folder:
        server = Server() if "postgresql" in names else None
        try:
            for number, name in interleaved(names, rounds):
                options.say(f"gateway: round {number + 1} of {rounds}: {name}")
                url = f"{name}:{Path(folder, f'{name}{number}')}"
                if name == "postgresql" and server is not None:
                    url = server.fresh()
                anyio.run(partial(one_round, url, name, tables))
        finally:
            if server is not None:
                server.close()
    for table in tables.values():
        table.sort(names)
    return Result(NAME, rounds, quick=options.quick, tables=list(tables.values()))
