"""A worker whose store goes away: it stops before anybody may think it dead, and comes back as another."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import anyio
import pytest

from harness_durable.adapter import LifeContext, TurnEnd
from harness_durable.errors import LeaseLost, StorageUnavailable
from harness_durable.runtime.service import Service
from harness_durable.runtime.worker import Worker
from harness_durable.sandbox import Link
from harness_durable.world import Claim, Owner
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


# -------------------------------------------------------------- nothing is driven without a lease


class Stays(Works):
    """Takes its time to stop. ``told``: it was."""

    def __init__(self) -> None:
        super().__init__()
        self.told = anyio.Event()

    async def __call__(self, ctx: LifeContext, link: Link) -> TurnEnd:
        try:
            return await super().__call__(ctx, link)
        finally:
            with anyio.CancelScope(shield=True):
                self.told.set()
                await self.enough.wait()


class Claims(Store):
    """Notes by whom sessions are claimed. ``held_back``: the answers to claims are."""

    def __init__(self) -> None:
        super().__init__()
        self.by: list[Owner] = []
        self.held_back = False
        self.claimed, self.go_on = anyio.Event(), anyio.Event()

    async def claim_session(self, owner: Owner, session: str, *, take_over: bool = False) -> Claim:
        self.by.append(owner)
        claim = await super().claim_session(owner, session, take_over=take_over)
        if self.held_back:
            self.claimed.set()
            await self.go_on.wait()
        return claim


async def test_while_driving_stops_and_the_store_is_away_nothing_is_claimed(hands: HandClock) -> None:
    world, works = Claims(), Stays()
    harness = Harness(works, completes())
    await accepted(world, "m-1", session="a")
    async with (
        Worker.open(world, equipped(harness, lease_seconds=LEASE)) as worker,
        anyio.create_task_group() as tasks,
    ):
        tasks.start_soon(Service(worker).run)
        await until(_begun(works), hands)
        first, world.down = worker.owner, True
        await hands.advance(LEASE)
        assert works.told.is_set()
        assert not worker.holds_lease
        world.down = False
        await accepted(world, "m-1", session="b")
        tasks.start_soon(worker.drive, "b")
        await hands.advance(5)
        assert world.by == [first], "it would be claimed for a worker that nobody renews"
        works.enough.set()
        await until(is_(world, "completed", session="b"), hands)
        tasks.cancel_scope.cancel()
    assert world.by[0] not in world.by[1:]
    assert len(set(world.by[1:])) == 1


async def test_what_was_being_claimed_when_the_lease_was_lost_is_not_driven(hands: HandClock) -> None:
    world, harness = Claims(), Harness()
    await accepted(world, "m-1")
    async with Worker.open(world, equipped(harness, lease_seconds=LEASE)) as worker:
        lost: list[LeaseLost] = []
        world.held_back = True

        async def drive() -> None:
            with pytest.raises(LeaseLost) as found:
                await worker.drive(SESSION)
            lost.append(found.value)

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(drive)
            await world.claimed.wait()
            world.down = True
            await hands.advance(LEASE)
            world.down = world.held_back = False
            await until(_held(worker), hands)
            world.go_on.set()
        assert (len(lost), harness.lives) == (1, [])
        assert (await world.session(SESSION)).owner is None, "the worker that claimed it has left"


async def test_a_claim_that_nobody_drives_yet_is_not_driven_after_the_lease_was_lost(
    hands: HandClock,
) -> None:
    world, harness = Store(), Harness()
    await accepted(world, "m-1")
    equipment = equipped(harness, lease_seconds=LEASE)
    async with Worker.open(world, equipment) as worker:
        [claim] = await worker.claim(1)
        world.down = True
        await hands.advance(LEASE)
        world.down = False
        await until(_held(worker), hands)
        with pytest.raises(LeaseLost):
            await worker.drive_claimed(claim, equipment)
    assert harness.lives == []


async def test_what_it_takes_up_again_afterwards_counts_as_left_and_not_as_displaced(
    hands: HandClock,
) -> None:
    """So that a probe may be believed: nobody else can be at it."""
    world, works = Store(), Works()
    await accepted(world, "m-1")
    async with (
        Worker.open(world, equipped(Harness(works, completes()), lease_seconds=LEASE)) as worker,
        anyio.create_task_group() as tasks,
    ):
        tasks.start_soon(Service(worker).run)
        await until(_begun(works), hands)
        world.down = True
        await hands.advance(LEASE)
        world.down = False
        await until(is_(world, "completed"), hands)
        tasks.cancel_scope.cancel()
    state = await state_of(world)
    assert (state.epoch, state.displaced_seq) == (2, 0)


async def test_after_an_outage_of_any_length_a_session_has_its_worker_within_seconds(
    hands: HandClock,
) -> None:
    world, works = Store(), Works()
    await accepted(world, "m-1")
    equipment = equipped(Harness(works, completes()), lease_seconds=LEASE, store_patience_seconds=3600)
    async with Worker.open(world, equipment) as worker, anyio.create_task_group() as tasks:
        tasks.start_soon(Service(worker).run)
        await until(_begun(works), hands)
        world.down = True
        await hands.advance(600)
        world.down = False
        back = hands.monotonic()
        await until(is_(world, "completed"), hands)
        assert hands.monotonic() - back < 5
        tasks.cancel_scope.cancel()


class Hanging(Renewals):
    """``hangs``: these questions are never answered, nor can they be taken back."""

    def __init__(self, *hangs: str) -> None:
        super().__init__()
        self.hangs = hangs
        self.over = anyio.Event()

    async def release(self, session: str, epoch: int, due: int | None = None) -> None:
        await self._hang("release")
        await super().release(session, epoch, due)

    async def renew(self, owner: Owner) -> None:
        await self._hang("renew")
        await super().renew(owner)

    async def _hang(self, question: str) -> None:
        if question in self.hangs:
            with anyio.CancelScope(shield=True):
                await self.over.wait()


async def test_a_session_that_cannot_be_given_back_keeps_no_lease_from_being_renewed(
    hands: HandClock,
) -> None:
    world = Hanging("release")
    await accepted(world, "m-1")
    async with (
        Worker.open(world, equipped(lease_seconds=LEASE)) as worker,
        anyio.create_task_group() as tasks,
    ):
        tasks.start_soon(worker.drive, SESSION)
        await until(is_(world, "completed"), hands)
        before = len(world.renewed)
        await hands.advance(LEASE * 2)
        assert len(world.renewed) - before >= 5
        world.over.set()


async def test_a_renewal_that_hangs_does_not_keep_the_worker_from_stopping(hands: HandClock) -> None:
    world, works = Hanging("renew"), Works()
    await accepted(world, "m-1")
    lost: list[LeaseLost] = []
    async with (
        Worker.open(world, equipped(Harness(works), lease_seconds=LEASE)) as worker,
        anyio.create_task_group() as tasks,
    ):

        async def drive() -> None:
            with pytest.raises(LeaseLost) as found:
                await worker.drive(SESSION)
            lost.append(found.value)

        tasks.start_soon(drive)
        await works.begun.wait()
        await hands.advance(LEASE * 2 / 3 + 0.5)
        assert len(lost) == 1
        world.over.set()


def _held(worker: Worker) -> Callable[[], Awaitable[bool]]:
    async def held() -> bool:
        return worker.holds_lease

    return held
