"""What the keeper costs: ``python bench/keeper.py [ROUNDS]``. Not part of the wheel.

Compares with the same thing without a keeper, in ratios, since absolute times say more about the
machine and its other work than about the keeper.
"""

from __future__ import annotations

import json
import statistics
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path

import anyio
from anyio.abc import ByteStream, SocketAttribute, TaskStatus

from harness_durable.sandbox import LifeRef, LifeSpec
from harness_durable_sandboxes.link import KeeperLink, attach
from harness_durable_sandboxes.local import LocalSandbox

ENV = {"PATH": "/usr/local/bin:/usr/bin:/bin"}


def life(name: str) -> LifeSpec:
    return LifeSpec(name, "bench", ("cat",), ENV, "/", {}, "token")


async def timed(rounds: int, work: Callable[[], Awaitable[object]]) -> list[float]:
    """Seconds, sorted."""
    times: list[float] = []
    for _ in range(rounds):
        began = time.perf_counter()
        await work()
        times.append(time.perf_counter() - began)
    return sorted(times)


def row(name: str, times: list[float], than: list[float] | None = None) -> None:
    middle, late = statistics.median(times), times[int(len(times) * 0.95)]
    ratio = f"{middle / statistics.median(than):8.1f} x" if than else ""
    print(f"{name:44} {middle * 1000:9.3f} {late * 1000:9.3f} {ratio}")


async def answer(stream: ByteStream, size: int) -> None:
    got = 0
    while got < size:
        got += len(await stream.receive())
    await stream.send(b"y" * 100)


async def ask(port: int, size: int) -> None:
    async with await anyio.connect_tcp("127.0.0.1", port) as stream:
        await stream.send(b"x" * size)
        got = 0
        while got < 100:
            got += len(await stream.receive())


async def requests(link: KeeperLink, port: int, rounds: int) -> None:
    for size, name in ((100, "100 B"), (80_000, "80 KB"), (1_000_000, "1 MB")):
        async with anyio.create_task_group() as group:
            direct = await group.start(serve, size)
            group.start_soon(serve_through, link, size)
            base = await timed(rounds, partial(ask, direct, size))
            row(f"request {name}, direct", base)
            through = await timed(rounds, partial(ask, port, size))
            row(f"request {name}, through the keeper", through, base)
            group.cancel_scope.cancel()


async def serve(size: int, *, task_status: TaskStatus[int]) -> None:
    async def one(stream: ByteStream) -> None:
        async with stream:
            await answer(stream, size)

    async with await anyio.create_tcp_listener(local_host="127.0.0.1") as listener:
        task_status.started(int(listener.extra(SocketAttribute.local_port)))
        await listener.serve(one)


async def serve_through(link: KeeperLink, size: int) -> None:
    async for request in link.requests():
        await answer(request.stream, size)
        await request.done()


async def lines(link: KeeperLink, rounds: int) -> None:
    process = await anyio.open_process(["cat"])
    assert process.stdin and process.stdout
    sink, source = process.stdin, process.stdout

    async def direct() -> None:
        await sink.send(b"line\n")
        await source.receive()

    offset = 0

    async def through() -> None:
        nonlocal offset
        await link.write(b"line\n")
        async for after, _ in link.output(offset):
            offset = after
            return

    base = await timed(rounds, direct)
    row("stdio line and back, direct", base)
    row("stdio line and back, through the keeper", await timed(rounds, through), base)
    process.kill()
    await process.aclose()


async def attaching(run: Path, rounds: int) -> None:
    """From the call to the first byte of what the last worker did not hear."""
    epoch = 1

    async def first_byte() -> None:
        nonlocal epoch
        epoch += 1
        link = await attach(run, "token", epoch)
        async for _ in link.output(0):
            break
        await link.aclose()

    row("attach, first byte of the output", await timed(rounds, first_byte))


async def main(rounds: int) -> None:
    print(f"{'':44} {'median ms':>9} {'p95 ms':>9}   ratio of medians")
    with tempfile.TemporaryDirectory() as directory:
        sandbox = LocalSandbox(Path(directory))
        starts: list[float] = []
        for n in range(20):
            ref, link = await sandbox.start(life(f"start-{n}"), 1)
            about = json.loads(await anyio.Path(ref.run_dir, "keeper/keeper.json").read_bytes())
            starts.append(about["start"])
            await link.aclose()
            await sandbox.reap(ref)
        row("keeper: first line of code to ready", sorted(starts))
        names = iter(range(10**6))
        refs: list[LifeRef] = []

        async def start() -> None:
            ref, link = await sandbox.start(life(f"life-{next(names)}"), 1)
            await link.aclose()
            refs.append(ref)

        row("sandbox.start(): to attached", await timed(20, start))
        row("sandbox.reap()", await timed(20, lambda: sandbox.reap(refs.pop())))

        ref, link = await sandbox.start(life("main"), 1)
        assert isinstance(link, KeeperLink)
        memory = Path(f"/proc/{link.keeper_pid}/status")
        rss = memory_of(memory)
        await requests(link, (await link.status())["port"], rounds)
        await lines(link, rounds)
        await link.aclose()
        await attaching(Path(ref.run_dir) / "keeper", min(rounds, 200))
        print(f"keeper's memory: {rss / 1024:.1f} MB at the start, {memory_of(memory) / 1024:.1f} MB now")
        await sandbox.reap(ref)


def memory_of(status: Path) -> int:
    return next(int(s.split()[1]) for s in status.read_text().splitlines() if s.startswith("VmRSS"))


if __name__ == "__main__":
    anyio.run(main, int(sys.argv[1]) if len(sys.argv) > 1 else 300)
