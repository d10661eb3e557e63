"""A worker whose store goes away: it stops before anybody may think it dead, and comes back as another."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import anyio
import pytest

from harness_durable.errors import LeaseLost, StorageUnavailable
from harness_durable.runtime.service import Service
from harness_durable.runtime.worker import Worker
from harness_durable.world import Owner
from harness_durable.worlds import open_world
from tests.runtime.kit import (
    HandClock,
    Harness,
    Place,
    Refusing,
    Store,
    Works,
    accepted,
    completes,
    equipped,
    is_,
    state_of,
    turn_of,
    until,
)
from tests.unit.session_kit import SESSION

LEASE = 15.0


class Renewals(Store):
    """Counts them."""

    def __init__(self) -> None:
        super().__init__()
        self.renewed: list[str] = []

    async def renew(self, owner: Owner) -> None:
        await super().renew(owner)
        self.renewed.append(owner.worker)


async def test_a_lease_is_renewed_every_third_of_it(hands: HandClock) -> None:
    world = Renewals()
    async with Worker.open(world, equipped(lease_seconds=LEASE)) as worker:
        await hands.advance(LEASE)
        assert world.renewed == [worker.owner.worker] * 3


async def test_a_store_that_is_away_for_a_moment_stops_nothing(hands: HandClock) -> None:
    world, works = Renewals(), Works()
    await accepted(world, "m-1")
    async with (
        Worker.open(world, equipped(Harness(works), lease_seconds=LEASE)) as worker,
        anyio.create_task_group() as tasks,
    ):
        tasks.start_soon(worker.drive, SESSION)
        await works.begun.wait()
        before, world.down = worker.owner, True
        await hands.advance(LEASE / 3 + 4)
        world.down = False
        await hands.advance(LEASE)
        assert (worker.owner, len(world.registered)) == (before, 1)
        works.enough.set()
    assert (await turn_of(world)).status == "completed"


async def test_after_two_thirds_without_a_renewal_driving_stops_and_the_life_is_left_alone(
    hands: HandClock,
) -> None:
    """C079: it stops itself before others may think that its lease is over."""
    world, works, place = Store(), Works(), Place()
    await accepted(world, "m-1")
    lost: list[LeaseLost] = []

    async with (
        Worker.open(world, equipped(Harness(works), place, lease_seconds=LEASE)) as worker,
        anyio.create_task_group() as tasks,
    ):

        async def drive() -> None:
            with pytest.raises(LeaseLost) as found:
                await worker.drive(SESSION)
            lost.append(found.value)

        tasks.start_soon(drive)
        await works.begun.wait()
        before = len(await world.read(SESSION))
        world.down = True
        await hands.advance(LEASE * 2 / 3 - 0.1)
        assert lost == []
        await hands.advance(1.0)
        assert len(lost) == 1
        world.down = False
        assert (place.reaped, len(place.lives)) == ([], 1)
        assert [record.kind for record in await world.read(SESSION, before)] == []


async def test_when_the_store_is_back_the_worker_registers_as_another_one(hands: HandClock) -> None:
    world = Store()
    async with Worker.open(world, equipped(lease_seconds=LEASE)) as worker:
        first, world.down = worker.owner, True
        await hands.advance(LEASE * 3)
        assert (worker.owner, world.registered) == (first, [first])
        world.down = False

        async def back() -> bool:
            return len(world.registered) == 2

        await until(back, hands)
        assert worker.owner == world.registered[1] != first
        assert (worker.owner.host, worker.owner.pid) == (first.host, first.pid)


async def test_a_worker_that_the_store_has_forgotten_begins_anew_at_once(hands: HandClock) -> None:
    class Forgets(Renewals):
        async def renew(self, owner: Owner) -> None:
            if owner == self.registered[0]:
                raise LeaseLost("this store does not know the worker any more")
            await super().renew(owner)

    world, works, place = Forgets(), Works(), Place()
    await accepted(world, "m-1")
    async with (
        Worker.open(world, equipped(Harness(works, completes()), place, lease_seconds=LEASE)) as worker,
        anyio.create_task_group() as tasks,
    ):
        tasks.start_soon(Service(worker).run)
        await until(_begun(works), hands)
        await hands.advance(LEASE / 3 + 0.1)
        await until(is_(world, "completed"), hands)
        assert (worker.owner, len(world.registered)) == (world.registered[1], 2)
        assert worker.contact.away == 0, "it was an answer"
        tasks.cancel_scope.cancel()
    assert len((await state_of(world)).lives) == 1, "the life went on under the new name"


async def test_the_same_worker_takes_its_sessions_up_again_and_attaches(hands: HandClock) -> None:
    world, works, place = Store(), Works(), Place()
    harness = Harness(works, completes("after the outage"))
    await accepted(world, "m-1")
    async with (
        Worker.open(world, equipped(harness, place, lease_seconds=LEASE)) as worker,
        anyio.create_task_group() as tasks,
    ):
        tasks.start_soon(Service(worker).run)
        await until(_begun(works), hands)
        world.down = True
        await hands.advance(LEASE * 2)
        world.down = False
        await until(is_(world, "completed"), hands)
        tasks.cancel_scope.cancel()
    state = await state_of(world)
    assert (harness.rungs, len(state.lives)) == (["start", "attach"], 1)
    assert len(next(iter(state.lives.values())).workers) == 2


async def test_a_session_that_could_not_be_given_back_is_given_back_with_the_next_renewal(
    hands: HandClock,
) -> None:
    world = Refusing()
    world.refusals = 1
    await accepted(world, "m-1")
    async with Worker.open(world, equipped(lease_seconds=LEASE)) as worker:
        await worker.drive(SESSION)
        assert (await world.session(SESSION)).owner == worker.owner
        await hands.advance(LEASE / 3 + 0.1)
        assert (await world.session(SESSION)).owner is None
    assert (await turn_of(world)).status == "completed"


async def test_in_a_real_store_too_such_a_session_can_be_claimed_afterwards(
    tmp_path: Path, hands: HandClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = await open_world(f"sqlite:{tmp_path / 'world.db'}")
    release, failures = world.release, [1]

    async def once_away(session: str, epoch: int, *rest: Any, **more: Any) -> None:
        if failures:
            failures.pop()
            raise StorageUnavailable("the disk is full; free some space")
        await release(session, epoch, *rest, **more)

    monkeypatch.setattr(world, "release", once_away)
    try:
        inbox = await accepted(world, "m-1")
        async with Worker.open(world, equipped(lease_seconds=LEASE)) as worker:
            await worker.drive(SESSION)
            await inbox.accept("m-2", "next")
            await hands.advance(LEASE / 3 + 0.1)

            async def claimable() -> bool:
                return [claim.session for claim in await world.claim(worker.owner, 4)] == [SESSION]

            await until(claimable)
    finally:
        await world.aclose()


async def test_a_worker_that_cannot_say_goodbye_leaves_all_the_same() -> None:
    world = Store()
    async with Worker.open(world, equipped()) as worker:
        world.down = True
    assert world.registered == [worker.owner]


def _begun(works: Works) -> Callable[[], Awaitable[bool]]:
    async def begun() -> bool:
        return works.begun.is_set()

    return begun
