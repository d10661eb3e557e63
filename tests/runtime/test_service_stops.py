"""A worker service that is told to stop, or has to: nothing is lost, no attempt used up, and it does end."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import anyio
import pytest

from harness_durable.adapter import LifeContext, TurnEnd
from harness_durable.errors import HarnessDurableError, StorageUnavailable
from harness_durable.runtime import contact
from harness_durable.runtime.equipment import Equipment
from harness_durable.runtime.service import Service
from harness_durable.runtime.worker import Worker
from harness_durable.sandbox import Link
from harness_durable.world import Claim, Owner
from tests.runtime.kit import (
    HandClock,
    Harness,
    Place,
    Store,
    Works,
    accepted,
    breathe,
    equipped,
    is_,
    state_of,
    turn_of,
    until,
)
from tests.unit.session_kit import SESSION


class Ran:
    """A service in a task; ``over`` is set when ``run`` has returned, or has raised ``error``."""

    def __init__(self) -> None:
        self.service: Service | None = None
        self.over = anyio.Event()
        self.error: HarnessDurableError | None = None
        self.alive = self.told = 0

    async def work(self, world: Store, equipment: Equipment) -> None:
        def alive() -> None:
            self.alive += 1

        def stopping() -> None:
            self.told += 1

        try:
            async with Worker.open(world, equipment) as worker:
                self.service = Service(worker, alive=alive, stopping=stopping)
                await self.service.run()
        except HarnessDurableError as error:
            self.error = error
        self.over.set()

    async def ended(self) -> bool:
        return self.over.is_set()

    def stop(self) -> None:
        assert self.service is not None
        self.service.stop()


@asynccontextmanager
async def running(world: Store, equipment: Equipment) -> AsyncGenerator[Ran]:
    ran = Ran()
    with anyio.fail_after(30):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(ran.work, world, equipment)
            yield ran
            tasks.cancel_scope.cancel()


async def test_told_to_stop_with_nothing_to_do_it_ends_at_once() -> None:
    world = Store()
    async with running(world, equipped()) as ran:
        await until(lambda: _is(ran.service is not None))
        await breathe()
        ran.stop()
        await ran.over.wait()
    assert (ran.error, ran.told) == (None, 1)


async def test_a_turn_that_settles_in_time_is_settled_and_the_next_is_left_to_others(
    hands: HandClock,
) -> None:
    world, works, place = Store(), Works(), Place()
    await accepted(world, "m-1", "m-2")
    async with running(world, equipped(Harness(works), place, drain_seconds=10)) as ran:
        await until(lambda: _is(works.begun.is_set()), hands)
        await accepted(world, "m-1", session="new")
        ran.stop()
        await breathe()
        assert not ran.over.is_set()
        works.enough.set()
        await until(ran.ended, hands)
    state = await state_of(world)
    assert (state.turns["m-1"].status, list(state.turns), place.lives) == ("completed", ["m-1"], set())
    for session in (SESSION, "new"):
        row = await world.session(session)
        assert (row.owner, row.due is not None, row.status) == (None, True, "queued")


async def test_a_turn_that_takes_longer_is_ended_as_planned_when_the_time_is_over(
    hands: HandClock, caplog: pytest.LogCaptureFixture
) -> None:
    world, works, place = Store(), Works(), Place()
    await accepted(world, "m-1")
    with caplog.at_level("INFO"):
        async with running(world, equipped(Harness(works), place, drain_seconds=10)) as ran:
            await until(lambda: _is(works.begun.is_set()), hands)
            ran.stop()
            await hands.advance(9.9)
            assert not ran.over.is_set()
            await hands.advance(0.2)
            await until(ran.ended, hands)
    assert any("up to 10 s for 1 session (s) to settle" in message for message in caplog.messages)
    await _handed_over(world, place)


async def test_told_twice_it_does_not_wait(hands: HandClock) -> None:
    world, works, place = Store(), Works(), Place()
    await accepted(world, "m-1")
    async with running(world, equipped(Harness(works), place, drain_seconds=3600)) as ran:
        await until(lambda: _is(works.begun.is_set()), hands)
        before = hands.monotonic()
        ran.stop()
        await breathe()
        ran.stop()
        await until(ran.ended)
        assert hands.monotonic() == before
    assert ran.told == 1
    await _handed_over(world, place)


async def test_any_number_of_drains_uses_up_no_attempt(hands: HandClock) -> None:
    world, place = Store(), Place()
    await accepted(world, "m-1")
    for _ in range(6):
        works = Works()
        async with running(world, equipped(Harness(works), place, drain_seconds=1)) as ran:
            await until(lambda works=works: _is(works.begun.is_set()), hands)
            ran.stop()
            await until(ran.ended, hands)
    assert (await turn_of(world)).fruitless == 0


async def test_a_store_that_comes_back_in_time_ends_nothing(hands: HandClock) -> None:
    world = Store()
    async with running(world, equipped(store_patience_seconds=120)) as ran:
        await hands.advance(5)
        world.down = True
        await hands.advance(100)
        world.down = False
        await accepted(world, "m-1")
        await until(is_(world, "completed"), hands)
        await hands.advance(100)
        assert not ran.over.is_set()


async def test_a_store_that_stays_away_ends_the_worker_with_a_sentence(hands: HandClock) -> None:
    world = Store()
    async with running(world, equipped(store_patience_seconds=120)) as ran:
        await hands.advance(5)
        world.down = True
        await hands.advance(115)
        assert not ran.over.is_set()
        await hands.advance(30)
        await until(ran.ended, hands)
    assert isinstance(ran.error, StorageUnavailable)
    assert "has been away for 12" in str(ran.error)
    assert "starts it anew" in str(ran.error)


async def test_it_is_noticed_also_while_every_slot_is_taken(hands: HandClock) -> None:
    """Nothing is claimed then, so that only the renewals tell."""
    world, works = Store(), Works()
    await accepted(world, "m-1")
    async with running(world, equipped(Harness(works), concurrency=1, store_patience_seconds=60)) as ran:
        await until(lambda: _is(works.begun.is_set()), hands)
        world.down = True
        await hands.advance(100)
        await until(ran.ended, hands)
    assert isinstance(ran.error, StorageUnavailable)


async def test_a_queue_that_nobody_asks_for_any_more_ends_no_drain(hands: HandClock) -> None:
    """The last question for work failed, and then it was told to stop: the store may be back since."""

    class NoQueue(Store):
        no_queue = False
        refused = 0

        async def claim(self, owner: Owner, limit: int) -> list[Claim]:
            if self.no_queue:
                self.refused += 1
                raise StorageUnavailable("no queue now; wait for it")
            return await super().claim(owner, limit)

    world, works = NoQueue(), Works()
    await accepted(world, "m-1")
    equipment = equipped(Harness(works), concurrency=2, drain_seconds=3600, store_patience_seconds=60)
    async with running(world, equipment) as ran:
        await until(lambda: _is(works.begun.is_set()), hands)
        world.no_queue = True
        await until(lambda: _is(world.refused > 0))
        ran.stop()
        await hands.advance(200)
        assert not ran.over.is_set()
        works.enough.set()
        await until(ran.ended, hands)
    assert ran.error is None
    assert (await turn_of(world)).status == "completed"


class Mute(Store):
    """Questions for work are not answered any more. ``stubborn``: nor can they be taken back."""

    mute = stubborn = False

    def __init__(self) -> None:
        super().__init__()
        self.asked, self.let_go = anyio.Event(), anyio.Event()

    async def claim(self, owner: Owner, limit: int) -> list[Claim]:
        if self.mute:
            self.asked.set()
            with anyio.CancelScope(shield=self.stubborn):
                await self.let_go.wait()
        return await super().claim(owner, limit)


async def test_a_question_without_an_answer_is_a_store_that_is_away(
    hands: HandClock, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(contact, "ANSWER_SECONDS", 0.05)
    world = Mute()
    async with running(world, equipped(store_patience_seconds=20)) as ran:
        await hands.advance(1)
        world.mute = True
        await until(ran.ended, hands)
    assert "no answer within" in str(ran.error)
    assert any("no sessions can be claimed" in message for message in caplog.messages)


async def test_a_claim_loop_that_hangs_for_good_is_noticed(hands: HandClock) -> None:
    """A question that cannot even be taken back: no time-out helps, but somebody counts."""
    world = Mute()
    async with running(world, equipped(store_patience_seconds=20)) as ran:
        await hands.advance(3)
        assert ran.alive >= 2
        world.mute = world.stubborn = True
        await until(lambda: _is(world.asked.is_set()), hands)
        await hands.advance(62)
        assert ran.service is not None
        assert ran.service.hung
        alive = ran.alive
        await hands.advance(15)
        assert ran.alive == alive, "who supervises it is not told that all is well"
        await hands.advance(10)
        world.let_go.set()
        await until(ran.ended, hands)
    assert "does not let go of the question" in str(ran.error)


async def test_a_worker_that_has_no_work_is_not_called_hung(hands: HandClock) -> None:
    async with running(Store(), equipped(store_patience_seconds=10)) as ran:
        for _ in range(200):
            await hands.advance(1)
            await anyio.sleep(0.001)
        assert ran.service is not None
        assert (ran.service.hung, ran.over.is_set()) == (False, False)


async def test_a_turn_that_waits_for_something_is_not_cut_off_by_a_stop_that_it_settles_in() -> None:
    """The end of a turn and the end of the worker at the same moment."""
    world, place = Store(), Place()
    ran = Ran()

    async def ends(ctx: LifeContext, link: Link) -> TurnEnd:
        ran.stop()
        return TurnEnd("completed", "just in time")

    await accepted(world, "m-1")
    with anyio.fail_after(20):
        await ran.work(world, equipped(Harness(ends), place))
    assert ((await turn_of(world)).status, place.lives) == ("completed", set())


async def _handed_over(world: Store, place: Place) -> None:
    state = await state_of(world)
    turn, row = state.turns["m-1"], await world.session(SESSION)
    assert (turn.status, turn.fruitless, state.life, place.lives) == ("interrupted", 0, None, set())
    assert (row.owner, row.due is not None) == (None, True)


async def _is(value: bool) -> bool:
    return value
