"""A session that no worker can drive is not tried for ever: a person hears of it."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import anyio
import msgspec
import pytest

from harness_durable.errors import BadTool, LogTooNew, StorageUnavailable
from harness_durable.events import AgentSpec
from harness_durable.runtime.equipment import Equipment
from harness_durable.runtime.hopeless import FAILURES, SECONDS, Failures
from harness_durable.runtime.service import Service
from harness_durable.runtime.worker import Worker
from harness_durable.tools import Tool, tool
from harness_durable.world import Claim
from tests.runtime.kit import HandClock, Harness, Place, Store, accepted, driven, equipped, state_of, until
from tests.unit.memory_world import OWNER
from tests.unit.session_kit import SESSION, life, taken

NEEDS_B = AgentSpec("claude-code", "2.1.0", "x", "local", "/ws", custom_tools=("b",))


@tool(replay="safe")
async def b() -> str:
    """Do it."""
    return "did it"


@asynccontextmanager
async def serving(world: Store, *equipments: Equipment) -> AsyncGenerator[None]:
    """Workers at work, until the body ends."""
    async with anyio.create_task_group() as tasks:

        async def serve(equipment: Equipment) -> None:
            async with Worker.open(world, equipment) as worker:
                await Service(worker).run()

        for equipment in equipments:
            tasks.start_soon(serve, equipment)
        yield
        tasks.cancel_scope.cancel()


def worker_with(*tools: Tool, place: Place | None = None) -> Equipment:
    return equipped(Harness(), place, *tools, lease_seconds=3600)


async def test_a_session_whose_tools_nobody_has_waits_for_a_person_after_some_minutes(
    hands: HandClock,
) -> None:
    world = Store()
    inbox = await accepted(world, "m-1", agent=NEEDS_B)
    async with serving(world, worker_with()):
        await hands.advance(SECONDS - 10)
        assert (await state_of(world)).turns == {}, "somebody who has them may be about to start"
        await until(lambda: _says(world, "needs_input"), hands)
        epoch, turn = (await world.session(SESSION)).epoch, (await state_of(world)).turns["m-1"]
        assert "no worker could drive it" in turn.reason
        assert "tools b" in turn.reason
        assert FAILURES < epoch < 20
        await hands.advance(3600)
        row = await world.session(SESSION)
        assert (row.epoch, row.due, row.owner) == (epoch, None, None)
    assert await inbox.resume("anna")
    assert (await driven(world, worker_with(b))).turns["m-1"].status == "completed"


async def test_one_that_waits_beside_a_living_harness_is_parked_too(hands: HandClock) -> None:
    world, place = Store(), Place("L1")
    await accepted(world, "m-1", agent=NEEDS_B)
    journal = await taken(world, OWNER)
    await journal.turn_started("m-1")
    await life(journal, "L1")
    await world.release(SESSION, 1)
    async with serving(world, worker_with(place=place)):
        await until(lambda: _says(world, "needs_input"), hands, seconds=30)
        row = await world.session(SESSION)
        assert (row.due, place.lives) == (None, set())


async def test_another_worker_that_has_the_tools_gets_the_session(hands: HandClock) -> None:
    world = Store()
    await accepted(world, "m-1", agent=NEEDS_B)
    async with serving(world, worker_with()):
        await hands.advance(SECONDS / 2)
        async with serving(world, worker_with(b)):
            await until(lambda: _says(world, "idle"), hands)
    assert (await state_of(world)).turns["m-1"].status == "completed"


async def test_a_damaged_log_is_parked_and_says_so(hands: HandClock) -> None:
    world = Store()
    await accepted(world, "m-1")
    records = world.stored[SESSION].records
    records[1] = msgspec.structs.replace(records[1], body=b"junk")
    async with serving(world, worker_with()):
        await until(lambda: _says(world, "damaged"), hands)
        row = await world.session(SESSION)
        assert (row.due, row.owner) == (None, None)
        await hands.advance(3600)
        assert (await world.session(SESSION)).epoch == row.epoch


async def test_a_log_of_a_newer_version_is_left_to_newer_workers(hands: HandClock) -> None:
    class Newer(Store):
        newer = False

        async def snapshot(self, session: str) -> tuple[int, bytes] | None:
            if self.newer:
                raise LogTooNew("session 's'", 9, 1)
            return await super().snapshot(session)

    world = Newer()
    await accepted(world, "m-1")
    world.newer = True
    epochs: list[int] = []
    async with serving(world, worker_with()):
        for _ in range(3):
            await hands.advance(3600)
            epochs.append((await world.session(SESSION)).epoch)
    row = await world.session(SESSION)
    assert (row.status, row.due is not None) == ("queued", True)
    assert epochs[2] - epochs[1] < 10, "tried less and less"


def test_failures_count_in_a_row_only(hands: HandClock) -> None:
    failures = Failures()
    counts = [failures.add(Claim("s", epoch, epoch + 2, None), BadTool("x")) for epoch in (1, 2, 3)]
    assert (counts, failures.streak) == ([1, 2, 3], 3)
    assert failures.add(Claim("s", 4, 9, None), BadTool("x")) == 1, "somebody has got on with it"
    assert failures.streak == 1


@pytest.mark.parametrize(("trouble", "enough"), [(BadTool("x"), True), (StorageUnavailable("x"), False)])
async def test_trouble_with_the_store_is_never_the_sessions(
    hands: HandClock, trouble: Exception, enough: bool
) -> None:
    failures = Failures()
    for epoch in range(FAILURES):
        failures.add(Claim("s", epoch, epoch, None), trouble)
    assert not failures.are_enough(trouble), "it has not lasted"
    await hands.advance(SECONDS)
    assert failures.are_enough(trouble) == enough


async def _says(world: Store, status: str) -> bool:
    return (await world.session(SESSION)).status == status
