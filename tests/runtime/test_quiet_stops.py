"""Leaving a session: at a point where that costs nothing, with its harness left running, or while a person is
asked."""

from __future__ import annotations

import anyio
import pytest

from harness_durable.adapter import LifeContext, TurnEnd
from harness_durable.journal import Journal
from harness_durable.journal.calls import Asked, Response
from harness_durable.recovery import at_rest, may_leave
from harness_durable.sandbox import Link
from harness_durable.state import Session
from harness_durable.world import Owner
from tests.runtime.kit import (
    HandClock,
    Harness,
    Place,
    Store,
    Works,
    accepted,
    breathe,
    completes,
    driven,
    equipped,
    state_of,
    until,
)
from tests.runtime.test_service_stops import running
from tests.unit.memory_world import OWNER
from tests.unit.session_kit import SESSION, asked, begun

NONE = frozenset[str]()


class Calls(Works):
    """A life in which the model asks for one call. Each step is done when its event is set."""

    def __init__(self) -> None:
        super().__init__()
        self.answered, self.released, self.finished = anyio.Event(), anyio.Event(), anyio.Event()
        self.left = anyio.Event()

    async def __call__(self, ctx: LifeContext, link: Link) -> TurnEnd:
        try:
            call = await requested(ctx.journal, ctx.life)
            self.begun.set()
            await self.answered.wait()
            tool = Asked("c1", "Bash", b"{}", "never", "builtin")
            await ctx.journal.model_completed(call, Response(200, "application/json", b"{}", tools=(tool,)))
            await ctx.journal.tool_gate("c1", ctx.life)
            self.released.set()
            await self.finished.wait()
            await ctx.journal.tool_finished("c1", ok=True, result=b"done", source="hook")
            await self.enough.wait()
            return TurnEnd("completed", "done")
        finally:
            self.left.set()


async def requested(journal: Journal, life: str) -> str:
    return await journal.model_requested(
        key="k", life=life, wire="anthropic", model="x", path="/", body=b"{}", field="messages", agent=None
    )


async def test_a_stop_waits_for_the_running_call_and_no_longer(hands: HandClock) -> None:
    world, place, calls = Store(), Place(), Calls()
    await accepted(world, "m-1")
    async with running(world, equipped(Harness(calls), place, drain_seconds=3600)) as ran:
        await until(lambda: _is(calls.begun.is_set()), hands)
        ran.stop()
        await breathe()
        assert not calls.left.is_set(), "the model is being asked"
        calls.answered.set()
        await until(lambda: _is(calls.released.is_set()))
        await breathe()
        assert not calls.left.is_set(), "the call runs"
        before = hands.monotonic()
        calls.finished.set()
        await until(ran.ended)
        assert hands.monotonic() == before
    state = await state_of(world)
    turn = state.turns["m-1"]
    assert (turn.status, turn.fruitless, state.life, place.lives) == ("interrupted", 0, None, set())
    assert state.tool_calls["c1"].outcome == "completed", "and is not unknown to the next life"
    assert (await world.session(SESSION)).due is not None


async def test_a_turn_that_is_about_to_settle_is_let_settle() -> None:
    world = Store()
    journal = await begun(world)
    assert not may_leave(journal.state, NONE), "its life has only begun"
    call = await requested(journal, "L1")
    assert (at_rest(journal.state, NONE), may_leave(journal.state, NONE)) == (False, False)
    await journal.model_completed(call, Response(200, "application/json", b"{}"))
    assert (at_rest(journal.state, NONE), may_leave(journal.state, NONE)) == (True, False)


async def test_a_response_that_is_half_done_is_no_time_to_leave() -> None:
    world = Store()
    journal = await begun(world)
    await asked(journal, ("c1", "Bash", {}), ("c2", "Bash", {}), origin="builtin")
    assert may_leave(journal.state, NONE), "it is given to the next life again, whole"
    await journal.tool_gate("c1", "L1")
    assert not at_rest(journal.state, NONE)
    await journal.tool_finished("c1", ok=True, result=b"", source="hook")
    assert (at_rest(journal.state, NONE), may_leave(journal.state, NONE)) == (True, False)
    await journal.tool_gate("c2", "L1")
    await journal.tool_finished("c2", ok=True, result=b"", source="hook")
    assert may_leave(journal.state, NONE)


async def test_a_subagent_is_left_between_its_calls() -> None:
    world = Store()
    journal = await begun(world)
    await asked(journal, ("c1", "Task", {}), origin="builtin")
    await journal.tool_gate("c1", "L1")
    assert not may_leave(journal.state, NONE)
    assert may_leave(journal.state, frozenset({"Task"}))


async def test_whoever_waits_for_a_moment_acts_on_the_state_as_it_is_then() -> None:
    world = Store()
    journal = await begun(world)
    acted: list[int] = []

    def asks(state: Session) -> bool:
        return bool(state.tool_calls)

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(journal.when, asks, lambda: acted.append(journal.state.seq))
        await breathe()
        assert acted == []
        await asked(journal, ("c1", "Bash", {}))
    assert acted == [next(iter(journal.state.tool_calls.values())).requested_seq]


# ------------------------------------------------------------------------------ on_stop = keep


async def test_with_keep_the_harness_goes_on_and_the_next_worker_attaches(hands: HandClock) -> None:
    world, place, calls = Store(), Place(), Calls()
    await accepted(world, "m-1")
    async with running(world, equipped(Harness(calls), place, drain_seconds=2, on_stop="keep")) as ran:
        await until(lambda: _is(calls.begun.is_set()), hands)
        calls.answered.set()
        await until(lambda: _is(calls.released.is_set()))
        assert ran.service is not None
        first = ran.service.worker.owner
        ran.stop()
        await until(ran.ended, hands)
    state = await state_of(world)
    assert (len(place.lives), place.reaped, state.life is not None) == (1, [], True)
    assert state.turns["m-1"].status == "running"
    row = await world.session(SESSION)
    assert (row.owner, row.due is not None) == (first, True), "as after its death"
    world.dead.add(first)
    harness = Harness(completes("attached"))
    state = await driven(world, equipped(harness, place))
    assert (harness.rungs, state.turns["m-1"].status) == (["attach"], "completed")
    assert state.displaced_seq == 0


async def test_with_keep_a_world_that_can_is_asked_to_keep_the_sessions_for_this_host(
    hands: HandClock,
) -> None:
    class Keeps(Store):
        def __init__(self) -> None:
            super().__init__()
            self.stayed = list[Owner]()

        async def stay(self, owner: Owner) -> None:
            self.stayed.append(owner)

    for kept in (True, False):
        world, place, calls = Keeps(), Place(), Calls()
        await accepted(world, "m-1")
        equipment = equipped(Harness(calls), place, drain_seconds=2, on_stop="keep" if kept else "end")
        async with running(world, equipment) as ran:
            await until(lambda calls=calls: _is(calls.begun.is_set()), hands)
            assert ran.service is not None
            owner = ran.service.worker.owner
            ran.stop()
            await until(ran.ended, hands)
        assert world.stayed == ([owner] if kept else [])


async def test_with_keep_what_has_no_harness_is_given_back_all_the_same(hands: HandClock) -> None:
    class Dies(Works):
        async def __call__(self, ctx: LifeContext, link: Link) -> TurnEnd:
            place.lives.clear()
            return await super().__call__(ctx, link)

    world, place, works = Store(), Place(), Dies()
    await accepted(world, "m-1")
    async with running(world, equipped(Harness(works), place, drain_seconds=1, on_stop="keep")) as ran:
        await until(lambda: _is(works.begun.is_set()), hands)
        ran.stop()
        await until(ran.ended, hands)
    row = await world.session(SESSION)
    assert (row.owner, row.due is not None) == (None, True)


# ----------------------------------------------------------------------------------- questions


class Asks(Works):
    """A life that asks for one call, and asks a person whether it may run. Another life asks again."""

    async def __call__(self, ctx: LifeContext, link: Link) -> TurnEnd:
        journal = ctx.journal
        if "c1" not in journal.state.tool_calls:
            await asked(journal, ("c1", "Bash", {}), origin="builtin")
        await journal.permission_requested("p", "c1", "Bash", ctx.life)
        self.begun.set()
        await journal.until(lambda state: state.permissions["p"].allow is not None)
        await journal.tool_gate("c1", ctx.life)
        await journal.tool_finished("c1", ok=True, result=b"ran", source="hook")
        return TurnEnd("completed", "done")


async def test_a_session_that_waits_for_an_answer_takes_no_slot_for_ever(hands: HandClock) -> None:
    world, place, harness = Store(), Place(), Harness(Asks())
    inbox = await accepted(world, "m-1")
    equipment = equipped(harness, place, concurrency=1, permission_patience_seconds=600, lease_seconds=3600)
    async with running(world, equipment):
        await until(lambda: _status(world, "waiting"), hands)
        await hands.advance(590)
        assert len(place.lives) == 1
        await hands.advance(20)
        await until(lambda: _free(world), hands)
        row, state = await world.session(SESSION), await state_of(world)
        assert (row.status, row.due, state.life, place.lives) == ("waiting", None, None, set())
        turn = state.turns["m-1"]
        assert (turn.settled, turn.fruitless) == (False, 0)
        await hands.advance(3000)
        assert (len(harness.lives), (await world.session(SESSION)).epoch) == (1, 1), "nobody looks at it"
        await inbox.answer("p", allow=True, by="anna")
        await until(lambda: _status(world, "idle"), hands)
    state = await state_of(world)
    assert (harness.rungs, state.turns["m-1"].status) == (["start", "continue"], "completed")
    assert len(state.permissions) == 1, "nobody was asked twice"
    assert state.tool_calls["c1"].outcome == "completed"


async def test_an_answer_in_time_ends_nothing(hands: HandClock) -> None:
    world, harness = Store(), Harness(Asks())
    inbox = await accepted(world, "m-1")
    async with running(world, equipped(harness, permission_patience_seconds=60)):
        await until(lambda: _status(world, "waiting"), hands)
        await hands.advance(50)
        await inbox.answer("p", allow=True, by="anna")
        await until(lambda: _status(world, "idle"), hands)
    assert harness.rungs == ["start"]


async def test_a_stop_of_the_worker_parks_what_waits_for_an_answer_at_once(hands: HandClock) -> None:
    world, place, harness = Store(), Place(), Harness(Asks())
    inbox = await accepted(world, "m-1")
    async with running(world, equipped(harness, place, drain_seconds=3600)) as ran:
        await until(lambda: _status(world, "waiting"), hands)
        ran.stop()
        await until(ran.ended)
    row = await world.session(SESSION)
    assert (row.status, row.due, row.owner, place.lives) == ("waiting", None, None, set())
    again = Harness(Asks())
    async with running(world, equipped(again, place)) as ran:
        await hands.advance(60)
        assert again.lives == [], "a restart does not ask again"
        await inbox.answer("p", allow=False, by="anna")
        await until(lambda: _status(world, "idle"), hands)
    assert again.rungs == ["continue"]


@pytest.mark.parametrize("how", ["stop", "message"])
async def test_a_parked_question_can_be_given_up_and_a_message_waits_behind_it(how: str) -> None:
    world = Store()
    journal = await begun(world)
    await asked(journal, ("c1", "Bash", {}))
    await journal.permission_requested("p", "c1", "Bash", "L1")
    state = await driven(world, equipped())
    assert (state.parked, state.lives["L1"].ended is not None) == (True, True)
    inbox = await accepted(world)
    if how == "message":
        await inbox.accept("m-2", "and this")
        assert (await world.session(SESSION)).due is None
        await inbox.answer("p", allow=True, by="anna")
    else:
        await inbox.request_stop("anna")
    assert (await world.session(SESSION)).due is not None
    state = await driven(world, equipped())
    assert state.status == "idle"
    assert state.turns["m-1"].status == ("cancelled" if how == "stop" else "completed")
    assert OWNER.worker in state.lives["L1"].workers


async def _status(world: Store, status: str) -> bool:
    return (await world.session(SESSION)).status == status


async def _free(world: Store) -> bool:
    return (await world.session(SESSION)).owner is None


async def _is(value: bool) -> bool:
    return value
