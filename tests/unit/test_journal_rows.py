"""The row of a session says what its log says, whoever wrote last."""

from __future__ import annotations

import pytest

from harness_durable.journal import Inbox, Journal
from harness_durable.journal.writer import row_of
from harness_durable.world import NOW, RowUpdate
from tests.unit.log_kit import model, state, tool
from tests.unit.memory_world import OWNER, MemoryWorld
from tests.unit.session_kit import AGENT, SESSION, asked, begun, kinds, taken

LATER = 4_000_000_000_000


async def row(world: MemoryWorld) -> tuple[str, bool]:
    """Its word, and whether a worker has to look at it."""
    found = await world.session(SESSION)
    return found.status, found.due is not None


async def test_an_answer_to_an_old_question_wakes_nobody() -> None:
    world = MemoryWorld()
    journal = await begun(world)
    await asked(journal, ("c1", "f", {}))
    await journal.permission_requested("p1", "c1", "f", "L1")
    await journal.turn_cancelled("anna asked for a stop")
    await journal.life_ended("L1", "over")
    await journal.released("nothing left to do")
    await (await Inbox.open(world, SESSION)).answer("p1", allow=True, by="bob")
    assert (await kinds(world, "permission."))[-1] == "permission.resolved"
    assert await row(world) == ("idle", False)


async def test_a_session_says_that_somebody_is_asked() -> None:
    world = MemoryWorld()
    journal = await begun(world)
    await asked(journal, ("c1", "f", {}), ("c2", "f", {}))
    await journal.permission_requested("p1", "c1", "f", "L1")
    assert await row(world) == ("waiting", True)
    inbox = await Inbox.open(world, SESSION)
    await inbox.accept("m-2", "and this")
    assert await row(world) == ("waiting", True), "a message changes nothing about it"
    await inbox.answer("p1", allow=False, by="bob")
    assert await row(world) == ("running", True)


async def test_of_two_delayed_messages_the_next_counts() -> None:
    world = MemoryWorld()
    inbox = await Inbox.create(world, SESSION, AGENT)
    await inbox.accept("m-1", "first", not_before=LATER)
    await inbox.accept("m-2", "second", not_before=LATER + 5)
    assert (await world.session(SESSION)).due == LATER
    await inbox.withdraw("m-1", "anna")
    assert (await world.session(SESSION)).due == LATER + 5
    await inbox.withdraw("m-2", "anna")
    assert await row(world) == ("idle", False)


async def test_what_others_wrote_in_between_is_in_the_row() -> None:
    world = MemoryWorld()
    journal = await begun(world)
    await journal.life_ended("L1", "over")

    async def message() -> None:
        await (await Inbox.open(world, SESSION)).accept("m-2", "more")

    world.between = message
    await journal.turn_completed("done")
    assert await row(world) == ("queued", True)


def test_a_due_time_that_has_passed_is_now() -> None:
    assert row_of(state(*model(), *tool("a")), 77) == RowUpdate("running", NOW)


@pytest.mark.parametrize("already", [True, False])
async def test_a_message_that_was_taken_back_starts_no_turn(already: bool) -> None:
    world = MemoryWorld()
    inbox = await Inbox.create(world, SESSION, AGENT)
    await inbox.accept("m-1", "do it")
    journal: Journal = await taken(world, OWNER)

    async def withdraw() -> None:
        await inbox.withdraw("m-1", "anna")

    if already:
        await withdraw()
    else:
        world.between = withdraw
    assert not await journal.turn_started("m-1")
    assert journal.state.turn is None
    assert "turn.started" not in await kinds(world, "turn.")
    assert await row(world) == ("idle", False)


async def test_what_can_start_at_once_is_stamped_by_the_store_and_not_by_the_writer() -> None:
    """A sender whose clock is ahead puts nothing off."""
    world = MemoryWorld()
    inbox = await Inbox.create(world, SESSION, AGENT)
    await inbox.accept("m-1", "now")
    await inbox.accept("m-2", "later", not_before=LATER)
    for writers_clock in (1, LATER - 1):
        assert row_of(inbox.state, writers_clock).due == NOW
    await inbox.withdraw("m-1", "anna")
    assert row_of(inbox.state, LATER - 1).due == LATER
    assert row_of(inbox.state, LATER).due == NOW


async def test_a_session_whose_only_open_thing_is_a_question_is_parked_until_the_answer() -> None:
    world = MemoryWorld()
    journal = await begun(world)
    await asked(journal, ("c1", "f", {}))
    await journal.permission_requested("p1", "c1", "f", "L1")
    await journal.life_lost("L1", "nobody answered", planned=True)
    await journal.released("nobody answered")
    assert await row(world) == ("waiting", False)
    inbox = await Inbox.open(world, SESSION)
    await inbox.answer("p1", allow=True, by="bob")
    assert await row(world) == ("running", True)
