"""What people use from Python: open a World, name an agent, find a session, send, follow, get the result.

Whoever sends need not be who drives. ``Durable`` drives the sessions that were opened through it, unless
another live worker holds one: then it waits, follows the log, and takes over when that worker dies.
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from weakref import WeakValueDictionary

import anyio
import msgspec
from anyio.abc import TaskGroup

from harness_durable import clock, registry
from harness_durable.errors import (
    HarnessMissing,
    NotFound,
    SandboxUnavailable,
    SessionBusy,
    StaleEpoch,
    StorageUnavailable,
    WriterFenced,
)
from harness_durable.events import AgentSpec, Keeping, ReplayPolicy
from harness_durable.journal import Inbox, Known, Reader
from harness_durable.runtime.equipment import Equipment
from harness_durable.runtime.groups import beside
from harness_durable.runtime.sessions import Session, Turn
from harness_durable.runtime.worker import Worker
from harness_durable.settings import Settings, check_run_dir, resolve
from harness_durable.tools import Tool
from harness_durable.workspace import refuse
from harness_durable.world import World
from harness_durable.worlds import open_world

log = logging.getLogger("harness_durable.api")

HELD_SECONDS, LOOK_SECONDS, PARKED_SECONDS = 0.25, 1.0, 30.0
"""How often a session that another worker drives is looked at: at most, at least; and one that waits for a
person, if its log does not grow."""


class Durable:
    """An open World and a worker. Use ``async with Durable.open() as durable``."""

    def __init__(
        self, world: World, worker: Worker, settings: Settings, tasks: TaskGroup, *, drive: bool = True
    ) -> None:
        self.world, self.worker, self.settings = world, worker, settings
        self.drives, self._tasks = drive, tasks
        self._driving: dict[str, anyio.Event] = {}
        self._known: WeakValueDictionary[str, Known] = WeakValueDictionary()
        self._wanted: set[str] = set()
        self._alarms: dict[str, int] = {}
        self._failures: dict[str, Exception] = {}
        self._equipments = [worker.equipment]

    @classmethod
    @asynccontextmanager
    async def open(
        cls, world: str | None = None, *, drive: bool = True, **flags: Any
    ) -> AsyncGenerator[Durable]:
        """Open the World of ``HARNESS_DURABLE_WORLD``, or of the URL given; ``flags`` are other settings.
        With ``drive=False`` nothing is ever driven here, and no harness is needed: what is sent is left to
        workers (``harness-durable worker``), and ``result`` waits for them.

        On the way out running harnesses are ended and their turns marked as interrupted by us; the next
        ``open`` continues them. Raises ``BadSetting``, ``UnknownName``, ``StorageUnavailable``.
        """
        settings = resolve({"world": world, **flags}).settings
        opened = await open_world(settings.world, settings.app)
        equipments = [Equipment(settings)]
        try:
            if drive:
                check_run_dir(settings.run_dir)
            async with Worker.open(opened, equipments[0]) as worker, beside() as tasks:
                durable = cls(opened, worker, settings, tasks, drive=drive)
                equipments = durable._equipments
                yield durable
        finally:
            with anyio.CancelScope(shield=True):
                for equipment in equipments:
                    await equipment.aclose()
                await opened.aclose()

    def agent(
        self,
        adapter: str | None = None,
        *,
        tools: Sequence[Tool] = (),
        sandbox: str | None = None,
        sandbox_options: Mapping[str, str] | None = None,
        workspace: str | Path = ".",
        model: str | None = None,
        permission_mode: str = "default",
        effort: str | None = None,
        builtin_tools: Sequence[str] | None = None,
        system_prompt: str | None = None,
        policies: dict[str, ReplayPolicy] | None = None,
        files: Keeping | None = None,
    ) -> Agent:
        """Name an agent: a harness with its model, tools and place. ``files``: what becomes of those in the
        workspace, see ``events.Keeping``; with ``scratch`` each session works in an empty folder of its own
        instead. Raises ``UnknownName``."""
        adapter = adapter or self.settings.adapter
        sandbox = sandbox or self.settings.sandbox
        registry.load("adapter", adapter)
        registry.load("sandbox", sandbox)
        files = files or self.settings.files
        equipment = Equipment(self.settings, tuple(tools))
        self._equipments.append(equipment)
        spec = AgentSpec(
            adapter=adapter,
            harness_version="",
            model=model or equipment.model(adapter),
            sandbox=sandbox,
            sandbox_options=equipment.sandbox_options(sandbox, sandbox_options or {}),
            workspace="scratch" if files == "scratch" else equipment.named(Path(workspace)),
            permission_mode=permission_mode,
            effort=effort,
            tools=tuple(builtin_tools) if builtin_tools is not None else None,
            custom_tools=tuple(tool.name for tool in tools),
            system_prompt=system_prompt,
            policies=policies or {},
            files=files,
        )
        return Agent(self, spec, equipment)

    def turn(self, session: str, turn: str) -> Turn:
        """A turn by the id of its message."""
        return Turn(self, session, turn, self.known(session))

    def known(self, session: str, *, anew: bool = False) -> Known:
        """What all here who look at a session share, as long as somebody does; begun ``anew``, if it may be
        another one by now under the same name."""
        known = None if anew else self._known.get(session)
        if known is None:
            known = self._known[session] = Known(Reader(self.world, session))
        return known

    async def refuse_if_held(self, session: str) -> None:
        """Raises ``SessionBusy`` if another live worker drives the session."""
        row = await self.world.session(session)
        if row.owner is None or not row.owner_alive or row.owner.worker == self.worker.owner.worker:
            return
        claim = await self.world.claim_session(self.worker.owner, session)
        await self.world.release(session, claim.epoch)

    def keep_driving(self, session: str, equipment: Equipment) -> None:
        """See to it that somebody drives this session until it is idle; us, if nobody else does, unless this
        was opened not to drive."""
        if not self.drives:
            return
        self._wanted.add(session)
        self._failures.pop(session, None)
        if session not in self._driving:
            self._driving[session] = anyio.Event()
            self._tasks.start_soon(self._keep_driving, session, equipment)

    async def next_turn(self, session: str) -> str | None:
        """The turn that this worker is in, or is about to start, by the id of its message."""
        row = await self.world.session(session)
        if session not in self._driving or row.owner != self.worker.owner:
            return None
        state = await self.known(session).now()
        message = state.turn or state.next_message(clock.now_ms())
        return message.id if message is not None else None

    async def until_idle(self, session: str, timeout: float = 10.0) -> None:
        """Return when nobody here drives the session any more, or after ``timeout`` seconds. A turn is
        settled a moment before its harness is gone."""
        ended = self._driving.get(session)
        if ended is not None:
            with anyio.move_on_after(timeout):
                await ended.wait()

    def raise_failure(self, session: str) -> None:
        """Raises what keeps the session from being driven here, such as ``BadTool`` or ``DamagedLog``."""
        if session in self._failures:
            raise self._failures[session]

    async def _keep_driving(self, session: str, equipment: Equipment) -> None:
        known, pause = self.known(session), 0.05
        try:
            while session in self._wanted:
                self._wanted.discard(session)  # who asks from here on asks for another look
                try:
                    state = await known.now()
                    if state.parked:
                        self._wanted.add(session)
                        await self.world.wait(session, state.seq, PARKED_SECONDS)
                        continue
                    if state.due is None or state.due > clock.now_ms():
                        self._wake_at(state.due, session, equipment)
                        continue
                    self._wanted.add(session)
                    await self.worker.drive(session, equipment=equipment, known=known)
                    pause = 0.05
                except (SessionBusy, WriterFenced, StaleEpoch):
                    await self._while_held(session)
                except (StorageUnavailable, SandboxUnavailable) as trouble:
                    log.warning("session %s is tried again in %.1f s: %s", session, pause, trouble)
                    self._wanted.add(session)
                    await clock.sleep(pause)
                    pause = min(pause * 2, 10.0)
        except Exception as failure:
            # Whoever waits for a result hears of it; other sessions go on.
            self._failures[session] = failure
        finally:
            self._wanted.discard(session)
            self._driving.pop(session).set()

    async def _while_held(self, session: str) -> None:
        """Return when the session may be ours to drive, or has come to its end; whatever the store does
        meanwhile."""
        while True:
            await clock.sleep(HELD_SECONDS)
            try:
                row = await self.world.session(session)
                if row.due is None or row.owner in (None, self.worker.owner) or not row.owner_alive:
                    return
                await self.world.wait(session, row.head, LOOK_SECONDS)
            except StorageUnavailable as trouble:
                log.warning("session %s cannot be followed just now: %s", session, trouble)
                await clock.sleep(LOOK_SECONDS)

    def _wake_at(self, due: int | None, session: str, equipment: Equipment) -> None:
        """Have another look at ``due``, when the next delayed message may start its turn."""

        async def sleep(seconds: float) -> None:
            await clock.sleep(seconds)
            if self._alarms.get(session) == due:
                self._alarms.pop(session)
                self.keep_driving(session, equipment)

        if due is not None and self._alarms.get(session) != due:
            self._alarms[session] = due
            self._tasks.start_soon(sleep, (due - clock.now_ms()) / 1000)


class Agent:
    """A harness with its model, tools and place. ``session`` creates or finds its sessions."""

    def __init__(self, durable: Durable, spec: AgentSpec, equipment: Equipment) -> None:
        self._durable, self._spec, self._equipment = durable, spec, equipment

    @property
    def works_in_a_folder(self) -> bool:
        """One that is there; else each session has one of its own."""
        return self._spec.files != "scratch"

    async def session(
        self, session: str | None = None, *, title: str = "", roll_back: bool = False
    ) -> Session:
        """Create the session, or find it; its agent stays what it was when it was created. Work that an
        earlier process left is taken up at once; with ``roll_back`` its durable files go back to the last
        recorded step first. What lay there instead stays in the log.

        Raises ``HarnessMissing`` or ``UnsupportedVersion`` for a new session without its harness, and
        ``BadSetting`` or ``SandboxUnavailable`` for one whose sandbox is not ready.
        """
        session = session or f"s-{uuid.uuid4().hex[:10]}"
        known = self._durable.known(session, anew=True)
        try:
            inbox = await Inbox.open(self._durable.world, session, known)
        except NotFound:
            if self._spec.files == "durable":
                refuse(Path(self._equipment.place(self._spec)))
            spec = msgspec.structs.replace(self._spec, harness_version=await self._version())
            if self._durable.drives:
                spec = msgspec.structs.replace(spec, sandbox_options=self._equipment.settled_options(spec))
                await self._equipment.check_sandbox(spec)
            inbox = await Inbox.create(self._durable.world, session, spec, title, known)
        if roll_back:
            self._equipment.rollback.add(session)
        found = Session(self._durable, session, inbox, self._equipment, known)
        if inbox.state.due is not None:
            self._durable.keep_driving(session, self._equipment)
        return found

    async def _version(self) -> str:
        """Of the harness that is here. Where nothing is driven there need be none: then the first life
        decides."""
        try:
            return (await self._equipment.adapter(self._spec.adapter).find()).version
        except HarnessMissing:
            if self._durable.drives:
                raise
            return ""
