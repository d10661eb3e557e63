"""Lives in containers, as tests begin and hear them."""

from __future__ import annotations

import secrets
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio

from harness_durable.errors import SandboxUnavailable
from harness_durable.sandbox import LifeRef, LifeSpec
from harness_durable.testing.sandboxes.bench import PATH, everything
from harness_durable_sandboxes.docker import DockerSandbox
from harness_durable_sandboxes.link import KeeperLink
from tests.docker.engine_kit import Engine

TOKEN = "token-of-this-life"


def spec(workspace: Path, *argv: str, **more: Any) -> LifeSpec:
    """Of a life that works there. ``more`` are fields of ``LifeSpec``."""
    env: Mapping[str, str] = {"PATH": PATH, "HOME": "@HOME@", **more.pop("env", {})}
    life = more.pop("life", f"life-{secrets.token_hex(6)}")
    here = str(workspace)
    return LifeSpec(life, "session", argv, env, here, more.pop("files", {}), TOKEN, workspace=here, **more)


@asynccontextmanager
async def life(sandbox: DockerSandbox, wanted: LifeSpec) -> AsyncGenerator[tuple[LifeRef, KeeperLink]]:
    """One that is over when the test is."""
    ref, link = await sandbox.start(wanted, 1)
    assert isinstance(link, KeeperLink)
    try:
        yield ref, link
    finally:
        with anyio.CancelScope(shield=True):
            await link.aclose()
            await sandbox.reap(ref)


async def heard(sandbox: DockerSandbox, wanted: LifeSpec) -> str:
    """All that a life says until its harness ends, on both of its streams."""
    async with life(sandbox, wanted) as (_, link):
        said = await everything(link)
        return (said + await link.errors(1 << 20)).decode()


async def shell(sandbox: DockerSandbox, workspace: Path, script: str, **more: Any) -> str:
    """What a shell says there."""
    return await heard(sandbox, spec(workspace, "sh", "-c", script, **more))


def container(engine: Engine, ref: LifeRef) -> str:
    """The name of a life's container."""
    [name] = [name for name in engine.names() if name.endswith(ref.life)]
    return name


async def reaped(sandbox: DockerSandbox, ref: LifeRef) -> None:
    """Once the engine can be asked."""
    with anyio.fail_after(60):
        while True:
            try:
                await sandbox.reap(ref)
                return
            except SandboxUnavailable:
                await anyio.sleep(0.05)
