"""What each check of an adapter works with: a session with the real harness, a scripted model, and workers
that can be killed.

What surprises: workers are processes of their own, started as a person would start them. So the adapter has
to be found by its name, in the registry or by an entry point."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, NoReturn

import anyio
from anyio.abc import Process

from harness_durable import clock
from harness_durable.adapter import Adapter
from harness_durable.journal import Inbox, Reader
from harness_durable.runtime.equipment import Equipment
from harness_durable.sandbox import LifeRef
from harness_durable.settings import resolve
from harness_durable.state import Session
from harness_durable.testing.adapters.tools import EFFECTS
from harness_durable.testing.provider import Policy, Reply, Request, ScriptedProvider, ToolUse, say
from harness_durable.testing.provider.messages import results
from harness_durable.testing.provider.policies.toolbox import Toolbox
from harness_durable.world import World
from harness_durable.worlds import open_world

PATIENCE = 120.0
"""Seconds after which something that must come is reported as not coming."""
SESSION, MESSAGE = "check", "m-1"
KILLED = -9


class BrokenPromise(Exception):
    """What a check saw that must not be."""


class NotOffered(Exception):
    """The adapter declares that its harness cannot do what the check tries."""


def broken(detail: str) -> NoReturn:
    raise BrokenPromise(detail)


def expect(true: bool, detail: str) -> None:
    """Raise ``BrokenPromise`` unless it is true. (An ``assert`` would vanish under ``python -O``.)"""
    if not true:
        broken(detail)


def _shell(tools: Toolbox, command: str) -> ToolUse:
    return tools.bash(command, "check")


@dataclass(frozen=True)
class Subject:
    """The adapter under test, by its registered name. ``shell`` is how the model asks for a shell command:
    by default it is found among the tools that the harness offers, if it is called much like ``bash``."""

    adapter: str
    shell: Callable[[Toolbox, str], ToolUse] = _shell


class Bench:
    """One session of one check, which first sets ``policy``: what the model says to a request with tools."""

    policy: Policy

    def __init__(self, subject: Subject, root: Path, world: World, url: str) -> None:
        self.subject, self.world = subject, world
        self._root, self._url = root, url
        self._workspace, self._effects, self._said = root / "work", root / "effects.txt", root / "workers.txt"
        self._workspace.mkdir()
        self._effects.touch()
        flags: dict[str, object] = {"world": url, "run_dir": str(root / "run")}
        self._equipment = Equipment(resolve(flags, environ=dict(os.environ)).settings)
        self._started: list[Process] = []
        self.provider = ScriptedProvider(self._says)

    @property
    def adapter(self) -> Adapter:
        return self._equipment.adapter(self.subject.adapter)

    # ---------------------------------------------------------------------------------------- the model

    def _says(self, request: Request) -> Reply:
        return self.policy(request) if request.tools else say("this is beside the conversation")

    def shell(self, request: Request, command: str, call: str) -> ToolUse:
        """A call of the harness's shell."""
        use = self.subject.shell(Toolbox(request), command)
        return ToolUse(use.name, use.input, id=call)

    def custom(self, token: str, call: str) -> ToolUse:
        """A call of the custom tool."""
        return ToolUse(self.adapter.custom_name("effect"), {"token": token}, id=call)

    def marks(self, token: str) -> str:
        """A shell command with the effect of this token."""
        return f"echo {token} >> '{self._effects}'"

    @property
    def requests(self) -> list[Request]:
        """What the model was asked, oldest first."""
        return [request for request in self.provider.requests if request.tools]

    def seen(self, call: str) -> str:
        """What the model was told about a call, in the last request that tells of it."""
        for request in reversed(self.requests):
            if call in results(request):
                return results(request)[call].text
        broken(f"the model was never told what became of the call {call}")

    def paid(self) -> int:
        """Answers that the model gave."""
        return sum(self.provider.ledger.tally().delivered.values())

    # -------------------------------------------------------------------------------------- the workers

    async def begin(self, text: str = "go", *options: str, message: str = MESSAGE, **more: str) -> Process:
        """A worker that sends the message, if it is not accepted yet, and drives the session."""
        command = [sys.executable, "-m", "harness_durable.cli.main", "run", text, "--session", SESSION]
        command += ["--message-id", message, "--adapter", self.subject.adapter, "--workspace"]
        command += [str(self._workspace), "--tools", "harness_durable.testing.adapters.tools", *options]
        with self._said.open("ab") as said:
            return await self._process(command, said, more)

    async def _process(self, command: list[str], said: BinaryIO, more: dict[str, str]) -> Process:
        environment = {
            **os.environ,
            "HARNESS_DURABLE_WORLD": self._url,
            "HARNESS_DURABLE_RUN_DIR": str(self._root / "run"),
            "HARNESS_DURABLE_UPSTREAM_URL": self.provider.url,
            "HARNESS_DURABLE_UPSTREAM_KEY": "sk-check-not-a-real-key",
            "HARNESS_DURABLE_LEASE_SECONDS": "3",
            EFFECTS: str(self._effects),
            **more,
        }
        process = await anyio.open_process(
            command, env=environment, stdin=subprocess.DEVNULL, stdout=said, stderr=said
        )
        self._started.append(process)
        return process

    async def ended(self, process: Process, *codes: int) -> None:
        """Wait for a worker, which must end with one of these exit codes."""
        with anyio.move_on_after(PATIENCE):
            code = await process.wait()
            return expect(code in codes, f"a worker ended with {code}, not with {codes}: {self._tail()}")
        broken(f"a worker did not end within {PATIENCE:.0f} s: {self._tail()}")

    async def finish(self, text: str = "go", *, message: str = MESSAGE) -> Session:
        """A worker that nothing happens to; the state then, in which the message's turn is completed."""
        await self.ended(await self.begin(text, message=message), 0)
        state = await self.state()
        expect(state.turns[message].status == "completed", f"the turn of {message} is not completed")
        return state

    async def crash(self, at: str, death: str, *options: str) -> None:
        """A worker that dies at a crash point."""
        crash = {"HARNESS_DURABLE_CRASH_AT": at, "HARNESS_DURABLE_CRASH_DEATH": death}
        await self.ended(await self.begin("go", *options, **crash), KILLED)

    async def kill(self, worker: Process, *, life: bool) -> None:
        """A worker dies now, and with ``life`` its keeper and harness, too, with their files."""
        worker.kill()
        await worker.wait()
        if life:
            await self._end_lives()

    async def _end_lives(self) -> None:
        state = await self.state()
        for life in state.lives.values():
            ref = LifeRef(life.id, life.sandbox, life.run_dir, life.host)
            await self._equipment.sandbox(life.sandbox).reap(ref)

    # ------------------------------------------------------------------------------------ what is true

    async def state(self) -> Session:
        return await Reader(self.world, SESSION).load()

    async def inbox(self) -> Inbox:
        """For what people say to the session."""
        return await Inbox.open(self.world, SESSION)

    async def recorded(self, call: str) -> str:
        """The result of a call as the log has it."""
        result = (await self.state()).tool_calls[call].result
        return await Reader(self.world, SESSION).text(result) if result is not None else ""

    def effects(self) -> list[str]:
        """What happened, oldest first."""
        return self._effects.read_text().split()

    async def until(self, condition: Callable[[Session], bool], what: str) -> Session:
        """Wait for the log, or for anything else, to show it."""
        with anyio.move_on_after(PATIENCE):
            while True:
                if await self.world.sessions():
                    state = await self.state()
                    if condition(state):
                        return state
                await clock.sleep(0.02)
        broken(f"waited {PATIENCE:.0f} s in vain for {what}: {self._tail()}")

    async def close(self) -> str:
        """At the end of every check: what must hold whatever was tried. Returns what was seen."""
        state = await self.state()
        calls = [call for call in state.tool_calls.values() if call.open]
        expect(not calls, f"calls without an outcome: {[call.id for call in calls]}")
        tally = self.provider.ledger.tally()
        refused = [line for line in tally.lines if line.kind == "refused"]
        expect(not refused, f"the model's API would refuse what the harness sent: {refused[:1]}")
        twice = tally.paid_twice()
        expect(not twice, f"answers were paid for twice: {len(twice)}")
        ends = ", ".join(life.reason or "goes on" for life in state.lives.values())
        return f"{state.seq} events; lives: {ends}"

    def _tail(self) -> str:
        return self._said.read_text(errors="replace")[-2000:] if self._said.exists() else ""

    async def aclose(self) -> None:
        for process in self._started:
            if process.returncode is None:
                process.kill()
            await process.aclose()
        if await self.world.sessions():
            await self._end_lives()
        await self._equipment.aclose()


@asynccontextmanager
async def bench(subject: Subject, root: Path) -> AsyncGenerator[Bench]:
    """A fresh one below ``root``, an empty folder that is the caller's to delete."""
    url = f"sqlite:{root / 'world.db'}"
    world = await open_world(url)
    try:
        one = Bench(subject, root, world, url)
        async with one.provider:
            try:
                yield one
            finally:
                with anyio.CancelScope(shield=True):
                    await one.aclose()
    finally:
        await world.aclose()
