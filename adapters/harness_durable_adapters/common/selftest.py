"""The stage of a self-test: a scripted model, a harness that is started straight from its launch, and no
keeper, gateway or log. What is proven there is the adapter's own."""

from __future__ import annotations

import logging
import os
import signal
import subprocess
import tempfile
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import anyio
from anyio.abc import Process

from harness_durable.adapter import Harness, Launch
from harness_durable.testing.provider import ScriptedProvider
from harness_durable.testing.provider.policies import Script

log = logging.getLogger("harness_durable.selftest")

SECONDS = 90.0
TEXT = "self-test: this result was written by recovery"
"""Given to the harness as the result of the call that was cut off."""


class Stage:
    """``ran``: the file that a command makes which is to be refused."""

    def __init__(self, folder: Path, model: ScriptedProvider) -> None:
        self.model, self.homes, self.work = model, folder / "homes", folder / "work"
        self.ran = self.work / "ran"

    async def play(self, test: Callable[[], Awaitable[None]], *ends: type[Exception]) -> None:
        """A harness that ends by itself (``ends``: what else says so), or that is silent, has proven no more
        than what it has shown until then."""
        expected: tuple[type[Exception], ...] = (anyio.BrokenResourceError, anyio.EndOfStream, *ends)
        await anyio.Path(self.work).mkdir(parents=True)
        try:
            with anyio.move_on_after(SECONDS):
                await test()
        except* expected as trouble:
            log.info("the self-test ended early: %s", trouble.exceptions)

    @asynccontextmanager
    async def life(self, plan: Launch, name: str, port: int | None = None) -> AsyncGenerator[Process]:
        """The harness until the block ends, with its files in ``homes / name``. For ``@PORT@`` they have the
        model's port, and its environment ``port`` (None: the same)."""
        model = str(self.model.port)
        for place, part in plan.files.items():
            path = anyio.Path(self.homes / name / place)
            await path.parent.mkdir(parents=True, exist_ok=True)
            held = part if isinstance(part, bytes) else b"".join([piece async for piece in part()])
            await path.write_bytes(held.replace(b"@PORT@", model.encode()))
        told = model if port is None else str(port)
        env = {name: text.replace("@PORT@", told) for name, text in plan.env.items()}
        process = await anyio.open_process(
            plan.argv, env=env, cwd=self.work, stderr=subprocess.DEVNULL, start_new_session=True
        )
        try:
            yield process
        finally:
            with anyio.CancelScope(shield=True):
                with suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
                await process.aclose()


@asynccontextmanager
async def stage(story: Script) -> AsyncGenerator[Stage]:
    """Gone without a trace when the block ends."""
    with tempfile.TemporaryDirectory(
        prefix="harness-durable-self-test-", ignore_cleanup_errors=True
    ) as folder:
        async with ScriptedProvider(story) as model:
            yield Stage(Path(folder), model)


def untrue(name: str, harness: Harness, found: Mapping[str, bool]) -> tuple[str, ...]:
    """Sentences, for each trouble that is there. ``found``: by trouble, does the opposite hold?"""
    return tuple(f"{name} {harness.version}: {trouble}" for trouble, holds in found.items() if not holds)
