"""Two stores to copy between, and Worlds that die, or are meddled with, at a call that a test chooses."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from typing import NamedTuple, NoReturn, cast

import anyio

from harness_durable.copying import Report, copy_session
from harness_durable.events import AgentSpec
from harness_durable.journal import Inbox
from harness_durable.moving import Mover
from harness_durable.world import RowUpdate, StoredRecord, World
from harness_durable.worlds import open_world

AGENT = AgentSpec("claude-code", "2.1.332", "m", "local", "/w")
TO = "app 'there' of the other store"
LONG = "a message with a blob of its own. " * 4000


class Death(BaseException):
    """Of the process: nothing that it does afterwards reaches a store."""


class Fate:
    """Dies at the step ``at``, counted over all Worlds, from 1; ``steps`` are their names so far."""

    def __init__(self, at: int = 0, die: Callable[[], NoReturn] | None = None) -> None:
        self.at, self.steps = at, list[str]()
        self._die = die

    def step(self, name: str) -> None:
        self.steps.append(name)
        if self.at and len(self.steps) >= self.at:
            raise Death(name) if self._die is None else self._die()


class Meddled:
    """A World. Before and after each call ``step`` hears ``before NAME`` and ``after NAME``; ``before`` and
    ``instead`` are what a test has to do with a call of that name."""

    def __init__(
        self,
        world: World,
        step: Callable[[str], None] = lambda name: None,
        *,
        before: dict[str, Callable[[], Awaitable[object]]] | None = None,
        instead: dict[str, Callable[..., Awaitable[object]]] | None = None,
    ) -> None:
        self._world, self._step = world, step
        self._before, self._instead = before or {}, instead or {}

    def __getattr__(self, name: str) -> object:
        found = self._instead.get(name) or getattr(self._world, name)
        if name in ("app", "blobs"):
            return found

        async def call(*given: object, **named: object) -> object:
            hook = self._before.pop(name, None)
            if hook is not None:
                await hook()
            self._step(f"before {name}")
            answer = await found(*given, **named)
            self._step(f"after {name}")
            return answer

        return call


def meddled(
    world: World,
    step: Callable[[str], None] = lambda name: None,
    *,
    before: dict[str, Callable[[], Awaitable[object]]] | None = None,
    instead: dict[str, Callable[..., Awaitable[object]]] | None = None,
) -> World:
    return cast(World, Meddled(world, step, before=before, instead=instead))


class Two(NamedTuple):
    source: World
    target: World

    async def copy(self, session: str = "s") -> Report:
        return await copy_session(self.source, self.target, session, quiet)

    async def move(self, session: str = "s", *, to: str = TO, redirect: bool = False) -> Report:
        async with Mover.open(self.source, self.target, to, quiet, redirect=redirect) as mover:
            return await mover.move(session)


@asynccontextmanager
async def two(source: str, target: str, app: str = "here", to_app: str = "there") -> AsyncGenerator[Two]:
    old = await open_world(source, app)
    try:
        new = await open_world(target, to_app)
        try:
            yield Two(old, new)
        finally:
            await new.aclose()
    finally:
        await old.aclose()


def quiet(text: str) -> None:
    """Progress that nobody looks at."""


class Whole(NamedTuple):
    records: Sequence[StoredRecord]
    blobs: dict[str, bytes]
    row: RowUpdate


async def whole(world: World, session: str = "s") -> Whole:
    row = await world.session(session)
    blobs = {name: body async for name, body in world.blobs(session)}
    return Whole(await world.read(session), blobs, RowUpdate(row.status, row.due))


async def sent_message(world: World, session: str = "s") -> None:
    """A session that has work: a message with a blob."""
    inbox = await Inbox.create(world, session, AGENT)
    await inbox.accept("m-1", LONG)


async def _child(source: str, target: str, name: str, count: int) -> None:
    """Move session ``s``, and be killed when the step ``name`` comes for the ``count``-th time."""

    def step(found: str) -> None:
        nonlocal count
        count -= found == name
        if count == 0:
            os.kill(os.getpid(), signal.SIGKILL)

    async with two(source, target) as stores:
        await Two(meddled(stores.source, step), meddled(stores.target, step)).move()


if __name__ == "__main__":
    anyio.run(_child, sys.argv[1], sys.argv[2], sys.argv[3], int(sys.argv[4]))
