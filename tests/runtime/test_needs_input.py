"""A turn that waits for a person: what may happen meanwhile, and how it goes on or is given up."""

from __future__ import annotations

import msgspec
import pytest

from harness_durable.errors import HarnessStuck, NotFound
from harness_durable.journal import Inbox
from harness_durable.recovery import MAX_FRUITLESS
from harness_durable.tools import tool
from tests.runtime.kit import Harness, Store, accepted, driven, equipped, raises, state_of
from tests.unit.memory_world import OWNER
from tests.unit.session_kit import AGENT, SESSION, asked, begun, seen, taken

ASKING = msgspec.structs.replace(AGENT, permission_mode="ask")


async def waiting(world: Store) -> Inbox:
    """The turn m-1 waits for a person with a call open; m-2 was queued before that."""
    journal = await begun(world)
    await asked(journal, ("c1", "pay", {"amount": 7}))
    await journal.tool_gate("c1", "L1")
    inbox = await Inbox.open(world, SESSION)
    await inbox.accept("m-2", "queued before")
    await journal.turn_needs_input("why?")
    return inbox


async def test_messages_that_were_waiting_go_on_waiting_for_the_person() -> None:
    world, harness = Store(), Harness()
    await waiting(world)
    state = await driven(world, equipped(harness))
    assert (harness.lives, state.turns["m-1"].status, state.status) == ([], "needs_input", "needs_input")
    assert (await world.session(SESSION)).due is None
    assert state.life is None


async def test_a_steer_of_a_turn_that_a_person_passed_over_is_not_lost() -> None:
    world, harness = Store(), Harness()
    journal = await begun(world)
    inbox = await Inbox.open(world, SESSION)
    await inbox.accept("st", "also that", when_busy="steer")
    await journal.turn_needs_input("why?")
    await inbox.accept("m-2", "something else")
    state = await driven(world, equipped(harness))
    assert [context.turn for context in harness.lives] == ["m-2", "st+queued"]
    assert state.messages["st"].status == "delivered"


async def test_a_message_that_is_sent_then_is_the_persons_answer_and_the_old_calls_are_closed() -> None:
    world, harness = Store(), Harness()
    inbox = await waiting(world)
    await inbox.accept("m-3", "do something else")
    state = await driven(world, equipped(harness))
    assert [context.turn for context in harness.lives] == ["m-3", "m-2"]
    assert state.turns["m-1"].status == "needs_input"
    assert state.tool_calls["c1"].outcome == "unknown"
    assert not await inbox.resume("anna")


async def test_a_person_lets_the_turn_go_on_and_the_queue_follows() -> None:
    world, harness = Store(), Harness()
    inbox = await waiting(world)
    assert await inbox.resume("anna")
    assert not await inbox.resume("ben")
    state = await driven(world, equipped(harness))
    assert [context.turn for context in harness.lives] == ["m-1", "m-2"]
    assert [turn.status for turn in state.turns.values()] == ["completed"] * 2
    assert "anna asked" in state.turns["m-1"].told


async def test_a_person_gives_the_turn_up_and_the_queue_follows() -> None:
    world, harness = Store(), Harness()
    inbox = await waiting(world)
    assert await inbox.request_stop("anna")
    state = await driven(world, equipped(harness))
    assert [turn.status for turn in state.turns.values()] == ["cancelled", "completed"]
    assert [context.turn for context in harness.lives] == ["m-2"]
    assert not any(call.open for call in state.tool_calls.values())


async def test_after_a_person_resumed_it_there_are_as_many_attempts_as_before() -> None:
    world, harness = Store(), Harness(raises(HarnessStuck("silent; see the trace")))
    await accepted(world, "m-1")
    await driven(world, equipped(harness))
    await (await Inbox.open(world, SESSION)).resume("anna")
    state = await driven(world, equipped(harness))
    assert (state.turns["m-1"].status, len(harness.lives)) == ("needs_input", 2 * MAX_FRUITLESS)


async def test_a_tool_that_takes_its_worker_down_each_time_does_not_run_for_ever() -> None:
    runs: list[int] = []

    @tool(replay="safe", name="boom")
    async def boom() -> str:
        """Takes the worker down."""
        runs.append(1)
        return "never comes back"

    world = Store()
    journal = await begun(world)
    await asked(journal, ("c1", "boom", {}), policy="safe")
    await journal.tool_gate("c1", "L1")
    for number in range(2, MAX_FRUITLESS + 1):
        assert await journal.tool_released_again("c1", f"L{number}")
    await journal.life_ended("L1", "lost")
    state = await driven(world, equipped(None, None, boom))
    assert (runs, state.tool_calls["c1"].outcome) == ([], "unknown")


# ---------------------------------------------------------------------------------------- permissions


async def test_a_permission_asked_after_the_inbox_was_opened_can_be_answered() -> None:
    world = Store()
    inbox = await accepted(world, "m-1")
    journal = await taken(world, OWNER)
    await journal.turn_started("m-1")
    with pytest.raises(NotFound):
        await inbox.answer("p", allow=True, by="anna")
    await journal.permission_requested("p", "c1", "Bash", "L1")
    await inbox.answer("p", allow=True, by="anna")
    assert (await state_of(world)).permissions["p"].allow is True


@pytest.mark.parametrize(("allowed", "ran"), [(None, []), (False, []), (True, ["b"])])
async def test_recovery_runs_no_call_that_nobody_has_allowed(allowed: bool | None, ran: list[str]) -> None:
    done: list[str] = []

    @tool(replay="never", name="b")
    async def b() -> str:
        """Do it."""
        done.append("b")
        return "did it"

    world = Store()
    inbox = await Inbox.create(world, SESSION, ASKING)
    await inbox.accept("m-1", "do it")
    journal = await taken(world, OWNER)
    await journal.turn_started("m-1")
    await asked(journal, ("c1", "a", {}), ("c2", "b", {}))
    await journal.tool_gate("c1", "L1")
    await journal.tool_finished("c1", ok=True, result=b"r", source="host")
    await journal.permission_requested("p", "c2", seen("b"), "L1")
    if allowed is not None:
        await inbox.answer("p", allow=allowed, by="anna")
    state = await driven(world, equipped(None, None, b))
    if allowed is None:
        assert (done, state.tool_calls["c2"].outcome, state.parked) == ([], None, True)
        return
    assert (done, state.tool_calls["c2"].outcome) == (ran, "completed" if ran else "not_started")
    result = state.tool_calls["c2"].result
    said = {False: "anna did not allow this call: no reason given", True: "did it"}
    assert result is not None and result.text == said[allowed]
