"""We have to go: a deploy, Ctrl-C, the end of a block. Harnesses end, and nothing of it is a failure.

C064, C094: also while a life is set up; a deploy is neither a stop by the user nor a failed attempt."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import anyio
import pytest

from harness_durable.adapter import LifeContext, TurnEnd
from harness_durable.errors import HarnessDied, SandboxUnavailable
from harness_durable.recovery import MAX_FRUITLESS
from harness_durable.runtime.equipment import Equipment
from harness_durable.runtime.service import Service
from harness_durable.runtime.worker import Worker
from harness_durable.sandbox import LifeRef, Link
from tests.runtime.conftest import Front
from tests.runtime.kit import (
    HandClock,
    Harness,
    Place,
    Store,
    Works,
    accepted,
    driven,
    driver,
    equipped,
    is_,
    raises,
    state_of,
    until,
)
from tests.unit.session_kit import SESSION

STOPPED = "the worker was stopped"


async def cancelled(work: Callable[[], Awaitable[object]], begun: anyio.Event) -> None:
    """Do the work, and cancel it as a signal does once it has begun."""
    task = asyncio.ensure_future(work())
    with anyio.fail_after(10):
        await begun.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


def serving(world: Store, equipment: Equipment) -> Callable[[], Awaitable[None]]:
    async def serve() -> None:
        async with Worker.open(world, equipment) as worker:
            await Service(worker).run()

    return serve


async def stopped_cleanly(world: Store, place: Place) -> None:
    """What must be true after any planned stop."""
    state = await state_of(world)
    turn = state.turns["m-1"]
    assert (turn.status, turn.reason, turn.fruitless) == ("interrupted", STOPPED, 0)
    assert (state.life, state.worker, place.lives) == (None, "", set())
    row = await world.session(SESSION)
    assert (row.owner, row.due is not None) == (None, True)


async def test_a_worker_that_is_told_to_stop_ends_its_harness_and_gives_the_session_back() -> None:
    world, place, works = Store(), Place(), Works()
    await accepted(world, "m-1")
    await cancelled(serving(world, equipped(Harness(works), place)), works.begun)
    await stopped_cleanly(world, place)
    assert all(hold.closed for hold in place.holds)


async def test_the_next_worker_goes_on_with_the_turn() -> None:
    world, place, works = Store(), Place(), Works()
    await accepted(world, "m-1")
    await cancelled(serving(world, equipped(Harness(works), place)), works.begun)
    harness = Harness()
    state = await driven(world, equipped(harness, place))
    assert (harness.rungs, state.turns["m-1"].status) == (["continue"], "completed")


async def test_any_number_of_deploys_uses_up_no_attempt() -> None:
    world, place = Store(), Place()
    await accepted(world, "m-1")
    for _ in range(MAX_FRUITLESS + 2):
        works = Works()
        await cancelled(serving(world, equipped(Harness(works), place)), works.begun)
        await stopped_cleanly(world, place)


async def test_a_stop_while_a_life_is_being_started_ends_that_life_in_every_rung() -> None:
    world = Store()
    await accepted(world, "m-1")
    for _ in range(MAX_FRUITLESS + 2):
        place, starting = Place(), anyio.Event()

        async def started(starting: anyio.Event = starting) -> None:
            starting.set()
            await anyio.sleep_forever()

        place.started = started
        await cancelled(serving(world, equipped(place=place)), starting)
        await stopped_cleanly(world, place)


async def test_a_stop_does_not_forgive_the_lives_that_failed_before() -> None:
    world, place, works = Store(), Place(), Works()
    await accepted(world, "m-1")
    harness = Harness(raises(HarnessDied(1, "")), raises(HarnessDied(1, "")), works)
    await cancelled(serving(world, equipped(harness, place)), works.begun)
    assert (await state_of(world)).turns["m-1"].fruitless == 2


async def test_a_keeper_that_died_just_before_the_stop_is_no_error() -> None:
    world, place, works = Store(), Place(), Works()

    async def dies(ctx: LifeContext, link: Link) -> TurnEnd:
        place.lives.clear()
        return await works(ctx, link)

    await accepted(world, "m-1")
    await cancelled(serving(world, equipped(Harness(dies), place)), works.begun)
    await stopped_cleanly(world, place)


async def test_a_life_that_cannot_be_ended_now_is_left_to_the_next_worker_as_it_is() -> None:
    class Broken(Place):
        async def reap(self, ref: LifeRef, epoch: int | None = None) -> bool:
            raise SandboxUnavailable("the machinery is out of order; try again")

    world, place, works = Store(), Broken(), Works()
    await accepted(world, "m-1")
    await cancelled(serving(world, equipped(Harness(works), place)), works.begun)
    state = await state_of(world)
    assert state.life is not None and state.turns["m-1"].status == "running"
    assert (await world.session(SESSION)).due is not None


async def test_leaving_while_the_store_is_away_harms_nothing(hands: HandClock) -> None:
    world, place, works = Store(), Place(), Works()
    await accepted(world, "m-1")
    task = asyncio.ensure_future(serving(world, equipped(Harness(works), place))())
    with anyio.fail_after(10):
        await works.begun.wait()
    world.down = True
    task.cancel()

    async def gone() -> bool:
        return task.done()

    await until(gone, hands)
    assert task.cancelled()
    world.down = False
    state = await state_of(world)
    assert (state.turns["m-1"].status, len(place.lives)) == ("running", 1)


async def test_a_driver_that_may_have_lost_its_session_touches_nothing_when_it_is_cancelled() -> None:
    world, place, works = Store(), Place(), Works()
    await accepted(world, "m-1")
    held = await driver(world, equipped(Harness(works), place), abandoned=lambda: True)
    await cancelled(held.run, works.begun)
    state = await state_of(world)
    assert (state.turns["m-1"].status, len(place.lives), place.reaped) == ("running", 1, [])


async def test_the_end_of_the_callers_block_is_a_planned_stop(front: Front) -> None:
    world, place, works = Store(), Place(), Works()
    async with front(world, Harness(works), place) as durable:
        await (await durable.agent().session(SESSION)).send("do it", message_id="m-1")
        await works.begun.wait()
    await stopped_cleanly(world, place)
    assert place.closed


async def test_a_caller_that_fails_is_a_planned_stop_and_gets_its_own_error(front: Front) -> None:
    world, place, works = Store(), Place(), Works()
    with pytest.raises(ZeroDivisionError):
        async with front(world, Harness(works), place) as durable:
            await (await durable.agent().session(SESSION)).send("do it", message_id="m-1")
            await works.begun.wait()
            raise ZeroDivisionError
    await stopped_cleanly(world, place)


async def test_a_cancelled_caller_that_takes_its_time_is_a_planned_stop(front: Front) -> None:
    world, place, works = Store(), Place(), Works()
    with anyio.CancelScope() as scope:
        async with front(world, Harness(works), place) as durable:
            await (await durable.agent().session(SESSION)).send("do it", message_id="m-1")
            await works.begun.wait()
            try:
                scope.cancel()
                await anyio.sleep_forever()
            finally:
                with anyio.CancelScope(shield=True):  # the caller's own clean-up
                    await until(is_(world, "interrupted"))
    await stopped_cleanly(world, place)


async def test_a_turn_that_is_being_settled_just_then_is_settled() -> None:
    world, place, works = Store(), Place(), Works()
    await accepted(world, "m-1")

    async def ends(ctx: LifeContext, link: Link) -> TurnEnd:
        reap = place.reap

        async def slowly(ref: LifeRef, epoch: int | None = None) -> bool:
            works.begun.set()
            await works.enough.wait()
            return await reap(ref)

        place.reap = slowly  # type: ignore[method-assign]
        return TurnEnd("completed", "done")

    task = asyncio.ensure_future(serving(world, equipped(Harness(ends), place))())
    with anyio.fail_after(10):
        await works.begun.wait()
    task.cancel()
    works.enough.set()
    with pytest.raises(asyncio.CancelledError):
        await task
    state = await state_of(world)
    assert (state.turns["m-1"].status, state.life, place.lives) == ("completed", None, set())
    assert [life.reason for life in state.lives.values()] == ["the turn was settled"]
