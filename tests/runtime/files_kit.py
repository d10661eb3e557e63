"""A session whose harness works on real files, on a real World: what a driver makes of them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path

import anyio
import msgspec

from harness_durable import events as ev
from harness_durable.adapter import LifeContext, TurnEnd
from harness_durable.journal import Inbox, Reader
from harness_durable.runtime.driver import Driver
from harness_durable.runtime.equipment import Equipment
from harness_durable.sandbox import LifeRef, Link
from harness_durable.state import Session
from harness_durable.world import Owner, World
from tests.runtime.kit import Harness, Place, Script, equipped
from tests.unit.session_kit import AGENT, SESSION, asked

OWNERS = [Owner(f"worker-{letter}", "here", number) for number, letter in enumerate("abcdef", 1)]


class Elsewhere(Place):
    """The sandbox of another host. ``name`` is the host's."""

    def __init__(self, host: str) -> None:
        super().__init__()
        self._host = host

    def locate(self, life: str) -> LifeRef:
        return msgspec.structs.replace(super().locate(life), host=self._host)


class Rig:
    """``workspace`` has one file. ``drive`` is another worker each time, whatever became of the last one."""

    def __init__(self, world: World, folder: Path, **settings: object) -> None:
        self.world, self.folder = world, folder
        self.workspace = folder / "work"
        self.workspace.mkdir()
        (self.workspace / "kept.txt").write_text("one\n")
        self.settings = {"run_dir": str(folder / "run"), **settings}
        self.place = Place()
        self.workers = iter(OWNERS)
        self._death = anyio.CancelScope()

    async def accept(self, *messages: str, files: ev.Keeping = "durable", name: str = "") -> Inbox:
        """``name``: of the workspace, where each host has it in a folder of its own."""
        agent = msgspec.structs.replace(AGENT, workspace=name or str(self.workspace), files=files)
        inbox = await Inbox.create(self.world, SESSION, agent)
        for message in messages:
            await inbox.accept(message, "do it")
        return inbox

    async def drive(self, *scripts: Script, roll_back: bool = False, session: str = SESSION) -> Session:
        """Until nothing is left to do; the state then."""
        with anyio.fail_after(20):
            await (await self.driver(self.equipment(*scripts), roll_back=roll_back, session=session)).run()
        return await self.state(session)

    async def driver(
        self, equipment: Equipment, *, roll_back: bool = False, session: str = SESSION
    ) -> Driver:
        owner = next(self.workers)
        if roll_back:
            equipment.rollback.add(session)
        await self.world.register(owner)
        claim = await self.world.claim_session(owner, session, take_over=True)
        return await Driver.open(self.world, claim, owner, equipment, lambda: True)

    def on(self, host: str) -> Path:
        """From now on we are on this host; its workspace."""
        self.place = Elsewhere(host)
        root = self.folder / host
        self.settings |= {"run_dir": str(root / "run"), "workspaces": root}
        return root / "work"

    def equipment(self, *scripts: Script) -> Equipment:
        return equipped(Harness(*scripts), self.place, **self.settings)

    async def lost_in(self, *scripts: Script) -> None:
        """Drive until a script says ``dies``; then nothing is left of the worker and of the life."""
        driver = await self.driver(self.equipment(*scripts))
        with anyio.fail_after(20), anyio.CancelScope() as self._death:
            await driver.run()
        assert self._death.cancelled_caught, "it did not die"
        self.place.die()

    async def dies(self, ctx: LifeContext) -> None:
        """The worker, here and now."""
        self._death.cancel()
        await anyio.sleep_forever()

    async def state(self, session: str = SESSION) -> Session:
        return await Reader(self.world, session).load()

    async def commits(self, session: str = SESSION) -> list[ev.WorkspaceCommitted]:
        entries = [entry.event async for entry in Reader(self.world, session).entries()]
        return [event for event in entries if isinstance(event, ev.WorkspaceCommitted)]

    async def told(self) -> list[tuple[str, dict[str, int]]]:
        """Causes and how many files of each kind."""
        return [
            (event.cause, {word: n for word, n in msgspec.structs.asdict(event.counts).items() if n})
            for event in await self.commits()
        ]


def calls(
    *work: Callable[[Path], object],
    policy: ev.ReplayPolicy = "never",
    then: Callable[[LifeContext], Awaitable[None]] | None = None,
) -> Script:
    """A life in which the model calls a tool once for each piece of work, which is done in the workspace.
    ``then`` comes after the last effect, and before its outcome."""

    async def script(ctx: LifeContext, link: Link) -> TurnEnd:
        for number, do in enumerate(work, 1):
            call = f"c{len(ctx.journal.state.tool_calls) + 1}"
            await asked(ctx.journal, (call, "Bash", {"n": number}), policy=policy, origin="builtin")
            await ctx.journal.tool_gate(call, ctx.life)
            await anyio.to_thread.run_sync(do, Path(ctx.cwd))
            if then is not None and number == len(work):
                await then(ctx)
            await ctx.journal.tool_finished(call, ok=True, result=b"did it", source="hook")
        return TurnEnd("completed", "done")

    return script


def writes(name: str, text: str) -> Callable[[Path], object]:
    return lambda workspace: (workspace / name).write_text(text)


def tree(folder: Path) -> dict[str, str]:
    files = [path for path in sorted(folder.rglob("*")) if path.is_file()]
    return {str(path.relative_to(folder)): path.read_text() for path in files}
