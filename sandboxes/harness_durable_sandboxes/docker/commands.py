"""One command in a container of its own: a life that is over with it."""

from __future__ import annotations

import secrets
import signal
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import suppress

import anyio

from harness_durable.errors import (
    HarnessDied,
    HarnessMissing,
    KeeperGone,
    SandboxUnavailable,
    WorkspaceMissing,
)
from harness_durable.gateway import WayOut
from harness_durable.sandbox import ExecResult, LifeRef, LifeSpec, Link

from ..keeper import FRAME_CAP
from ..link import KeeperLink

Start = Callable[[LifeSpec], Awaitable[tuple[LifeRef, Link]]]
_ALL = 1 << 62
_GONE = "the container of the command is gone; try again"


async def run(
    start: Start,
    argv: tuple[str, ...],
    *,
    cwd: str,
    env: Mapping[str, str],
    stdin: bytes,
    timeout: float,
    options: Mapping[str, str],
    way_out: WayOut,
) -> ExecResult:
    """As a shell would, 127 says not found and 126 not executable. The caller reaps the life."""
    life = f"exec-{secrets.token_hex(8)}"
    token, ttl = secrets.token_hex(16), timeout + 60
    spec = LifeSpec(life, life, argv, env, cwd, {}, token, ttl, workspace=cwd, options=options)
    try:
        _, link = await start(spec)
    except HarnessMissing as missing:
        code = 126 if "ermission" in str(missing) else 127
        return ExecResult(code, b"", f"{argv[0]}: {missing}\n".encode())
    except KeeperGone as gone:
        raise SandboxUnavailable(_GONE) from gone
    except WorkspaceMissing as missing:
        raise SandboxUnavailable(
            f"cannot run {argv[0]!r} in {cwd}: no such directory; create it first"
        ) from missing
    assert isinstance(link, KeeperLink)
    try:
        return await _finish(link, stdin, timeout, way_out)
    finally:
        with anyio.CancelScope(shield=True):
            await link.aclose()


async def _finish(link: KeeperLink, stdin: bytes, timeout: float, way_out: WayOut) -> ExecResult:
    out = bytearray()

    async def feed() -> None:
        with suppress(HarnessDied):  # it does not want to hear more
            for offset in range(0, len(stdin), FRAME_CAP):
                await link.write(stdin[offset : offset + FRAME_CAP])
            await link.close_stdin()

    async def listen() -> None:
        async for _, chunk in _output(link, len(out)):
            out.extend(chunk)

    with anyio.move_on_after(timeout) as limit:
        try:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(feed)
                tasks.start_soon(way_out.serve_all, link.requests())
                await listen()
                tasks.cancel_scope.cancel()
        except* KeeperGone as gone:
            raise SandboxUnavailable(_GONE) from gone
    if limit.cancelled_caught:
        await link.kill()
        await listen()
    code = link.exit.code if link.exit is not None else -signal.SIGKILL
    return ExecResult(code, bytes(out), await link.errors(_ALL), limit.cancelled_caught)


async def _output(link: KeeperLink, offset: int) -> AsyncGenerator[tuple[int, bytes]]:
    async for item in link.output(offset):
        yield item
