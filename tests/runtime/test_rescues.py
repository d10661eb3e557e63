"""A turn that its harness gave up for a trouble that may pass: the driver goes on with it, once."""

from __future__ import annotations

import anyio
import pytest

from harness_durable.adapter import LifeContext, TurnEnd
from harness_durable.errors import HarnessStuck
from harness_durable.events import TurnInterrupted
from harness_durable.journal import Inbox, Reader
from harness_durable.recovery import MAX_FRUITLESS
from harness_durable.runtime.lives import MAX_RESCUES
from harness_durable.runtime.progress import shown
from harness_durable.sandbox import Link
from tests.runtime.kit import (
    Harness,
    Place,
    Script,
    Store,
    accepted,
    completes,
    driven,
    driver,
    ends,
    equipped,
    raises,
    state_of,
)
from tests.unit.session_kit import SESSION, asked

GIVES_UP = TurnEnd("failed", code="api_529", reason="529 overloaded", transient=True)


async def test_c151_a_turn_given_up_for_a_passing_trouble_goes_on_in_a_new_life() -> None:
    world, place, harness = Store(), Place(), Harness(ends(GIVES_UP), completes("after all"))
    await accepted(world, "m-1")
    state = await driven(world, equipped(harness, place))
    turn = state.turns["m-1"]
    assert (turn.status, turn.text and turn.text.text) == ("completed", "after all")
    assert harness.rungs == ["start", "continue"]
    first, second = (state.lives[life] for life in turn.lives)
    assert first.reason == "529 overloaded"
    assert (place.lives, place.reaped[0], second.ended is not None) == (set(), first.id, True)


async def test_c151_the_log_says_that_the_trouble_may_pass() -> None:
    world = Store()
    await accepted(world, "m-1")
    await driven(world, equipped(Harness(ends(GIVES_UP), completes())))
    said = [entry.event async for entry in Reader(world, SESSION).entries(0)]
    cut = [event for event in said if isinstance(event, TurnInterrupted)]
    assert cut == [TurnInterrupted("m-1", "529 overloaded", transient=True)]


async def test_c151_it_goes_on_once_and_then_the_turn_has_failed() -> None:
    world, harness = Store(), Harness(ends(GIVES_UP))
    await accepted(world, "m-1")
    turn = (await driven(world, equipped(harness))).turns["m-1"]
    assert (turn.status, turn.code, len(harness.lives)) == ("failed", "api_529", 1 + MAX_RESCUES)
    assert turn.reason.startswith("529 overloaded; going on once more did not help")


@pytest.mark.parametrize("code", ["api_429", "api_401", "error_max_turns"])
async def test_a_turn_that_failed_for_good_fails_at_once(code: str) -> None:
    world, harness = Store(), Harness(ends(TurnEnd("failed", code=code, reason="no")))
    await accepted(world, "m-1")
    turn = (await driven(world, equipped(harness))).turns["m-1"]
    assert (turn.status, turn.reason, len(harness.lives)) == ("failed", "no", 1)


async def test_c151_after_progress_it_may_go_on_once_more() -> None:
    async def progresses(ctx: LifeContext, link: Link) -> TurnEnd:
        await asked(ctx.journal)
        return GIVES_UP

    world, harness = Store(), Harness(progresses, progresses, ends(GIVES_UP))
    await accepted(world, "m-1")
    turn = (await driven(world, equipped(harness))).turns["m-1"]
    assert (turn.status, len(harness.lives)) == ("failed", 3)


async def test_c151_a_crash_between_does_not_let_it_go_on_more_often() -> None:
    """How often is in the log: the next worker knows."""
    world, place, begun = Store(), Place(), anyio.Event()

    async def hangs(ctx: LifeContext, link: Link) -> TurnEnd:
        begun.set()
        await anyio.sleep_forever()
        raise AssertionError

    await accepted(world, "m-1")
    first = await driver(world, equipped(Harness(ends(GIVES_UP), hangs), place))
    with anyio.fail_after(20):
        async with anyio.create_task_group() as tasks:
            first._abandoned = lambda: True  # pyright: ignore[reportPrivateUsage]  (it dies, without a word)
            tasks.start_soon(first.run)
            await begun.wait()
            tasks.cancel_scope.cancel()
    place.die()
    harness = Harness(ends(GIVES_UP))
    turn = (await driven(world, equipped(harness, place))).turns["m-1"]
    assert (turn.status, turn.rescued, harness.rungs) == ("failed", MAX_RESCUES, ["continue"])


async def test_c151_a_life_that_was_given_up_counts_as_one_without_progress() -> None:
    stuck = raises(HarnessStuck("silent; see the trace"))
    scripts: list[Script] = [stuck] * (MAX_FRUITLESS - 1)
    world, harness = Store(), Harness(*scripts, ends(GIVES_UP))
    await accepted(world, "m-1")
    turn = (await driven(world, equipped(harness))).turns["m-1"]
    assert (turn.status, len(harness.lives)) == ("needs_input", MAX_FRUITLESS)
    assert "529 overloaded" in turn.reason


async def test_c151_a_turn_that_somebody_stopped_does_not_go_on() -> None:
    async def stopped(ctx: LifeContext, link: Link) -> TurnEnd:
        await (await Inbox.open(ctx.journal.reader.world, SESSION)).request_stop("anna")
        await ctx.journal.until(lambda state: state.turns["m-1"].stop_by is not None)
        return GIVES_UP

    world, harness = Store(), Harness(stopped)
    await accepted(world, "m-1")
    turn = (await driven(world, equipped(harness))).turns["m-1"]
    assert (turn.settled, len(harness.lives)) == (True, 1)


async def test_c145_what_the_harness_waits_for_is_progress_and_is_over_with_its_life() -> None:
    world, said = Store(), list[str]()

    async def waits(ctx: LifeContext, link: Link) -> TurnEnd:
        ctx.progress("waiting 12 s before attempt 3 of 11: 429 rate_limit")
        with anyio.fail_after(10):
            while not (text := shown(await world.progress(SESSION)).text):  # noqa: ASYNC110 (it tells nobody)
                await anyio.sleep(0.002)
        said.append(text)
        return TurnEnd("completed", "done")

    await accepted(world, "m-1")
    await driven(world, equipped(Harness(waits)))
    assert said == ["waiting 12 s before attempt 3 of 11: 429 rate_limit"]
    assert shown(await world.progress(SESSION)).text == ""
    assert (await state_of(world)).turns["m-1"].status == "completed"
