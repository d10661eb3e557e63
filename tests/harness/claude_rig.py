"""A session with a real Claude Code binary, a scripted model and a World of its own.

``work`` drives it within this process; ``worker`` starts one that can be killed. Both see the same log."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Self

import anyio

from harness_durable.events import AgentSpec
from harness_durable.journal import Inbox, Journal, Reader
from harness_durable.runtime.equipment import Equipment
from harness_durable.runtime.worker import Worker
from harness_durable.sandbox import LifeRef
from harness_durable.settings import Settings, resolve
from harness_durable.state import Session
from harness_durable.testing.provider import Policy, ScriptedProvider
from harness_durable.testing.provider.messages import Request, results
from harness_durable.tools import Tool
from harness_durable.world import World
from harness_durable.worlds import open_world
from harness_durable_adapters.claude_code import install
from harness_durable_sandboxes.local import kill_life

VERSIONS = install.SUPPORTED


def tried(versions: tuple[str, ...]) -> tuple[str, ...]:
    """What the long suites run with: the default version; with ``HARNESS_DURABLE_CRASH=full`` all."""
    return versions if os.environ.get("HARNESS_DURABLE_CRASH") == "full" else versions[:1]


SESSION = "rig"
TOOLS = ("Bash", "Read", "Edit", "Write", "Agent")


class Rig:
    """Use ``Rig.open``. Rigs of other harnesses are the same but for what stands first here."""

    adapter, model = "claude-code", "claude-sonnet-4-5"
    mark = b"--session-mirror"
    install = staticmethod(install.install)

    def __init__(self, root: Path, version: str, world: World, provider: ScriptedProvider) -> None:
        self.root, self.version, self.world, self.provider = root, version, world, provider
        self.url = f"sqlite:{root / 'world.db'}"
        self.workspace = root / "work space"
        self.workspace.mkdir()
        self.effects = self.workspace / "effects.txt"
        self.tools: Sequence[Tool] = ()
        self.errors = root / "workers.txt"

    @classmethod
    @asynccontextmanager
    async def open(
        cls,
        root: Path,
        version: str,
        policy: Policy,
        *,
        tools: tuple[str, ...] | None = TOOLS,
        permission_mode: str = "default",
    ) -> AsyncGenerator[Self]:
        """Installs the binary if need be: a missing one is a failure, never a reason to skip."""
        await cls.install(version)
        world = await open_world(f"sqlite:{root / 'world.db'}")
        async with ScriptedProvider(policy) as provider:
            rig = cls(root, version, world, provider)
            agent = AgentSpec(
                adapter=cls.adapter,
                harness_version=version,
                model=cls.model,
                sandbox="local",
                workspace=str(rig.workspace),
                permission_mode=permission_mode,
                tools=tools,
            )
            rig.inbox = await Inbox.create(world, SESSION, agent)
            try:
                yield rig
            finally:
                await rig.kill_life()
                await world.aclose()

    inbox: Inbox

    async def work(self) -> Session:
        """Drive until the session is idle; the state then."""
        equipment = Equipment(self._settings(), tools=self.tools)
        try:
            async with Worker.open(self.world, equipment) as worker:
                await worker.drive(SESSION)
        finally:
            await equipment.aclose()
        return await self.state()

    async def say(self, text: str, message: str = "m-1") -> Session:
        """Send a message and drive until the session is idle."""
        await self.inbox.accept(message, text)
        return await self.work()

    def worker(self, **variables: str) -> subprocess.Popen[bytes]:
        """A worker of its own process, with the custom tool ``effect``."""
        env = {
            **os.environ,
            "HARNESS_DURABLE_WORLD": self.url,
            "HARNESS_DURABLE_RUN_DIR": str(self.root / "run"),
            "HARNESS_DURABLE_UPSTREAM_URL": self.provider.url,
            "ANTHROPIC_API_KEY": "sk-test",
            "HARNESS_DURABLE_LEASE_SECONDS": "3",
            "RIG_EFFECTS": str(self.effects),
            "RIG_SESSION": SESSION,
            "RIG_ADAPTER": self.adapter,
            "RIG_MODEL": self.model,
            "RIG_VERSION": self.version,
            "RIG_WORKSPACE": str(self.workspace),
            **variables,
        }
        with self.errors.open("ab") as errors:
            return subprocess.Popen(
                [sys.executable, str(Path(__file__).with_name("claude_worker.py"))],
                env=env,
                stdout=errors,
                stderr=errors,
            )

    async def crashed(self, at: str, death: str = "harness") -> None:
        """A worker that dies at a crash point."""
        process = self.worker(HARNESS_DURABLE_CRASH_AT=at, HARNESS_DURABLE_CRASH_DEATH=death)
        assert await anyio.to_thread.run_sync(process.wait) == -9, self.tail()

    async def finished(self) -> Session:
        """A worker without faults, until it ends by itself."""
        process = self.worker()
        assert await anyio.to_thread.run_sync(process.wait) == 0, self.tail()
        return await self.state()

    async def state(self) -> Session:
        return await Reader(self.world, SESSION).load()

    async def journal(self) -> Journal:
        """For tests that write into the log themselves."""
        from harness_durable.world import Owner

        owner = Owner("test-owner", "here", os.getpid())
        await self.world.register(owner)
        claim = await self.world.claim_session(owner, SESSION)
        return await Journal.open(self.world, claim)

    async def result_of(self, call: str, state: Session) -> str:
        payload = state.tool_calls[call].result
        assert payload is not None
        return await Reader(self.world, SESSION).text(payload)

    async def kill_life(self) -> None:
        """The keeper and the harness die; the workers do not."""
        life = (await self.state()).life
        if life is not None:
            ref = LifeRef(life.id, life.sandbox, life.run_dir, life.host)
            await anyio.to_thread.run_sync(kill_life, ref)

    def kill_harness(self) -> None:
        """The harness alone dies; its keeper does not."""
        mark = str(self.root / "run").encode()
        for entry in Path("/proc").iterdir():
            found = _read(entry / "cmdline") if entry.name.isdigit() else b""
            if self.mark in found and mark in _read(entry / "environ"):
                os.kill(int(entry.name), signal.SIGKILL)

    async def until(self, condition: Callable[[Session], bool], seconds: float = 60.0) -> Session:
        """Wait for the log to say so."""
        deadline = time.monotonic() + seconds
        while not condition(state := await self.state()):
            assert time.monotonic() < deadline, f"waited in vain; {self.tail()}"
            await anyio.sleep(0.02)
        return state

    @property
    def requests(self) -> list[Request]:
        """What the model was asked, oldest first."""
        return [request for request in self.provider.requests if request.tools]

    def seen(self, call: str) -> str:
        """What the model was told about a call, in the last request that tells of it."""
        return next(results(r)[call].text for r in reversed(self.requests) if call in results(r))

    def paid(self) -> int:
        """Answers that the provider gave."""
        return sum(self.provider.ledger.tally().delivered.values())

    def tail(self) -> str:
        return self.errors.read_text(errors="replace")[-4000:] if self.errors.exists() else ""

    def _settings(self) -> Settings:
        flags = {
            "world": self.url,
            "run_dir": str(self.root / "run"),
            "upstream_url": self.provider.url,
            "upstream_key": "sk-test",
            "lease_seconds": 3.0,
        }
        return resolve(flags, environ={}).settings


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError:
        return b""
