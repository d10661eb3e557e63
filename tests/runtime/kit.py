"""A harness, a sandbox and a store that do as they are told, so that the runtime can be watched at its work.

``Harness`` is an adapter whose lives are functions; ``Place`` a sandbox whose lives are names in a set;
``Store`` a World in memory that can go away and come back; ``HandClock`` a clock that stands still until it
is moved."""

from __future__ import annotations

import heapq
import itertools
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

import anyio
import anyio.lowlevel
from anyio.abc import ByteStream

from harness_durable import adapter as contract
from harness_durable.adapter import Capabilities, Launch, LifeContext, TurnEnd
from harness_durable.errors import KeeperGone, StaleEpoch, StorageUnavailable
from harness_durable.events import AgentSpec, ReplayPolicy
from harness_durable.journal import Inbox, Reader
from harness_durable.runtime.driver import Driver
from harness_durable.runtime.equipment import Equipment
from harness_durable.sandbox import ExecResult, Exit, LifeRef, LifeSpec, Link, Request
from harness_durable.settings import Settings
from harness_durable.state import Session, Turn
from harness_durable.tools import Tool
from harness_durable.world import LEASE_SECONDS, Claim, Owner, StoredRecord, World
from tests.unit.memory_world import OTHER, OWNER, MemoryWorld
from tests.unit.session_kit import AGENT, SESSION, seen

T = TypeVar("T")

AWAY = "the store is away; wait until it is back"

# ------------------------------------------------------------------------------------------- time


class HandClock:
    """Stands still until ``advance`` or ``jump`` moves it."""

    def __init__(self) -> None:
        self._now = 1_000_000.0
        self._numbers = itertools.count()
        self._sleepers: list[tuple[float, int, anyio.Event]] = []

    def now_ms(self) -> int:
        return int(self._now * 1000)

    def monotonic(self) -> float:
        return self._now

    async def sleep(self, seconds: float) -> None:
        sleeper = (self._now + seconds, next(self._numbers), anyio.Event())
        heapq.heappush(self._sleepers, sleeper)
        try:
            await sleeper[2].wait()
        finally:
            if sleeper in self._sleepers:
                self._sleepers.remove(sleeper)
                heapq.heapify(self._sleepers)

    async def advance(self, seconds: float) -> None:
        """Let time pass; who sleeps wakes up in order, and does what there is to do, before it goes on."""
        await breathe()
        end = self._now + seconds
        while self._sleepers and self._sleepers[0][0] <= end:
            due, _, wake = heapq.heappop(self._sleepers)
            self._now = max(self._now, due)
            wake.set()
            await breathe()
        self._now = end

    async def jump(self) -> None:
        """Let time pass until the next one wakes up."""
        await breathe()
        if self._sleepers:
            await self.advance(max(0.0, self._sleepers[0][0] - self._now))


async def breathe() -> None:
    """Let every other task do what it can do now."""
    for _ in range(30):
        await anyio.lowlevel.checkpoint()


async def until(
    condition: Callable[[], Awaitable[bool]], hands: HandClock | None = None, seconds: float = 20.0
) -> None:
    """Wait until it is so. With a clock in ``hands``, its time passes while we wait."""
    deadline = time.monotonic() + seconds
    while not await condition():
        assert time.monotonic() < deadline, "waited in vain"
        if hands is not None:
            await hands.jump()
        await anyio.sleep(0.002)


async def at_hand(
    work: Callable[[], Awaitable[T]], hands: HandClock, *others: Callable[[], Coroutine[Any, Any, None]]
) -> T:
    """Do the work, and what ``others`` do, while the clock's time passes."""
    found: list[T] = []

    async def do() -> None:
        found.append(await work())

    async def done() -> bool:
        return bool(found)

    async with anyio.create_task_group() as tasks:
        for other in (do, *others):
            tasks.start_soon(other)
        await until(done, hands)
    return found[0]


# ------------------------------------------------------------------------------------------ store


class Store(MemoryWorld):
    """``down``: nothing can be reached. ``fail_reads``, ``fail_waits``: how many of the next calls fail.
    ``after_read`` runs when a read is about to return, as anybody else might."""

    def __init__(self) -> None:
        super().__init__()
        self.down = False
        self.fail_reads = self.fail_waits = 0
        self.after_read: Callable[[], Awaitable[None]] | None = None
        self.registered: list[Owner] = []

    async def register(self, owner: Owner, lease: float = LEASE_SECONDS) -> None:
        self._reach()
        self.registered.append(owner)
        await super().register(owner, lease)

    async def renew(self, owner: Owner) -> None:
        self._reach()
        await super().renew(owner)

    async def unregister(self, owner: Owner) -> None:
        self._reach()
        await super().unregister(owner)

    async def claim(self, owner: Owner, limit: int) -> list[Claim]:
        self._reach()
        return await super().claim(owner, limit)

    async def read(self, session: str, after: int = 0, limit: int | None = None) -> list[StoredRecord]:
        if self.fail_reads:
            self.fail_reads -= 1
            raise StorageUnavailable(AWAY)
        found = await super().read(session, after, limit)
        if self.after_read is not None:
            await self.after_read()
        return found

    async def wait(self, session: str, after: int, timeout: float) -> int:
        if self.fail_waits:
            self.fail_waits -= 1
            raise StorageUnavailable(AWAY)
        return await super().wait(session, after, timeout)

    async def wait_due(self, timeout: float) -> None:
        await anyio.sleep(0.002)

    def _get(self, session: str) -> Any:
        self._reach()
        return super()._get(session)

    def _reach(self) -> None:
        if self.down:
            raise StorageUnavailable(AWAY)


class Refusing(Store):
    """Does not take sessions back, as often as ``refusals`` says."""

    refusals = 0

    async def release(self, session: str, epoch: int, *rest: Any, **more: Any) -> None:
        if self.refusals:
            self.refusals -= 1
            raise StorageUnavailable(AWAY)
        await super().release(session, epoch, *rest, **more)


# ---------------------------------------------------------------------------------------- sandbox


class Hold:
    """A worker's hold on a life of ``Place``. The harness in it says nothing and asks for nothing."""

    def __init__(self, place: Place, life: str, token: str) -> None:
        self._place, self.life, self.closed = place, life, False
        self.token, self.exit, self.stdin_offset = token, None, 0
        self.frames: list[bytes] = []

    exit: Exit | None

    async def said(self) -> bytes:
        return b"".join(self.frames)

    async def write(self, frame: bytes) -> None:
        self.frames.append(frame)
        self.stdin_offset += len(frame)

    async def output(self, offset: int = 0) -> AsyncIterator[tuple[int, bytes]]:
        await self._place.gone(self.life)
        return
        yield offset, b""

    async def errors(self, tail: int = 4096) -> bytes:
        return b""

    async def requests(self) -> AsyncIterator[Request]:
        await self._place.gone(self.life)
        raise KeeperGone(f"the keeper of {self.life} is gone; recover the session")
        yield

    async def dial(self, port: int) -> ByteStream:
        raise anyio.ClosedResourceError(f"nobody listens at {port}")

    async def pid(self) -> int:
        return 1

    async def shutdown(self) -> None:
        await self._place.reap(self._place.locate(self.life))

    async def aclose(self) -> None:
        self.closed = True


class Place:
    """Lives are names in a set: here, they live."""

    name = "local"

    def __init__(self, *lives: str) -> None:
        self.lives, self.reaped = set(lives), list[str]()
        self.holds: list[Hold] = []
        self.epochs: dict[str, int] = {}
        """The newest epoch that has hold of each life."""
        self.foreign: set[str] = set()
        """Lives of another machine: nothing can be done about them."""
        self.specs: list[LifeSpec] = []
        """Of all lives that were started."""
        self.start_fails: list[Exception] = []
        self.attach_fails: list[Exception] = []
        self.started: Callable[[], Awaitable[None]] | None = None
        """Runs when a life has been started, before anybody has hold of it."""
        self.attached: Callable[[], Awaitable[None]] | None = None
        self.closed = False
        self.ran: list[tuple[tuple[str, ...], Path]] = []
        """Commands, and where."""
        self._change = anyio.Event()

    def locate(self, life: str) -> LifeRef:
        return LifeRef(life, self.name, f"run/{life}", "here")

    def home(self, ref: LifeRef) -> str:
        return f"{ref.run_dir}/home"

    async def start(self, spec: LifeSpec, epoch: int) -> tuple[LifeRef, Link]:
        if self.start_fails:
            raise self.start_fails.pop(0)
        self.epochs[spec.life] = epoch
        self.specs.append(spec)
        self.lives.add(spec.life)
        if self.started is not None:
            await self.started()
        return self.locate(spec.life), self._hold(spec.life, spec.token)

    async def attach(self, ref: LifeRef, epoch: int) -> Link:
        if self.attach_fails:
            raise self.attach_fails.pop(0)
        if ref.life not in self.lives:
            raise KeeperGone(f"no keeper of {ref.life} here; recover the session")
        self.epochs[ref.life] = epoch
        hold = self._hold(ref.life, "token")
        if self.attached is not None:
            await self.attached()
        return hold

    async def alive(self, ref: LifeRef) -> bool:
        return ref.life in self.lives

    async def reap(self, ref: LifeRef, epoch: int | None = None) -> bool:
        newest = self.epochs.get(ref.life, 0)
        if ref.life in self.lives and epoch is not None and epoch < newest:
            raise StaleEpoch(epoch, newest)
        self.reaped.append(ref.life)
        self.die(ref.life)
        return ref.life not in self.foreign

    async def exec(
        self,
        argv: tuple[str, ...],
        *,
        cwd: Path,
        env: Mapping[str, str],
        stdin: bytes = b"",
        timeout: float,
        options: Mapping[str, str] = {},
    ) -> ExecResult:
        self.ran.append((argv, cwd))
        return ExecResult(0, b"", b"")

    async def aclose(self) -> None:
        self.closed = True

    def die(self, *lives: str) -> None:
        """The keepers of these lives, or of all, die."""
        self.lives -= set(lives) or set(self.lives)
        self._change.set()
        self._change = anyio.Event()

    async def gone(self, life: str) -> None:
        while life in self.lives:
            await self._change.wait()

    def _hold(self, life: str, token: str) -> Hold:
        self.holds.append(Hold(self, life, token))
        return self.holds[-1]


# ---------------------------------------------------------------------------------------- harness

Script = Callable[[LifeContext, Link], Awaitable[TurnEnd]]
"""What a harness does in one life."""


class Harness:
    """Its n-th life does the n-th script; the last one is done again and again."""

    name = "claude-code"
    wire = "anthropic"
    capabilities = Capabilities(steer=True, stop=True, custom_tools=True, subagents=False, exact=frozenset())
    policies: Mapping[str, ReplayPolicy] = {"Read": "safe"}
    containers = frozenset[str]()
    versions = ("2.1.0",)

    def __init__(self, *scripts: Script) -> None:
        self._scripts = scripts or (completes(),)
        self.lives: list[LifeContext] = []
        self.missing: Exception | None = None

    @property
    def rungs(self) -> list[str]:
        return [context.rung for context in self.lives]

    def custom_name(self, tool: str) -> str:
        return seen(tool)

    async def install(self, version: str | None, progress: Callable[[str], None]) -> contract.Harness:
        return await self.find(version)

    async def check(self) -> Sequence[str]:
        return ()

    async def find(self, version: str | None = None) -> contract.Harness:
        if self.missing is not None:
            raise self.missing
        return contract.Harness("harness", version or "2.1.0")

    async def prepare(self, ctx: LifeContext) -> Launch:
        return Launch(("harness",), {}, {})

    async def drive(self, ctx: LifeContext, link: Link) -> TurnEnd:
        self.lives.append(ctx)
        return await self._scripts[min(len(self.lives), len(self._scripts)) - 1](ctx, link)


def completes(text: str = "done") -> Script:
    return ends(TurnEnd("completed", text))


def ends(end: TurnEnd) -> Script:
    async def script(ctx: LifeContext, link: Link) -> TurnEnd:
        return end

    return script


def raises(error: Exception) -> Script:
    async def script(ctx: LifeContext, link: Link) -> TurnEnd:
        raise error

    return script


class Works:
    """A life that works until it is told to end, or for ever. ``begun`` is set once it has begun."""

    def __init__(self) -> None:
        self.begun, self.enough = anyio.Event(), anyio.Event()

    async def __call__(self, ctx: LifeContext, link: Link) -> TurnEnd:
        self.begun.set()
        await self.enough.wait()
        return TurnEnd("completed", "worked")


# ------------------------------------------------------------------------------------------ scene


def equipped(
    harness: Harness | None = None, place: Place | None = None, *tools: Tool, **settings: object
) -> Equipment:
    """A worker's equipment, with these in place of the real ones."""
    found = Settings.model_validate({"upstream_url": "http://127.0.0.1:9", **settings})
    adapters: dict[str, contract.Adapter] = {"claude-code": harness or Harness()}
    return Equipment(found, tools, adapters, {"local": place or Place()})


async def accepted(world: World, *messages: str, session: str = SESSION, agent: AgentSpec = AGENT) -> Inbox:
    """A session with these messages."""
    inbox = await Inbox.create(world, session, agent)
    for message in messages:
        await inbox.accept(message, "do it")
    return inbox


async def driver(
    world: MemoryWorld,
    equipment: Equipment,
    owner: Owner = OTHER,
    abandoned: Callable[[], bool] = lambda: False,
    *,
    rival: bool = False,
) -> Driver:
    """The session in the hands of this owner. Whoever had it is dead, unless there is a ``rival``."""
    if not rival:
        world.dead.add(OWNER)
    await world.register(owner)
    claim = await world.claim_session(owner, SESSION, take_over=True)
    return await Driver.open(world, claim, owner, equipment, abandoned)


async def driven(world: MemoryWorld, equipment: Equipment, *, rival: bool = False) -> Session:
    """Drive until nothing is left to do; the state then."""
    with anyio.fail_after(20):
        await (await driver(world, equipment, rival=rival)).run()
    return await state_of(world)


async def state_of(world: World, session: str = SESSION) -> Session:
    return await Reader(world, session).load()


async def turn_of(world: World, turn: str = "m-1", session: str = SESSION) -> Turn:
    return (await state_of(world, session)).turns[turn]


def is_(
    world: World, status: str, turn: str = "m-1", session: str = SESSION
) -> Callable[[], Awaitable[bool]]:
    """For ``until``: the turn has this status."""

    async def check() -> bool:
        known = (await state_of(world, session)).turns.get(turn)
        return known is not None and known.status == status

    return check
