"""What people use from Python: open a World, name an agent, find a session, send, follow, get the result.

Whoever sends need not be who drives. ``Durable`` drives the sessions that were opened through it, unless
another live worker holds one: then it waits, follows the log, and takes over when that worker dies.
"""

from __future__ import annotations

import uuid
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import msgspec
from anyio.abc import TaskGroup

from harness_durable import clock, fold, registry
from harness_durable.errors import NotFound, SessionBusy, StaleEpoch, StorageUnavailable, WriterFenced
from harness_durable.events import AgentSpec, Entry, ReplayPolicy
from harness_durable.journal import Inbox, Reader
from harness_durable.journal.inbox import WhenBusy
from harness_durable.runtime.equipment import Equipment
from harness_durable.runtime.groups import heaviest
from harness_durable.runtime.progress import shown
from harness_durable.runtime.worker import Worker
from harness_durable.settings import Settings, resolve
from harness_durable.state import Session as State
from harness_durable.state import TurnStatus
from harness_durable.tools import Tool
from harness_durable.world import World
from harness_durable.worlds import open_world


class TurnResult(msgspec.Struct, frozen=True):
    """How a turn was settled. ``unknown`` are the ids of calls whose outcome could not be known."""

    turn: str
    status: TurnStatus
    text: str
    reason: str
    lives: int
    unknown: tuple[str, ...]


class Durable:
    """An open World and a worker. Use ``async with Durable.open() as durable``."""

    def __init__(self, world: World, worker: Worker, settings: Settings, tasks: TaskGroup) -> None:
        self.world, self.worker, self.settings = world, worker, settings
        self._tasks = tasks
        self._driving: dict[str, anyio.Event] = {}
        self._wanted: set[str] = set()

    @classmethod
    @asynccontextmanager
    async def open(cls, world: str | None = None, **flags: Any) -> AsyncGenerator[Durable]:
        """Open the World of ``HARNESS_DURABLE_WORLD``, or of the URL given; ``flags`` are other settings.

        On the way out running harnesses are ended and their turns marked as interrupted by us; the next
        ``open`` continues them. Raises ``BadSetting``, ``UnknownName``, ``StorageUnavailable``.
        """
        settings = resolve({"world": world, **flags}).settings
        opened = await open_world(settings.world, settings.app)
        equipment = Equipment(settings)
        try:
            async with Worker.open(opened, equipment) as worker, anyio.create_task_group() as tasks:
                try:
                    yield cls(opened, worker, settings, tasks)
                finally:
                    worker.leaving = True
                    tasks.cancel_scope.cancel()
        except BaseExceptionGroup as group:
            raise heaviest(group) from group
        finally:
            with anyio.CancelScope(shield=True):
                await equipment.aclose()
                await opened.aclose()

    def agent(
        self,
        adapter: str | None = None,
        *,
        tools: Sequence[Tool] = (),
        sandbox: str | None = None,
        workspace: str | Path = ".",
        model: str | None = None,
        permission_mode: str = "default",
        effort: str | None = None,
        builtin_tools: Sequence[str] | None = None,
        system_prompt: str | None = None,
        policies: dict[str, ReplayPolicy] | None = None,
    ) -> Agent:
        """Name an agent: a harness with its model, tools and place. Raises ``UnknownName``."""
        adapter = adapter or self.settings.adapter
        sandbox = sandbox or self.settings.sandbox
        registry.load("adapter", adapter)
        registry.load("sandbox", sandbox)
        spec = AgentSpec(
            adapter=adapter,
            harness_version="",
            model=model or self.settings.model,
            sandbox=sandbox,
            workspace=str(Path(workspace).resolve()),
            permission_mode=permission_mode,
            effort=effort,
            tools=tuple(builtin_tools) if builtin_tools is not None else None,
            system_prompt=system_prompt,
            policies=policies or {},
        )
        return Agent(self, spec, Equipment(self.settings, tuple(tools)))

    def turn(self, session: str, turn: str) -> Turn:
        """A turn by the id of its message."""
        return Turn(self, session, turn)

    async def refuse_if_held(self, session: str) -> None:
        """Raises ``SessionBusy`` if another live worker drives the session."""
        row = await self.world.session(session)
        if row.owner is None or not row.owner_alive or row.owner.worker == self.worker.owner.worker:
            return
        claim = await self.world.claim_session(self.worker.owner, session)
        await self.world.release(session, claim.epoch)

    def keep_driving(self, session: str, equipment: Equipment) -> None:
        """See to it that somebody drives this session until it is idle; us, if nobody else does."""
        self._wanted.add(session)
        if session not in self._driving:
            self._driving[session] = anyio.Event()
            self._tasks.start_soon(self._keep_driving, session, equipment)

    async def until_idle(self, session: str, timeout: float = 10.0) -> None:
        """Return when nobody here drives the session any more, or after ``timeout`` seconds: a turn is settled
        a moment before its harness is gone."""
        ended = self._driving.get(session)
        if ended is not None:
            with anyio.move_on_after(timeout):
                await ended.wait()

    async def _keep_driving(self, session: str, equipment: Equipment) -> None:
        reader = Reader(self.world, session)
        pause = 0.05
        try:
            while session in self._wanted:
                self._wanted.discard(session)  # who asks from here on asks for another look
                try:
                    state = await reader.load()
                    if not state.has_work:
                        continue
                    self._wanted.add(session)
                    await self.worker.drive(session, equipment=equipment)
                    pause = 0.05
                except (SessionBusy, WriterFenced, StaleEpoch):
                    await clock.sleep(0.25)
                except StorageUnavailable:
                    self._wanted.add(session)
                    await clock.sleep(pause)
                    pause = min(pause * 2, 5.0)
        finally:
            self._driving.pop(session).set()


class Agent:
    """A harness with its model, tools and place. ``session`` creates or finds its sessions."""

    def __init__(self, durable: Durable, spec: AgentSpec, equipment: Equipment) -> None:
        self._durable, self._spec, self._equipment = durable, spec, equipment

    async def session(self, session: str | None = None, *, title: str = "") -> Session:
        """Create the session, or find it; its agent stays what it was when it was created. Work that an
        earlier process left is taken up at once.

        Raises ``HarnessMissing`` or ``UnsupportedVersion`` for a new session without its harness.
        """
        session = session or f"s-{uuid.uuid4().hex[:10]}"
        try:
            inbox = await Inbox.open(self._durable.world, session)
        except NotFound:
            adapter = self._equipment.adapter(self._spec.adapter)
            harness = await adapter.find()
            spec = msgspec.structs.replace(self._spec, harness_version=harness.version)
            inbox = await Inbox.create(self._durable.world, session, spec, title)
        found = Session(self._durable, session, inbox, self._equipment)
        if inbox.state.has_work:
            self._durable.keep_driving(session, self._equipment)
        return found


class Session:
    """One durable conversation."""

    def __init__(self, durable: Durable, session: str, inbox: Inbox, equipment: Equipment) -> None:
        self.id = session
        self._durable, self._inbox, self._equipment = durable, inbox, equipment

    async def state(self) -> State:
        """What the log amounts to now."""
        return await self._inbox.refresh()

    async def send(self, text: str, *, message_id: str | None = None, when_busy: WhenBusy = "queue") -> Turn:
        """Accept a message: durable on return, and worked on from then on. The same ``message_id`` again is
        the same message: nothing is written, and its turn is returned. Raises ``BadInput``."""
        message = message_id or f"m-{uuid.uuid4().hex[:10]}"
        await self._inbox.accept(message, text, when_busy)
        self._durable.keep_driving(self.id, self._equipment)
        accepted = self._inbox.state.messages[message]
        return Turn(self._durable, self.id, accepted.turn if accepted.kind == "steer" else message)

    async def steer(self, text: str, *, message_id: str | None = None) -> None:
        """Say something to the running turn; if there is none, it becomes a message."""
        await self.send(text, message_id=message_id, when_busy="steer")

    async def stop(self, by: str = "the caller") -> bool:
        """Ask for the running turn to be stopped; ``result`` of the turn tells when it is. False if idle."""
        return await self._inbox.request_stop(by)

    async def answer(self, request: str, *, allow: bool, by: str = "the caller", reason: str = "") -> None:
        """Answer a permission request by its id. Raises ``NotFound``."""
        await self._inbox.answer(request, allow=allow, by=by, reason=reason)

    def turn(self, turn: str) -> Turn:
        """A turn by the id of its message."""
        return Turn(self._durable, self.id, turn)


class Turn:
    """The work that a message started. Read from the log, whoever drives it."""

    def __init__(self, durable: Durable, session: str, turn: str | None) -> None:
        self.id = turn or ""
        self.session = session
        self._durable = durable
        self._reader = Reader(durable.world, session)

    async def events(self, after: int = 0) -> AsyncGenerator[Entry]:
        """Entries of the session's log from ``after`` on, until this turn is settled."""
        state, head = State(), (await self._durable.world.session(self.session)).head
        async for entry in self._reader.follow():
            fold.apply(state, entry)
            if entry.seq > after:
                yield entry
            turn = state.turns.get(self.id)
            # Settled within the past is not the end: a person may have let it go on since.
            if turn is not None and turn.settled and entry.seq >= head:
                return

    async def progress(self) -> str:
        """Text that is arriving just now: state, not history."""
        return shown(await self._durable.world.progress(self.session)).text

    async def result(self) -> TurnResult:
        """Wait until the turn is settled; one that needs a person is settled, too."""
        state = await self._reader.load()
        while True:
            turn = state.turns.get(self.id)
            if turn is not None and turn.settled:
                text = await self._reader.text(turn.text) if turn.text is not None else ""
                calls = state.calls(turn)
                unknown = tuple(call.id for call in calls if call.outcome == "unknown")
                return TurnResult(turn.id, turn.status, text, turn.reason, len(turn.lives), unknown)
            await self._durable.world.wait(self.session, state.seq, 30.0)
            async for entry in self._reader.entries(state.seq):
                fold.apply(state, entry)
