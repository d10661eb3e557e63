"""Slots of a worker service: who gets one, for how long; and what is left to another worker."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import anyio
import pytest

from harness_durable.adapter import LifeContext, TurnEnd
from harness_durable.errors import WorkspaceMissing
from harness_durable.events import AgentSpec
from harness_durable.runtime.equipment import Equipment
from harness_durable.runtime.service import Service
from harness_durable.runtime.worker import Worker
from harness_durable.sandbox import LifeRef, LifeSpec, Link
from harness_durable.settings import Settings
from harness_durable.tools import tool
from harness_durable.world import Claim, Owner
from tests.runtime.kit import (
    HandClock,
    Harness,
    Place,
    Store,
    Works,
    accepted,
    completes,
    equipped,
    is_,
    until,
)
from tests.unit.memory_world import MemoryWorld
from tests.unit.session_kit import SESSION


@tool(replay="never")
def deploy(version: str) -> str:
    """Put a version into production."""
    return version


class Counting(Store):
    """Remembers who claimed what, in order; a slow queue: nothing is looked at before somebody says so."""

    def __init__(self) -> None:
        super().__init__()
        self.claimed: list[tuple[str, str]] = []
        self.waits = 0

    async def claim(self, owner: Owner, limit: int) -> list[Claim]:
        found = await super().claim(owner, limit)
        self.claimed += [(owner.worker, claim.session) for claim in found]
        return found


class Deaf(Counting):
    """Nobody ever hears that something is due."""

    async def wait_due(self, timeout: float) -> None:
        await anyio.sleep_forever()


@asynccontextmanager
async def serving(world: MemoryWorld, *equipments: Equipment) -> AsyncGenerator[list[Service]]:
    """One worker for each equipment, at work until the body ends."""
    with anyio.fail_after(30):
        async with anyio.create_task_group() as tasks:
            services: list[Service] = []

            async def work(equipment: Equipment, ready: anyio.Event) -> None:
                async with Worker.open(world, equipment) as worker:
                    services.append(Service(worker))
                    ready.set()
                    await services[-1].run()

            for equipment in equipments:
                ready = anyio.Event()
                tasks.start_soon(work, equipment, ready)
                await ready.wait()
            yield services
            tasks.cancel_scope.cancel()


@dataclass
class Diary:
    """A harness's script that notes whose turn it is."""

    turns: list[str] = field(default_factory=list[str])

    async def __call__(self, ctx: LifeContext, link: Link) -> TurnEnd:
        self.turns.append(f"{ctx.session}/{ctx.turn}")
        return TurnEnd("completed", "done")


async def test_an_endless_queue_of_messages_does_not_keep_a_slot_from_others() -> None:
    world, diary = Store(), Diary()
    await accepted(world, *(f"m-{number}" for number in range(1, 6)), session="endless")
    await accepted(world, "m-1", session="other")
    async with serving(world, equipped(Harness(diary), concurrency=1)):
        await until(is_(world, "completed", "m-5", session="endless"))
        await until(is_(world, "completed", session="other"))
    assert diary.turns[:3] == ["endless/m-1", "other/m-1", "endless/m-2"]
    assert sorted(diary.turns)[:5] == [f"endless/m-{number}" for number in range(1, 6)]


async def test_with_a_free_slot_a_session_keeps_its_own() -> None:
    world, diary = Counting(), Diary()
    await accepted(world, "m-1", "m-2", "m-3")
    async with serving(world, equipped(Harness(diary), concurrency=2)):
        await until(is_(world, "completed", "m-3"))
    assert [session for _, session in world.claimed] == [SESSION]


async def test_a_slot_that_gets_free_is_filled_at_once_whatever_the_queue_says(hands: HandClock) -> None:
    """The clock stands still: nobody gets by with looking again later."""
    world, works = Deaf(), Works()
    for name in ("a", "b", "c"):
        await accepted(world, "m-1", session=name)
    async with serving(world, equipped(Harness(works, completes()), concurrency=1)):
        await works.begun.wait()
        works.enough.set()
        for name in ("a", "b", "c"):
            await until(is_(world, "completed", session=name))


async def test_as_many_are_claimed_at_once_as_slots_are_free() -> None:
    limits: list[int] = []

    class Batches(Store):
        async def claim(self, owner: Owner, limit: int) -> list[Claim]:
            limits.append(limit)
            return await super().claim(owner, limit)

    world, works = Batches(), [Works() for _ in range(3)]
    for name in ("a", "b", "c"):
        await accepted(world, "m-1", session=name)
    async with serving(world, equipped(Harness(*works), concurrency=5)):
        await works[2].begun.wait()
        await until(lambda: _true(2 in limits))
    assert limits[0] == 5


async def test_two_workers_do_not_play_ping_pong_with_a_session_that_neither_can_drive(
    hands: HandClock,
) -> None:
    world = Counting()
    agent = AgentSpec("claude-code", "2.1.0", "x", "local", "/ws", custom_tools=("deploy",))
    await accepted(world, "m-1", agent=agent)
    async with serving(world, *(equipped(lease_seconds=3600) for _ in range(2))):
        for _ in range(120):
            await hands.advance(0.5)
            await anyio.sleep(0.002)
    assert 4 <= len(world.claimed) <= 14, "each later and later, for both"


async def test_what_one_worker_lacks_is_left_to_another_that_has_it() -> None:
    world = Counting()
    agent = AgentSpec("claude-code", "2.1.0", "x", "local", "/ws", custom_tools=("deploy",))
    lacks, has = equipped(), equipped(None, None, deploy)
    async with serving(world, lacks, has):
        for number in range(5):
            await accepted(world, "m-1", session=f"s-{number}", agent=agent)
            await until(is_(world, "completed", session=f"s-{number}"))
    assert len(world.claimed) <= 10, "one look by the one, and then the other's"


async def test_a_workspace_that_is_on_another_host_is_found_there(hands: HandClock) -> None:
    class Elsewhere(Place):
        async def start(self, spec: LifeSpec, epoch: int) -> tuple[LifeRef, Link]:
            raise WorkspaceMissing("the folder ws is not there; make it, then resume the session")

    world, here = Counting(), Place()
    async with serving(world, equipped(None, Elsewhere(), lease_seconds=3600)) as [lacking]:
        await accepted(world, "m-1")
        await until(lambda: _true(len(world.claimed) > 1), hands)
        async with serving(world, equipped(None, here, lease_seconds=3600)):
            await until(is_(world, "completed"), hands)
        assert lacking.free == 4


async def test_an_unknown_bug_does_not_end_the_service(caplog: pytest.LogCaptureFixture) -> None:
    class Odd(Store):
        async def release(self, session: str, epoch: int, due: int | None = None) -> None:
            if session == "a":
                raise ZeroDivisionError("in the store's driver")
            await super().release(session, epoch, due)

    world = Odd()
    await accepted(world, "m-1", session="a")
    await accepted(world, "m-1", session="b")
    async with serving(world, equipped(concurrency=1)) as [service]:
        await until(is_(world, "completed", session="b"))
        await until(lambda: _true(service.free == 1))
    assert any(record.exc_info for record in caplog.records)


async def _true(value: bool) -> bool:
    return value


def test_what_can_be_set() -> None:
    found = Settings.model_validate({})
    assert (found.drain_seconds, found.store_patience_seconds, found.health) == (5.0, 120.0, "")
