"""A stop wins over everything: nothing runs any more, only the truth is written. Steers are never lost."""

from __future__ import annotations

import anyio
import pytest

from harness_durable.adapter import LifeContext, TurnEnd
from harness_durable.errors import HarnessDied, HarnessStuck
from harness_durable.journal import Inbox
from harness_durable.policy import STOPPED
from harness_durable.sandbox import Link
from harness_durable.tools import NOT_HAPPENED, UNSURE, Tool, tool
from tests.runtime.kit import (
    Harness,
    Place,
    Store,
    Works,
    accepted,
    completes,
    driven,
    driver,
    equipped,
    state_of,
)
from tests.unit.memory_world import OWNER
from tests.unit.session_kit import SESSION, asked, begun, host, taken


class Till:
    """A tool with a side effect that can be asked about: ``answer`` is what its probe says."""

    def __init__(self, answer: object) -> None:
        self.paid: list[int] = []
        self.asked = 0
        self.answer = answer

    def tool(self) -> Tool:
        async def probe(amount: int) -> object:
            self.asked += 1
            return self.answer

        @tool(replay="never", probe=probe, name="pay")
        async def pay(amount: int) -> str:
            """Pay that much."""
            self.paid.append(amount)
            return "paid"

        return pay


async def cut_off(world: Store, *, stop: bool) -> None:
    """A worker died while ``pay`` ran; then, perhaps, somebody asked for a stop."""
    journal = await begun(world)
    await asked(journal, ("c1", "pay", {"amount": 7}))
    await journal.tool_gate("c1", "L1")
    if stop:
        await (await Inbox.open(world, SESSION)).request_stop("anna")


# ---------------------------------------------------------------------------------------------- stop


async def test_a_turn_that_the_driver_began_can_be_stopped_from_an_inbox_opened_before() -> None:
    world = Store()
    inbox = await accepted(world, "m-1")
    assert not await inbox.request_stop("anna")
    journal = await taken(world, OWNER)
    await journal.turn_started("m-1")
    assert await inbox.request_stop("anna")
    assert await inbox.request_stop("ben")
    assert (await state_of(world)).turns["m-1"].stop_by == "anna"


@pytest.mark.parametrize(
    ("answer", "outcome"),
    [(NOT_HAPPENED, "not_started"), (UNSURE, "unknown"), ("receipt 12", "completed")],
)
async def test_a_stopped_turn_only_asks_what_happened_and_runs_nothing_again(
    answer: object, outcome: str
) -> None:
    world, till, harness = Store(), Till(answer), Harness()
    await cut_off(world, stop=True)
    state = await driven(world, equipped(harness, None, till.tool()))
    assert (till.asked, till.paid, harness.lives) == (1, [], [])
    assert (state.turns["m-1"].status, state.tool_calls["c1"].outcome) == ("cancelled", outcome)


async def test_a_call_that_a_stop_kept_from_running_says_so_also_after_a_crash() -> None:
    world = Store()
    journal = await begun(world)
    await asked(journal, ("c1", "Bash", {}), origin="builtin")
    await (await Inbox.open(world, SESSION)).request_stop("anna")
    call = (await driven(world, equipped())).tool_calls["c1"]
    assert (call.outcome, call.result and call.result.text) == ("not_started", STOPPED)


async def test_without_a_stop_the_call_that_did_not_happen_runs() -> None:
    world, till = Store(), Till(NOT_HAPPENED)
    await cut_off(world, stop=False)
    state = await driven(world, equipped(None, None, till.tool()))
    assert (till.paid, state.tool_calls["c1"].outcome) == ([7], "completed")


@pytest.mark.parametrize("stop", [False, True])
async def test_a_probe_is_not_trusted_while_the_worker_that_ran_the_call_may_live(stop: bool) -> None:
    world, till = Store(), Till(NOT_HAPPENED)
    await cut_off(world, stop=stop)
    state = await driven(world, equipped(None, None, till.tool()), rival=True)
    assert (till.asked, till.paid, state.tool_calls["c1"].outcome) == (0, [], "unknown")


async def test_a_stop_while_recovery_runs_a_tool_cuts_it_off() -> None:
    running = anyio.Event()

    @tool(replay="safe", name="pay")
    async def pay(amount: int) -> str:
        """Pay that much."""
        running.set()
        await anyio.sleep_forever()
        return "never"

    world, harness = Store(), Harness()
    journal = await begun(world)
    await asked(journal, ("c1", "pay", {"amount": 7}), policy="safe")
    await journal.tool_gate("c1", "L1")
    held = await driver(world, equipped(harness, None, pay))
    with anyio.fail_after(20):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(held.run)
            await running.wait()
            await (await Inbox.open(world, SESSION)).request_stop("anna")
    state = await state_of(world)
    assert state.tool_calls["c1"].outcome == "cancelled"
    assert (state.turns["m-1"].stop_by, state.turns["m-1"].settled) == ("anna", True)


async def test_a_stop_ends_the_living_harness_of_a_dead_worker() -> None:
    world, place, harness = Store(), Place("L1"), Harness()
    await begun(world)
    await (await Inbox.open(world, SESSION)).request_stop("anna")
    state = await driven(world, equipped(harness, place))
    assert (place.lives, harness.lives) == (set(), [])
    assert (state.turns["m-1"].status, state.turns["m-1"].reason) == ("cancelled", "anna asked for a stop")


async def test_a_harness_that_dies_over_its_stop_is_not_started_again() -> None:
    world, works = Store(), Works()

    async def dies(ctx: LifeContext, link: Link) -> TurnEnd:
        works.begun.set()
        await ctx.journal.until(lambda state: state.turns["m-1"].stop_by is not None)
        raise HarnessDied(-9, "")

    await accepted(world, "m-1")
    harness = Harness(dies)
    with anyio.fail_after(20):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon((await driver(world, equipped(harness))).run)
            await works.begun.wait()
            await (await Inbox.open(world, SESSION)).request_stop("anna")
    state = await state_of(world)
    assert (state.turns["m-1"].status, len(harness.lives)) == ("cancelled", 1)


async def test_the_next_message_goes_on_after_a_stop() -> None:
    world, harness = Store(), Harness()
    await cut_off(world, stop=True)
    await (await Inbox.open(world, SESSION)).accept("m-2", "next")
    state = await driven(world, equipped(harness))
    assert [turn.status for turn in state.turns.values()] == ["cancelled", "completed"]


async def test_nothing_is_released_after_a_stop_was_accepted() -> None:
    world = Store()
    journal = await begun(world)
    await asked(journal, ("c1", "pay", {"amount": 1}), ("c2", "pay", {"amount": 2}))
    await journal.tool_gate("c1", "L1")
    await (await Inbox.open(world, SESSION)).request_stop("anna")
    await journal.still_ours()
    verdict = await journal.tool_gate("c2", "L1")
    assert (verdict.action, verdict.text) == ("deny", STOPPED)
    assert (await journal.tool_gate("c1", "L1")).already


async def test_a_custom_call_after_a_stop_is_refused_by_its_host() -> None:
    world, till = Store(), Till(UNSURE)
    journal = await begun(world)
    await asked(journal, ("c1", "pay", {"amount": 7}))
    await (await Inbox.open(world, SESSION)).request_stop("anna")
    await journal.still_ours()
    result = await host(journal, [till.tool()]).call("c1", "pay", b'{"amount": 7}')
    assert (result.is_error, result.text, till.paid) == (True, STOPPED, [])


# --------------------------------------------------------------------------------------------- steers


@pytest.mark.parametrize("end", ["completed", "failed", "cancelled"])
async def test_a_steer_that_its_turn_never_took_starts_a_turn_of_its_own(end: str) -> None:
    world = Store()
    journal = await begun(world)
    await (await Inbox.open(world, SESSION)).accept("st", "also that", when_busy="steer")
    match end:
        case "completed":
            await journal.turn_completed("done")
        case "failed":
            await journal.turn_failed("x", "why")
        case _:
            await journal.turn_cancelled("why")
    assert (await world.session(SESSION)).status == "queued"
    state = await driven(world, equipped())
    assert [turn.status for turn in state.turns.values()] == [end, "completed"]
    assert state.messages["st+queued"].text == state.messages["st"].text


async def test_a_steer_that_was_taken_starts_nothing() -> None:
    world = Store()
    journal = await begun(world)
    await (await Inbox.open(world, SESSION)).accept("st", "also that", when_busy="steer")
    await journal.still_ours()
    await journal.message_delivered("st", "L1")
    await journal.turn_completed("done")
    assert list((await driven(world, equipped())).turns) == ["m-1"]


async def test_a_steer_waits_for_the_next_life_if_the_first_one_dies() -> None:
    world = Store()
    seen: list[list[str]] = []

    async def looks(ctx: LifeContext, link: Link) -> TurnEnd:
        seen.append([steer.id for steer in ctx.journal.state.steers("m-1")])
        if len(seen) == 1:
            await (await Inbox.open(world, SESSION)).accept("st", "also that", when_busy="steer")
            await ctx.journal.until(lambda state: bool(state.steers("m-1")))
            raise HarnessStuck("silent; see the trace")
        await ctx.journal.message_delivered("st", ctx.life)
        return TurnEnd("completed", "done")

    await accepted(world, "m-1")
    await driven(world, equipped(Harness(looks, looks, completes())))
    assert seen == [[], ["st"]]
