"""What the next worker finds after a worker was killed, stopped, or taken down with everything."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import AsyncGenerator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from subprocess import PIPE

import anyio
import pytest
from anyio.abc import Process
from anyio.streams.buffered import BufferedByteReceiveStream

from harness_durable.sandbox import Link
from harness_durable.testing.sandboxes.bench import PATIENCE, Watch, said_by
from harness_durable_sandboxes.local import LocalSandbox
from tests.sandboxes.keeper_kit import taken, until

CHILD = Path(__file__).with_name("worker_child.py")


@pytest.fixture
def watch(tmp_path: Path) -> Iterator[Watch]:
    one = Watch(tmp_path / "fifo", tmp_path / "fifo")
    yield one
    one.close()


class Worker:
    def __init__(self, process: Process) -> None:
        assert process.stdout is not None
        self.process = process
        self._lines = BufferedByteReceiveStream(process.stdout)

    async def line(self) -> bytes:
        with anyio.fail_after(PATIENCE):
            return await self._lines.receive_until(b"\n", 1000)

    async def tell(self) -> None:
        assert self.process.stdin is not None
        await self.process.stdin.send(b"\n")


@asynccontextmanager
async def worker(root: Path, watch: Watch, **env: str) -> AsyncGenerator[Worker]:
    command = [sys.executable, str(CHILD), str(root), "life", watch.path]
    process = await anyio.open_process(
        command, stdin=PIPE, stdout=PIPE, stderr=None, env={**os.environ, **env}
    )
    try:
        one = Worker(process)
        assert await one.line() == b"ready"
        yield one
    finally:
        with anyio.CancelScope(shield=True):
            if process.returncode is None:
                process.kill()
            await process.aclose()
            sandbox = LocalSandbox(root)
            await sandbox.reap(sandbox.locate("life"))


async def finish(link: Link) -> None:
    """All that the first worker left undone: its request, and what it would have said."""
    assert await link.said() == b"one\n"
    _, seen = await said_by(link, b"asked\n")
    assert seen == b"began\nheard one\nasked\n"
    request = await taken(link)
    assert await request.stream.receive() == b"question"
    await request.stream.send(b"forty-two")
    await request.done()
    await link.write(b"two\n")
    _, seen = await said_by(link, b"heard two\n")
    assert seen == b"began\nheard one\nasked\nanswer forty-two\nheard two\n"
    assert await link.said() == b"one\ntwo\n"


async def test_a_killed_worker_is_succeeded_without_a_loss(tmp_path: Path, watch: Watch) -> None:
    async with worker(tmp_path / "lives", watch) as first:
        first.process.kill()
        await first.process.wait()
        sandbox = LocalSandbox(tmp_path / "lives")
        ref = sandbox.locate("life")
        assert await sandbox.alive(ref)
        link = await sandbox.attach(ref, 2)
        await finish(link)
        await link.shutdown()
        assert not watch.held()


async def test_a_stopped_worker_is_superseded_and_says_nothing_more(tmp_path: Path, watch: Watch) -> None:
    async with worker(tmp_path / "lives", watch) as first:
        first.process.send_signal(signal.SIGSTOP)
        sandbox = LocalSandbox(tmp_path / "lives")
        link = await sandbox.attach(sandbox.locate("life"), 2)
        await first.tell()
        first.process.send_signal(signal.SIGCONT)
        assert await first.line() == b"StaleEpoch"
        await finish(link)
        await link.aclose()


@pytest.mark.parametrize("death", ["worker", "harness", "machine"])
async def test_each_death_takes_what_it_should(tmp_path: Path, watch: Watch, death: str) -> None:
    points = {
        "HARNESS_DURABLE_CRASH_AT": "life.started",
        "HARNESS_DURABLE_CRASH_DEATH": death,
    }
    async with worker(tmp_path / "lives", watch, **points) as first:
        assert await first.process.wait() == -signal.SIGKILL
        sandbox = LocalSandbox(tmp_path / "lives")
        ref = sandbox.locate("life")
        assert await sandbox.alive(ref) == (death == "worker")
        assert watch.held() == (death == "worker")
        assert await anyio.Path(ref.run_dir).exists() == (death != "machine")
        await sandbox.reap(ref)
        await until(lambda: not watch.held())
