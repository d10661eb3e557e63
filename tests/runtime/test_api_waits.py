"""``Durable`` while it has nothing to do: somebody else drives the session, or a person is asked."""

from __future__ import annotations

import anyio

from harness_durable.errors import StorageUnavailable
from harness_durable.runtime.worker import Worker
from harness_durable.world import Claim, Owner, SessionRow
from tests.runtime.conftest import Front
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
from tests.runtime.test_quiet_stops import Asks
from tests.unit.session_kit import SESSION


class Counts(Store):
    """How often anybody tried to claim."""

    tries = 0

    async def claim_session(self, owner: Owner, session: str, *, take_over: bool = False) -> Claim:
        self.tries += 1
        return await super().claim_session(owner, session, take_over=take_over)


async def test_a_session_that_another_worker_drives_is_not_claimed_again_and_again(
    front: Front, hands: HandClock
) -> None:
    world, works, place = Counts(), Works(), Place()
    await accepted(world, "m-1")
    async with (
        front(world, Harness(), place, lease_seconds=3600) as durable,
        anyio.create_task_group() as tasks,
        Worker.open(world, equipped(Harness(works), place, lease_seconds=3600)) as other,
    ):
        tasks.start_soon(other.drive, SESSION)
        await works.begun.wait()
        session = await durable.agent().session(SESSION)
        for number in range(20):
            await hands.advance(1.0)
            await world.put_progress(SESSION, b"")
            await session.send("and this", message_id=f"m-{number + 2}")
        assert world.tries == 2, "the one that drives, and the one that was told who does"
        works.enough.set()
        await until(is_(world, "completed", turn="m-21"), hands)


async def test_a_store_that_is_away_while_another_worker_drives_fails_nobody(
    front: Front, hands: HandClock
) -> None:
    class Away(Counts):
        away = False
        refused = 0

        async def session(self, session: str) -> SessionRow:
            if self.away:
                self.refused += 1
                raise StorageUnavailable("the store is away; wait until it is back")
            return await super().session(session)

    world, works, place = Away(), Works(), Place()
    await accepted(world, "m-1")
    async with (
        front(world, Harness(completes("by us")), place, lease_seconds=3600) as durable,
        anyio.create_task_group() as tasks,
        Worker.open(world, equipped(Harness(works), place, lease_seconds=3600)) as other,
    ):
        tasks.start_soon(other.drive, SESSION)
        await works.begun.wait()
        session = await durable.agent().session(SESSION)
        await until(lambda: _is(world.tries == 2), hands)
        world.away = True
        await until(lambda: _is(world.refused > 2), hands)
        world.away = False
        works.enough.set()
        await until(is_(world, "completed"), hands)
        durable.raise_failure(SESSION)
        await session.send("and this", message_id="m-2")
        await until(is_(world, "completed", turn="m-2"), hands)


async def _is(value: bool) -> bool:
    return value


async def test_a_program_goes_on_when_a_person_has_answered_late_and_elsewhere(
    front: Front, hands: HandClock
) -> None:
    world, place, harness = Store(), Place(), Harness(Asks())
    async with front(world, harness, place, permission_patience_seconds=60, lease_seconds=3600) as durable:
        session = await durable.agent().session(SESSION)
        await session.send("do it", message_id="m-1")

        async def parked() -> bool:
            return (await session.state()).parked

        await until(parked, hands)
        assert place.lives == set()
        await (await accepted(world)).answer("p", allow=True, by="anna")
        await until(is_(world, "completed"), hands)
    assert harness.rungs == ["start", "continue"]


async def test_an_answer_takes_a_parked_session_up_again(front: Front) -> None:
    world, harness = Store(), Harness(Asks())
    async with front(world, harness) as durable:
        session = await durable.agent().session(SESSION)
        await session.send("do it", message_id="m-1")

        async def waits() -> bool:
            return bool((await session.state()).unanswered)

        await until(waits)
    async with front(world, harness) as durable:
        session = await durable.agent().session(SESSION)
        assert (await session.state()).parked
        await session.answer("p", allow=True)
        assert (await session.turn("m-1").result()).status == "completed"
