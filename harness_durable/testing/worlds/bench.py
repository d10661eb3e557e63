"""What a check gets to work with: an app of its own, Worlds opened on it, and second processes.

Each check runs on fresh apps, so that checks neither disturb each other nor anything else in the store;
afterwards all their sessions are deleted, and the apps themselves where the World can do that.
"""

from __future__ import annotations

import os
import uuid
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import AbstractContextManager, AsyncExitStack, asynccontextmanager, suppress
from importlib import import_module
from typing import Protocol, TypeVar, cast, runtime_checkable

import anyio
import msgspec

from harness_durable import clock
from harness_durable.errors import HarnessDurableError, NotFound
from harness_durable.testing import world_child
from harness_durable.testing.world_child import Register
from harness_durable.testing.worlds import process
from harness_durable.testing.worlds.process import PATIENCE, BrokenPromise, Child, expect
from harness_durable.world import LEASE_SECONDS, Owner, Record, RowUpdate, StoredRecord, World

T = TypeVar("T")

PARKED = RowUpdate("parked", None)


class Untried(str):
    """What a check saw that could not try everything here; says what."""


class Faults(Protocol):
    """How to hurt one kind of World. A module offers it as ``faults(url)`` beside its ``open_world``; a suite
    without it checks less, and says so. Nothing but what the suite made is hurt: the store may be in use."""

    def apart(self) -> AbstractContextManager[tuple[str, Faults]]:
        """The URL of a store that may be torn, with its faults: this one if a tear cannot reach other
        sessions, else one of the same kind beside it, which is gone afterwards."""
        ...

    async def break_store(self) -> None:
        """From now on no write by this process succeeds, as with a full disk or a lost database."""
        ...

    async def heal_store(self) -> None: ...

    async def tear(self, app: str, session: str) -> bool:
        """Cut the last append of a closed store in two. False if this World cannot be torn so."""
        ...

    async def damage(self, app: str, session: str, seq: int) -> bool:
        """Flip a byte in a record of a closed store. False if this World cannot be hurt so."""
        ...


@runtime_checkable
class FillsUp(Protocol):
    """What faults may offer beside ``Faults``, if it is a server that writes the World's files: otherwise a
    process finds out by itself what happens when its own files cannot grow."""

    async def fill_store(self) -> None:
        """From now on every write of this process fails as on a full disk; reading goes on."""
        ...

    async def empty_store(self) -> None: ...


@runtime_checkable
class RemovesApps(Protocol):
    """What a World may offer beside the contract, so that a check leaves no trace in its store."""

    async def remove_app(self) -> None:
        """Remove what is left of an app without sessions and without live workers."""
        ...


class Subject(msgspec.Struct, frozen=True):
    """The World under test. ``opener`` is ``module:function`` for the second processes; ``slack``
    multiplies every time limit (1 on a quiet machine). ``own_clock``: the store judges by a clock of its own
    what is due, so that a wall clock that jumps moves nothing which was said before."""

    url: str
    opener: str = "harness_durable.worlds:open_world"
    faults: Faults | None = None
    slack: float = 1.0
    own_clock: bool = False


class Bench:
    """One check's place of work."""

    def __init__(self, subject: Subject, stack: AsyncExitStack) -> None:
        self.subject, self._stack = subject, stack
        self._apps: list[str] = []
        self.app = self.fresh_app()
        self.slack, self.faults = subject.slack, subject.faults
        self._open: list[World] = []

    def fresh_app(self) -> str:
        """The name of one more app, which is cleaned up, too."""
        self._apps.append(fresh_app())
        return self._apps[-1]

    async def world(self, app: str | None = None) -> World:
        """One more instance, in this process."""
        world = await world_child.load_opener(self.subject.opener)(self.subject.url, app or self.app)
        self._open.append(world)
        return world

    async def close(self, world: World) -> None:
        self._open.remove(world)
        await world.aclose()

    async def child(self, app: str | None = None) -> Child:
        """One more process on the World; not registered as a worker."""
        subject = self.subject
        child, lines = await process.start(subject.opener, subject.url, app or self.app)
        self._stack.push_async_callback(process.end, child)
        return await process.greet(child, lines)

    async def worker(self, app: str | None = None, lease: float = LEASE_SECONDS) -> Child:
        """A process that is registered as a worker."""
        child = await self.child(app)
        await child.must(Register(lease=lease))
        return child

    async def workers(self, count: int) -> list[Child]:
        """Several at once: most of the time goes into starting Python."""
        return await together(*(self.worker() for _ in range(count)))

    async def until(self, what: str, probe: Callable[[], Awaitable[T | None]]) -> T:
        """Ask until the answer is not None or empty; ``what`` is for the sentence if it never comes."""
        end = clock.monotonic() + PATIENCE * self.slack
        while not (answer := await probe()):
            expect(clock.monotonic() < end, f"in {PATIENCE * self.slack:.0f} s {what} did not happen")
            await clock.sleep(0.005)
        return answer

    @asynccontextmanager
    async def apart(self, faults: Faults) -> AsyncGenerator[tuple[Bench, Faults]]:
        """A bench on a store that may be torn."""
        with faults.apart() as (url, hooks):
            async with bench(msgspec.structs.replace(self.subject, url=url, faults=hooks)) as place:
                yield place, hooks

    async def clean(self) -> None:
        """Close what the check opened, so that its workers are dead, and delete what it left in the store."""
        while self._open:
            await self.close(self._open[-1])
        for app in self._apps:
            await _sweep(self.subject, app)


def faults_of(url: str, opener: str) -> Faults | None:
    """What the opener's module offers for this World, if it offers anything."""
    offered = getattr(import_module(opener.partition(":")[0]), "faults", None)
    return cast(Callable[[str], Faults | None], offered)(url) if offered is not None else None


@asynccontextmanager
async def bench(subject: Subject) -> AsyncGenerator[Bench]:
    """A fresh bench. Processes end before Worlds close, so that sessions are nobody's by then."""
    async with AsyncExitStack() as stack:
        place = Bench(subject, stack)
        stack.push_async_callback(place.clean)
        yield place


async def _sweep(subject: Subject, app: str) -> None:
    """Best effort: a World that is broken has been reported by the check itself."""
    with suppress(HarnessDurableError):
        world = await world_child.load_opener(subject.opener)(subject.url, app)
        try:
            for row in await world.sessions():
                await world.delete(row.session)
            await remove_app(world)
        finally:
            await world.aclose()


async def remove_app(world: World) -> None:
    """Leave nothing of the World's app, if the World can do that."""
    if isinstance(world, RemovesApps):
        await world.remove_app()


def fresh_app() -> str:
    """A name that no app has."""
    return f"check-{uuid.uuid4().hex[:12]}"


def owner() -> Owner:
    """A worker of this process, as after a fresh boot."""
    return Owner(str(uuid.uuid4()), os.uname().nodename, os.getpid())


async def worker(world: World, lease: float = LEASE_SECONDS) -> Owner:
    """A registered worker of this process."""
    mine = owner()
    await world.register(mine, lease)
    return mine


note = world_child.note


def due_now(status: str = "queued") -> RowUpdate:
    return RowUpdate(status, clock.now_ms() - 1)


async def begin(world: World, session: str, *records: Record, row: RowUpdate = PARKED) -> int:
    """Create a session, with one note unless told otherwise; its head."""
    first = records or (note(b"begun"),)
    expect(await world.create(session, first, row), f"creating the new session {session!r} gave False")
    return len(first)


async def add(world: World, session: str, head: int, epoch: int = 0, count: int = 1) -> int:
    """Append ``count`` notes in one go; the new head."""
    records = [note(b"note %d" % n) for n in range(count)]
    return await world.append(session, expected_head=head, epoch=epoch, records=records)


async def refused(call: Awaitable[object], error: type[T], what: str) -> T:
    """Await ``call``, which has to raise ``error``; the error."""
    try:
        answer = await call
    except Exception as raised:
        if isinstance(raised, error):
            return raised
        sentence = f"{what} raised {type(raised).__name__} ({raised}), not {error.__name__}"
        raise BrokenPromise(sentence) from raised
    raise BrokenPromise(f"{what} gave {answer!r} where {error.__name__} is due")


async def gone(call: Awaitable[object], what: str) -> None:
    await refused(call, NotFound, what)


def dense(log: Sequence[StoredRecord], what: str, after: int = 0) -> None:
    """The records are numbered without a hole."""
    found = [record.seq for record in log]
    wanted = list(range(after + 1, after + 1 + len(log)))
    expect(found == wanted, f"{what}: seq is {found[:20]}, not {wanted[:20]}")


def content(log: Sequence[StoredRecord]) -> list[tuple[str, str, int, bytes]]:
    """Records as their writers handed them in."""
    return [(record.id, record.kind, record.time, record.body) for record in log]


def given(records: Sequence[Record]) -> list[tuple[str, str, int, bytes]]:
    return [(record.id, record.kind, record.time, record.body) for record in records]


async def together(*calls: Awaitable[T]) -> list[T]:
    """Run all at once; their answers in order. The first error ends all."""
    answers: dict[int, T] = {}

    async def one(place: int, call: Awaitable[T]) -> None:
        answers[place] = await call

    try:
        async with anyio.create_task_group() as group:
            for place, call in enumerate(calls):
                group.start_soon(one, place, call)
    except BaseExceptionGroup as several:
        raise several.exceptions[0] from None
    return [answers[place] for place in range(len(calls))]
