"""A keeper without a sandbox around it, so that tests can say exactly how it is started."""

from __future__ import annotations

import json
import sys
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing, asynccontextmanager
from inspect import isawaitable
from pathlib import Path
from subprocess import DEVNULL

import anyio

from harness_durable.sandbox import Link, Request
from harness_durable.testing.sandboxes.bench import PATH, PATIENCE
from harness_durable_sandboxes import processes
from harness_durable_sandboxes.launch import KEEPER
from harness_durable_sandboxes.link import KeeperLink, attach

TOKEN = "token-of-this-life"


class Life:
    """A running keeper: its run directory, and what it said about itself."""

    def __init__(self, run: Path) -> None:
        self.run = run
        self.about: dict[str, object] = json.loads((run / "keeper.json").read_bytes())

    async def attach(self, epoch: int = 1) -> KeeperLink:
        return await attach(self.run, TOKEN, epoch)

    def size(self, name: str) -> int:
        return (self.run / name).stat().st_size

    def exit(self) -> dict[str, object]:
        content: dict[str, object] = json.loads((self.run / "exit.json").read_bytes())
        return content


async def launch(
    run: Path,
    *argv: str,
    prefix: tuple[str, ...] = (),
    python: str = sys.executable,
    keeper: Path = KEEPER,
    **more: object,
) -> int:
    """The exit code of the process that was started: 0 once the keeper is ready."""
    _order(run, argv=argv, **more)
    command = [*prefix, python, "-I", "-S", str(keeper), str(run)]
    with (run / "keeper.err").open("wb") as err:
        process = await anyio.open_process(command, stdin=DEVNULL, stdout=err, stderr=err, env={})
        async with process:
            return await process.wait()


def _order(run: Path, **more: object) -> None:
    base = {"env": {"PATH": PATH}, "cwd": "/", "token": TOKEN, "ttl": 600}
    run.mkdir(exist_ok=True)
    (run / "spec.json").write_text(json.dumps({**base, **more}))


@asynccontextmanager
async def life(run: Path, *argv: str, **more: object) -> AsyncGenerator[Life]:
    """A life that is over when the test is."""
    try:
        code = await launch(run, *argv, **more)  # type: ignore[arg-type]  # named ones by name
        assert code == 0, (run / "keeper.err").read_text()
        yield Life(run)
    finally:
        processes.end_life("no-marker", run)


@asynccontextmanager
async def attached(one: Life, epoch: int = 1) -> AsyncGenerator[KeeperLink]:
    link = await one.attach(epoch)
    try:
        yield link
    finally:
        await link.aclose()


async def taken(link: Link) -> Request:
    """The next request that the harness made."""
    with anyio.fail_after(PATIENCE):
        async with aclosing(_requests(link)) as requests:
            return await anext(requests)


async def _requests(link: Link) -> AsyncGenerator[Request]:
    async for request in link.requests():
        yield request


async def until(probe: Callable[[], object]) -> None:
    """Ask, or await and ask, until the answer is true."""
    with anyio.fail_after(PATIENCE):
        while True:
            answer = probe()
            if await answer if isawaitable(answer) else answer:
                return
            await anyio.sleep(0.005)
