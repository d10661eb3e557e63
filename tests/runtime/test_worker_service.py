"""A worker that serves: whatever is due is driven, and one bad session stops no other."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import anyio
import msgspec
import pytest

from harness_durable.adapter import LifeContext, TurnEnd
from harness_durable.errors import SandboxUnavailable, SessionBusy
from harness_durable.events import AgentSpec
from harness_durable.journal import Inbox
from harness_durable.runtime.equipment import Equipment
from harness_durable.runtime.service import Service
from harness_durable.runtime.worker import Worker
from harness_durable.sandbox import Link
from tests.runtime.kit import (
    HandClock,
    Harness,
    Place,
    Store,
    Works,
    accepted,
    breathe,
    completes,
    equipped,
    is_,
    state_of,
    until,
)
from tests.unit.memory_world import OTHER
from tests.unit.session_kit import AGENT, SESSION, begun


@asynccontextmanager
async def serving(world: Store, equipment: Equipment) -> AsyncGenerator[Worker]:
    """A worker at work, until the body ends."""
    with anyio.fail_after(30):
        async with Worker.open(world, equipment) as worker, anyio.create_task_group() as tasks:
            tasks.start_soon(Service(worker).run)
            yield worker
            tasks.cancel_scope.cancel()


async def test_what_is_due_is_driven_also_what_becomes_due_later() -> None:
    """C092: not only at the start."""
    world = Store()
    await accepted(world, "m-1", session="a")
    later = await accepted(world, session="b")
    async with serving(world, equipped()):
        await until(is_(world, "completed", session="a"))
        await later.accept("m-1", "now")
        await until(is_(world, "completed", session="b"))


async def test_no_more_sessions_at_once_than_it_may_have() -> None:
    world, works = Store(), [Works() for _ in range(3)]
    for name in ("a", "b", "c"):
        await accepted(world, "m-1", session=name)
    harness = Harness(*works)
    async with serving(world, equipped(harness, concurrency=2)):
        await works[1].begun.wait()
        await breathe()
        assert [work.begun.is_set() for work in works] == [True, True, False]
        assert (await world.session("c")).owner is None, "what it cannot drive now it leaves to others"
        works[0].enough.set()
        await works[2].begun.wait()
        works[1].enough.set()
        works[2].enough.set()
        for name in ("a", "b", "c"):
            await until(is_(world, "completed", session=name))


async def test_a_damaged_log_stops_no_other_session(caplog: pytest.LogCaptureFixture) -> None:
    """C013: one bad session is left alone and the others go on."""
    world = Store()
    for name in ("a-bad", "b-good"):
        await accepted(world, "m-1", session=name)
    records = world.stored["a-bad"].records
    records[1] = msgspec.structs.replace(records[1], body=b"junk")
    async with serving(world, equipped(concurrency=1)):
        await until(is_(world, "completed", session="b-good"))
    assert any("a-bad" in message and "damaged" in message for message in caplog.messages)


async def test_a_session_that_needs_other_tools_stops_no_other(caplog: pytest.LogCaptureFixture) -> None:
    world = Store()
    agent = AgentSpec("claude-code", "2.1.0", "x", "local", "/ws", custom_tools=("deploy",))
    await accepted(world, "m-1", session="a-bad", agent=agent)
    await accepted(world, "m-1", session="b-good")
    async with serving(world, equipped(concurrency=1)):
        await until(is_(world, "completed", session="b-good"))
    assert any("deploy" in message and "--tools" in message for message in caplog.messages)


async def test_a_bug_in_an_adapter_costs_its_turn_and_not_the_worker(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def script(ctx: LifeContext, link: Link) -> TurnEnd:
        if ctx.session == "a-bad":
            raise KeyError("a bug")
        return TurnEnd("completed", "done")

    world = Store()
    for name in ("a-bad", "b-good"):
        await accepted(world, "m-1", session=name)
    async with serving(world, equipped(Harness(script))):
        await until(is_(world, "needs_input", session="a-bad"))
        await until(is_(world, "completed", session="b-good"))
    assert "KeyError" in (await state_of(world, "a-bad")).turns["m-1"].reason
    assert any(record.exc_info for record in caplog.records)


async def test_a_bug_of_ours_is_logged_with_its_traceback_and_stops_no_other(
    hands: HandClock, caplog: pytest.LogCaptureFixture
) -> None:
    world, place = Store(), Place()
    await accepted(world, "m-1")
    harness = Harness()
    harness.missing = ZeroDivisionError("ours")
    async with serving(world, equipped(harness, place)):

        async def logged() -> bool:
            return any(record.exc_info for record in caplog.records)

        await until(logged, hands)
        harness.missing = None
        await until(is_(world, "completed"), hands)


async def test_a_sandbox_that_is_out_of_order_is_tried_later_and_later_until_it_works(
    hands: HandClock,
) -> None:
    world, place = Store(), Place()
    place.start_fails = [SandboxUnavailable("no room; free some") for _ in range(6)]
    await accepted(world, "m-1")
    async with serving(world, equipped(place=place, lease_seconds=3600)):
        for _ in range(40):
            await hands.advance(0.5)
            await anyio.sleep(0.005)
        assert len(place.start_fails) == 1, "tried after 0, 1, 3, 7 and 15 s"
        await until(is_(world, "completed"), hands)
    assert (await state_of(world)).turns["m-1"].fruitless <= 1


async def test_a_store_that_is_away_is_waited_for(hands: HandClock, caplog: pytest.LogCaptureFixture) -> None:
    world = Store()
    await accepted(world, "m-1")
    equipment = equipped(lease_seconds=3600, store_patience_seconds=3600)
    async with Worker.open(world, equipment) as worker, anyio.create_task_group() as tasks:
        world.down = True
        tasks.start_soon(Service(worker).run)
        await hands.advance(200.0)
        told = sum("no sessions can be claimed" in message for message in caplog.messages)
        assert 3 < told < 10, "as long as the pauses grow"
        world.down = False
        back = hands.monotonic()
        await until(is_(world, "completed"), hands)
        assert hands.monotonic() - back < 5, "nobody waits for a worker that has grown lazy"
        tasks.cancel_scope.cancel()


async def test_a_session_of_another_live_worker_is_refused_and_can_be_taken_over() -> None:
    world = Store()
    await accepted(world, "m-1")
    await world.claim_session(OTHER, SESSION)
    async with Worker.open(world, equipped()) as worker:
        with pytest.raises(SessionBusy, match="--take-over"):
            await worker.drive(SESSION)
        await worker.drive(SESSION, take_over=True)
    assert (await state_of(world)).turns["m-1"].status == "completed"


async def test_a_superseded_worker_goes_on_serving_other_sessions(caplog: pytest.LogCaptureFixture) -> None:
    world, works = Store(), Works()
    await accepted(world, "m-1", session="a")
    async with serving(world, equipped(Harness(works, completes()))):
        await works.begun.wait()
        await world.claim_session(OTHER, "a", take_over=True)

        async def heard() -> bool:
            return any("superseded" in message for message in caplog.messages)

        await until(heard)
        await (await Inbox.create(world, "b", AGENT)).accept("m-1", "do it")
        await until(is_(world, "completed", session="b"))
    assert (await world.session("a")).owner == OTHER


async def test_a_session_that_waits_for_a_person_is_not_looked_at_again() -> None:
    world, harness = Store(), Harness()
    journal = await begun(world)
    await journal.life_lost("L1", "it hung")
    await journal.turn_needs_input("may I?")
    await world.release(SESSION, 1)
    async with serving(world, equipped(harness)):
        await accepted(world, "m-1", session="other")
        await until(is_(world, "completed", session="other"))
    assert [context.session for context in harness.lives] == ["other"]
    assert (await world.session(SESSION)).epoch == 1
