"""A session with a real harness, a scripted model and a World of its own; ``rigs`` has one for each harness.

``work`` drives it within this process; ``worker`` starts one that can be killed. Both see the same log."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Self

import anyio

from harness_durable.events import AgentSpec, TranscriptAppended
from harness_durable.journal import Inbox, Journal, Reader
from harness_durable.pinned import Pinned
from harness_durable.runtime.equipment import Equipment
from harness_durable.runtime.worker import Worker
from harness_durable.sandbox import LifeRef
from harness_durable.settings import Settings, resolve
from harness_durable.state import Session
from harness_durable.testing.provider import Policy, Reply, ScriptedProvider, ToolUse
from harness_durable.testing.provider.messages import Request, results
from harness_durable.testing.provider.reply import Block
from harness_durable.tools import Tool
from harness_durable.world import Owner, World
from harness_durable.worlds import open_world
from harness_durable_adapters.common.naming import custom_tool
from harness_durable_sandboxes.local import kill_life

SESSION = "rig"


class Rig(ABC):
    """Use ``open`` of one of ``rigs``. What stands first is what a story needs to know of a harness.

    ``mark``: what the command line of its process has. ``tools``: those that are offered, None for its own.
    ``supplies``: see ``Capabilities``. ``texts``: messages that it could take for something else.
    ``mistakes``: calls that it cannot run, and what it says of the last of them."""

    pinned: Pinned
    model = "claude-sonnet-4-5"
    mark: bytes
    offered: tuple[str, ...] | None = None
    supplies = False
    texts: tuple[str, ...]
    mistakes: tuple[tuple[ToolUse, ...], str]

    @staticmethod
    @abstractmethod
    def shell(command: str, call: str = "") -> ToolUse:
        """A command, which is waited for."""

    @classmethod
    def behind(cls, call: str) -> ToolUse:
        """A call that makes the file ``b``, and that waits for a command before it, if any does."""
        return cls.shell("echo b > b", call)

    @staticmethod
    def look(path: Path, call: str) -> ToolUse:
        """A call that may be repeated."""
        return ToolUse("read", {"path": str(path)}, id=call)

    @staticmethod
    def own(tool: str, call: str, **arguments: object) -> ToolUse:
        """A call of a custom tool."""
        return ToolUse(custom_tool(tool), arguments, id=call)

    @staticmethod
    def printed(result: str, text: str) -> bool:
        """Is this the result of a command that printed the text?"""
        return result == f"{text}\n"

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
        tools: tuple[str, ...] | None = None,
        permission_mode: str = "default",
    ) -> AsyncGenerator[Self]:
        """Installs the binary if need be: a missing one is a failure, never a reason to skip."""
        await cls.pinned.install(version)
        world = await open_world(f"sqlite:{root / 'world.db'}")
        async with ScriptedProvider(policy) as provider:
            rig = cls(root, version, world, provider)
            agent = AgentSpec(
                adapter=cls.pinned.name,
                harness_version=version,
                model=cls.model,
                sandbox="local",
                workspace=str(rig.workspace),
                permission_mode=permission_mode,
                tools=cls.offered if tools is None else tools,
            )
            rig.inbox = await Inbox.create(world, SESSION, agent)
            try:
                yield rig
            finally:
                await rig.kill_life()
                await world.aclose()

    inbox: Inbox

    def equipment(self) -> Equipment:
        """A worker's, within this process."""
        return Equipment(self._settings(), tools=self.tools)

    async def work(self, session: str = SESSION) -> Session:
        """Drive until the session is idle; the state then."""
        equipment = self.equipment()
        try:
            async with Worker.open(self.world, equipment) as worker:
                await worker.drive(session)
        finally:
            await equipment.aclose()
        return await Reader(self.world, session).load()

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
            "RIG_ADAPTER": self.pinned.name,
            "RIG_MODEL": self.model,
            "RIG_VERSION": self.version,
            "RIG_WORKSPACE": str(self.workspace),
            **variables,
        }
        with self.errors.open("ab") as errors:
            return subprocess.Popen(
                [sys.executable, str(Path(__file__).with_name("worker.py"))],
                env=env,
                stdout=errors,
                stderr=errors,
            )

    async def go(self, text: str = "go") -> None:
        """A message is there; nobody works yet."""
        await self.inbox.accept("m-1", text)

    async def stop(self) -> None:
        await (await Inbox.open(self.world, SESSION)).request_stop("Ann")

    async def steer(self, text: str) -> None:
        await (await Inbox.open(self.world, SESSION)).accept("s-1", text, "steer")

    async def answer(self, call: str, reason: str = "", *, allow: bool = True) -> None:
        await (await Inbox.open(self.world, SESSION)).answer(call, allow=allow, by="Ann", reason=reason)

    async def next(self, text: str = "and now?", message: str = "m-2") -> Session:
        """A further message, and a worker for it."""
        await (await Inbox.open(self.world, SESSION)).accept(message, text)
        return await self.finished()

    async def brought(self, lines: Sequence[bytes]) -> str:
        """Put lines into the log as the session's transcript, whose name is returned."""
        journal = await self.journal()
        file = f"{journal.state.native_id}.jsonl"
        await journal.transcript_appended("imported", {file: list(lines)}, offset=0)
        await self.world.release(SESSION, journal.state.epoch)
        return file

    async def source(self) -> bytes:
        """What was brought, as the log still has it."""
        reader = Reader(self.world, SESSION)
        async for entry in reader.entries():
            if isinstance(entry.event, TranscriptAppended):
                return await reader.content(entry.event.lines)
        raise AssertionError("nothing was brought")

    async def crashed(self, at: str, death: str = "harness") -> None:
        """A worker that dies at a crash point."""
        process = self.worker(HARNESS_DURABLE_CRASH_AT=at, HARNESS_DURABLE_CRASH_DEATH=death)
        assert await anyio.to_thread.run_sync(process.wait) == -9, self.tail()

    async def finished(self) -> Session:
        """A worker without faults, until it ends by itself."""
        return await self.ended(self.worker())

    async def state(self) -> Session:
        return await Reader(self.world, SESSION).load()

    async def journal(self) -> Journal:
        """For tests that write into the log themselves."""
        owner = Owner("test-owner", "here", os.getpid())
        await self.world.register(owner)
        claim = await self.world.claim_session(owner, SESSION)
        return await Journal.open(self.world, claim)

    async def result_of(self, call: str, state: Session) -> str:
        payload = state.tool_calls[call].result
        assert payload is not None
        return await Reader(self.world, SESSION).text(payload)

    async def ended(self, worker: subprocess.Popen[bytes]) -> Session:
        """A worker that ends by itself."""
        assert await anyio.to_thread.run_sync(worker.wait) == 0, self.tail()
        return await self.state()

    async def kill(self, worker: subprocess.Popen[bytes], *, life: bool = True) -> None:
        """The worker dies, and with it, if ``life``, the keeper and the harness."""
        worker.kill()
        await anyio.to_thread.run_sync(worker.wait)
        if life:
            await self.kill_life()

    async def kill_life(self) -> None:
        """The keeper and the harness die; the workers do not."""
        life = (await self.state()).life
        if life is not None:
            ref = LifeRef(life.id, life.sandbox, life.run_dir, life.host)
            await anyio.to_thread.run_sync(kill_life, ref)

    def kill_harness(self) -> None:
        """The harness alone dies; its keeper does not."""
        for pid in self.harness_pids():
            os.kill(pid, signal.SIGKILL)

    def harness_pids(self) -> list[int]:
        """Of this rig's, and of no other's."""
        mark = str(self.root / "run").encode()
        found = [entry for entry in Path("/proc").iterdir() if entry.name.isdigit()]
        found = [entry for entry in found if self.mark in _read(entry / "cmdline")]
        return [int(entry.name) for entry in found if mark in _read(entry / "environ")]

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

    def texts_of_last(self) -> list[str]:
        """All texts that the model was told in the last request."""
        return [block.text for message in self.requests[-1].messages for block in message.blocks()]

    def notes(self) -> list[str]:
        """What the model reads of us in the last request."""
        return [text for text in self.texts_of_last() if "Note by harness-durable" in text]

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


def does(*blocks: Block) -> Reply:
    return Reply(blocks)


def running(call: str) -> Callable[[Session], bool]:
    """Was the call released? For ``until``."""

    def released(state: Session) -> bool:
        return call in state.tool_calls and state.tool_calls[call].released_in is not None

    return released


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError:
        return b""
