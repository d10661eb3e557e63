"""The store or the log misbehaves while a session is driven: what goes on, what stops, what is never done."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Mapping, Sequence

import anyio
import pytest

from harness_durable.adapter import LifeContext, TurnEnd
from harness_durable.errors import (
    Conflict,
    HarnessMissing,
    SandboxUnavailable,
    StorageUnavailable,
    WorkspaceMissing,
    WriterFenced,
)
from harness_durable.journal import Inbox, Reader
from harness_durable.journal.calls import Told
from harness_durable.journal.requests import body_of
from harness_durable.sandbox import Link
from harness_durable.world import MAX_RECORD, Record, RowUpdate
from tests.runtime.kit import (
    HandClock,
    Harness,
    Place,
    Store,
    accepted,
    at_hand,
    completes,
    driven,
    driver,
    equipped,
    raises,
    state_of,
)
from tests.unit.memory_world import OTHER
from tests.unit.session_kit import SESSION, asked, begun, kinds

# ---------------------------------------------------------------------------------------- the store


async def test_a_short_outage_that_only_the_watcher_sees_does_not_cut_the_life(hands: HandClock) -> None:
    world, place = Store(), Place()

    async def goes_on(ctx: LifeContext, link: Link) -> TurnEnd:
        world.fail_waits = 2
        await ctx.journal.message_delivered("m-1", ctx.life)  # wakes the watcher
        await (await Inbox.open(world, SESSION)).accept("st", "also", when_busy="steer")
        await ctx.journal.until(lambda state: bool(state.steers("m-1")))
        return TurnEnd("completed", "done")

    await accepted(world, "m-1")
    held = await driver(world, equipped(Harness(goes_on, completes()), place))
    await at_hand(held.run, hands)
    assert world.fail_waits == 0
    assert len((await state_of(world)).turns["m-1"].lives) == 1


async def test_a_short_outage_during_an_append_costs_nothing(hands: HandClock) -> None:
    world = Store()

    async def while_away(ctx: LifeContext, link: Link) -> TurnEnd:
        world.fail_next = 3
        await ctx.journal.message_delivered("m-1", ctx.life)
        return TurnEnd("completed", "done")

    await accepted(world, "m-1")
    held = await driver(world, equipped(Harness(while_away)))
    await at_hand(held.run, hands)
    state = await state_of(world)
    assert (state.turns["m-1"].status, len(state.lives)) == ("completed", 1)


async def test_a_store_that_stays_away_ends_the_driver_and_leaves_the_life_as_it_is(
    hands: HandClock,
) -> None:
    world, place = Store(), Place()

    async def while_away(ctx: LifeContext, link: Link) -> TurnEnd:
        world.down = True
        await ctx.journal.message_delivered("m-1", ctx.life)
        return TurnEnd("completed", "never")

    await accepted(world, "m-1")
    held = await driver(world, equipped(Harness(while_away), place))

    async def run() -> bool:
        with pytest.raises(BaseException) as trouble:
            await held.run()
        return trouble.group_contains(StorageUnavailable)

    assert await at_hand(run, hands)
    world.down = False
    state = await state_of(world)
    assert (place.reaped, len(place.lives), state.turns["m-1"].status) == ([], 1, "running")
    assert all(hold.closed for hold in place.holds)


async def test_a_life_is_left_as_it_is_when_the_store_is_gone() -> None:
    world, place, gone = Store(), Place(), StorageUnavailable("away just then; wait")
    await accepted(world, "m-1")
    held = await driver(world, equipped(Harness(raises(gone)), place))
    with pytest.raises(BaseException) as trouble:
        await held.run()
    assert trouble.group_contains(type(gone))
    assert (place.reaped, len(place.lives)) == ([], 1)


async def test_an_answer_that_was_lost_starts_no_second_turn(hands: HandClock) -> None:
    world = Store()
    await accepted(world, "m-1")
    held = await driver(world, equipped())
    world.lose_answer = True
    await at_hand(held.run, hands)
    written = [record.kind for record in await world.read(SESSION)]
    assert (written.count("turn.started"), written.count("life.started")) == (1, 1)


class Restored(Store):
    """From a backup, once ``older``: shorter than what its readers know."""

    older, tries = False, 0

    async def append(
        self,
        session: str,
        *,
        expected_head: int,
        epoch: int,
        records: Sequence[Record],
        blobs: Mapping[str, bytes] | None = None,
        row: RowUpdate | None = None,
    ) -> int:
        if not self.older:
            return await super().append(
                session, expected_head=expected_head, epoch=epoch, records=records, blobs=blobs, row=row
            )
        self.tries += 1
        raise Conflict(session, expected_head, [])


async def test_a_log_that_is_shorter_than_what_was_read_of_it_is_an_error_and_no_loop() -> None:
    world = Restored()
    journal = await begun(world)
    world.older = True
    with pytest.raises(Conflict):
        await journal.turn_completed("done")
    assert world.tries == 1


# ------------------------------------------------------------------------------------ being superseded


async def test_a_superseded_driver_hears_of_it_without_writing() -> None:
    world = Store()
    journal = await begun(world)

    async def supersede() -> None:
        await world.claim_session(OTHER, SESSION, take_over=True)

    with anyio.fail_after(10):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(supersede)
            with pytest.raises(WriterFenced):
                await journal.watch()


async def test_a_superseded_driver_stops_while_its_harness_is_silent() -> None:
    world, place = Store(), Place()

    async def superseded(ctx: LifeContext, link: Link) -> TurnEnd:
        await world.claim_session(OTHER, SESSION, take_over=True)
        await anyio.sleep_forever()
        return TurnEnd("completed", "never")

    await accepted(world, "m-1")
    held = await driver(world, equipped(Harness(superseded), place))
    with anyio.fail_after(10), pytest.raises(BaseException) as lost:
        await held.run()
    assert lost.group_contains(WriterFenced)
    assert (place.reaped, len(place.lives)) == ([], 1)


# -------------------------------------------------------------------------------------------- records


@pytest.mark.parametrize("first", ["hook", "transcript"])
async def test_an_outcome_that_two_know_of_is_written_once(first: str) -> None:
    world = Store()
    journal = await begun(world)
    await asked(journal, ("c1", "Bash", {}), origin="builtin")
    await journal.tool_gate("c1", "L1")
    told = [Told("c1", "completed", b"from the transcript")]
    if first == "hook":
        await journal.tool_finished("c1", ok=False, result=b"from the hook", source="hook")
        await journal.transcript_appended("L1", {"main": [b"line"]}, offset=1, told=told)
    else:
        await journal.transcript_appended("L1", {"main": [b"line"]}, offset=1, told=told)
        await journal.tool_finished("c1", ok=False, result=b"from the hook", source="hook")
    ends = [kind for kind in await kinds(world) if kind in ("tool.completed", "tool.failed")]
    assert ends == ["tool.failed" if first == "hook" else "tool.completed"]
    result = (await state_of(world)).tool_calls["c1"].result
    assert result is not None and result.text == f"from the {first}"


async def test_transcript_lines_that_were_read_again_are_not_written_again() -> None:
    world = Store()
    journal = await begun(world)
    for offset in (10, 10, 7, 20):
        await journal.transcript_appended("L1", {"main": [b"%d" % offset]}, offset=offset)
    assert [line async for line in journal.transcript_lines("main")] == [b"10", b"20"]


async def test_a_long_conversation_fits_into_records_and_comes_back_whole() -> None:
    world = Store()
    journal = await begun(world)
    messages = [{"role": "user", "content": "x" * 20_000 + str(number)} for number in range(100)]
    body = json.dumps({"messages": messages}).encode()
    call = await journal.model_requested(
        key="k", life="L1", wire="anthropic", model="x", path="/", body=body, field="messages", agent=None
    )
    assert max(len(record.body) for record in await world.read(SESSION)) <= MAX_RECORD
    stored = await body_of(Reader(world, SESSION), await state_of(world), call, "messages")
    assert json.loads(stored) == json.loads(body)


async def test_no_model_call_stays_open_when_its_turn_is_settled() -> None:
    world = Store()
    journal = await begun(world)
    call = await journal.model_requested(
        key="k", life="L1", wire="anthropic", model="x", path="/", body=b"{}", field="messages", agent=None
    )
    await journal.turn_completed("done")
    known = (await state_of(world)).model_calls[call]
    assert (known.status, known.reason) == ("lost", "the turn was settled first")


async def test_a_planned_end_of_a_life_uses_up_nothing_even_before_the_turn_was_resumed() -> None:
    world = Store()
    journal = await begun(world)
    await journal.life_lost("L1", "it died")
    for number in range(3):
        ref = Place().locate(f"L{number + 2}")
        await journal.life_started(ref, "m-1", "2.1.0")
        await journal.life_lost(ref.life, "we had to go", planned=True)
        await journal.life_lost(ref.life, "said twice", planned=True)
    turn = (await state_of(world)).turns["m-1"]
    assert (turn.status, turn.fruitless, len(turn.lives)) == ("interrupted", 1, 4)


async def test_answers_that_died_with_a_worker_are_closed_before_the_next_life() -> None:
    world = Store()
    journal = await begun(world)
    call = await journal.model_requested(
        key="k", life="L1", wire="anthropic", model="x", path="/", body=b"{}", field="messages", agent=None
    )
    state = await driven(world, equipped())
    assert (state.model_calls[call].status, state.turns["m-1"].status) == ("lost", "completed")


class NoRoom(SandboxUnavailable):
    why = "disk_full"


@pytest.mark.parametrize(
    ("trouble", "why"),
    [
        (NoRoom("no room; free some"), "disk_full"),
        (SandboxUnavailable("out of order; repair it"), ""),
        (WorkspaceMissing("the folder is not there; make it"), "workspace_missing"),
        (HarnessMissing("it is not installed; install it"), "harness_missing"),
    ],
)
async def test_why_a_life_could_not_begin_is_a_word_in_the_log(trouble: Exception, why: str) -> None:
    world, place = Store(), Place()
    await accepted(world, "m-1")
    place.start_fails = [trouble]
    with contextlib.suppress(BaseExceptionGroup):
        await driven(world, equipped(place=place))
    first = next(iter((await state_of(world)).lives.values()))
    assert (first.reason, first.why, first.ended is not None) == (str(trouble), why, True)
