"""Messages for later: they start their turn when it is time, others come first, nothing forgets them."""

from __future__ import annotations

import os
from datetime import UTC, datetime, timedelta
from pathlib import Path

import anyio
import msgspec
import pytest

from harness_durable import events, fold, recovery
from harness_durable.errors import BadInput, NotFound
from harness_durable.events import Entry
from harness_durable.journal import Inbox
from harness_durable.payload import pack_text
from harness_durable.recovery import Facts
from harness_durable.runtime.sessions import in_ms
from harness_durable.world import Claim, Owner
from harness_durable.worlds import open_world
from tests.runtime.conftest import Front
from tests.runtime.kit import (
    HandClock,
    Harness,
    Store,
    Works,
    completes,
    driven,
    equipped,
    is_,
    state_of,
    until,
)
from tests.runtime.test_service_slots import Diary, serving
from tests.unit.session_kit import AGENT, SESSION, begun

MINUTE = 60_000


async def sent(world: Store, *delays: tuple[str, int], now: int) -> Inbox:
    """A session with messages that may start so many ms from ``now``; 0 for at once."""
    inbox = await Inbox.create(world, SESSION, AGENT)
    for message, delay in delays:
        await inbox.accept(message, "do it", not_before=now + delay if delay else 0)
    return inbox


# --------------------------------------------------------------------------------- the pure parts


def message(seq: int, name: str, not_before: int = 0, time: int = 1) -> Entry:
    return Entry(seq, time, 0, events.MessageAccepted(name, pack_text("x").payload, not_before))


def order(*entries: Entry) -> list[str]:
    return [one.id for one in fold.fold(entries).queued]


def test_the_queue_goes_by_time_and_then_by_acceptance() -> None:
    entries = [message(1, "late", 900), message(2, "soon", 300), message(3, "now", time=100)]
    assert order(*entries, message(4, "too", time=100)) == ["now", "too", "soon", "late"]


def test_a_delayed_message_whose_time_has_come_is_not_starved_by_newer_ones() -> None:
    assert order(message(1, "delayed", 300), message(2, "a", time=200), message(3, "b", time=400)) == [
        "a",
        "delayed",
        "b",
    ]


def test_messages_for_now_keep_their_order_whatever_the_senders_clocks_say() -> None:
    assert order(*(message(seq, f"m-{seq}", time=1000 - seq) for seq in range(1, 6))) == [
        f"m-{seq}" for seq in range(1, 6)
    ]


def test_a_plan_starts_a_delayed_message_only_at_its_time() -> None:
    state = fold.fold([message(1, "m-1", 500)])
    assert recovery.plan(state, Facts(False, now=499)).rung == "idle"
    assert recovery.plan(state, Facts(False, now=500)).message == "m-1"
    assert (state.due, state.status) == (500, "queued")


def test_a_later_message_does_not_hide_that_a_person_is_needed() -> None:
    entries = [message(1, "m-1"), Entry(2, 1, 1, events.TurnStarted("m-1"))]
    entries.append(Entry(3, 1, 1, events.TurnNeedsInput("m-1", "why")))
    state = fold.fold([*entries, message(4, "m-2", 500)])
    assert (state.status, state.due) == ("needs_input", 500)
    assert recovery.plan(state, Facts(False, now=500)).message == "m-2"


def test_a_time_that_is_over_means_at_once() -> None:
    assert in_ms(datetime(2020, 1, 1, tzinfo=UTC)) == in_ms(timedelta(seconds=-5)) == in_ms(None) == 0


def test_a_time_is_in_ms_by_the_wall_clock(hands: HandClock) -> None:
    assert in_ms(timedelta(minutes=1)) == hands.now_ms() + MINUTE
    assert in_ms(datetime(2100, 1, 1, tzinfo=UTC)) == 4_102_444_800_000


# -------------------------------------------------------------------------------------- accepting


async def test_the_row_is_due_when_the_first_message_has_its_time(hands: HandClock) -> None:
    world, now = Store(), hands.now_ms()
    inbox = await sent(world, ("m-1", 10 * MINUTE), ("m-2", 5 * MINUTE), ("m-3", 20 * MINUTE), now=now)
    row = await world.session(SESSION)
    assert (row.due, row.status) == (now + 5 * MINUTE, "queued")
    await inbox.accept("m-4", "now")
    assert (await world.session(SESSION)).due == now


async def test_a_message_for_later_does_not_put_off_what_is_due(hands: HandClock) -> None:
    world, now = Store(), hands.now_ms()
    await sent(world, ("m-1", 0), ("m-2", 5 * MINUTE), now=now)
    assert (await world.session(SESSION)).due == now


async def test_the_same_id_again_is_the_same_message_at_its_first_time(hands: HandClock) -> None:
    world, now = Store(), hands.now_ms()
    inbox = await sent(world, ("m-1", MINUTE), now=now)
    assert not await inbox.accept("m-1", "do it", not_before=now + 9 * MINUTE)
    assert inbox.state.messages["m-1"].not_before == now + MINUTE


@pytest.mark.parametrize("not_before", [-1, 10**18])
async def test_what_is_no_time_is_refused_and_nothing_is_stored(not_before: int) -> None:
    world = Store()
    inbox = await Inbox.create(world, SESSION, AGENT)
    with pytest.raises(BadInput, match="is no time"):
        await inbox.accept("m-1", "do it", not_before=not_before)
    assert len(await world.read(SESSION)) == 1


async def test_a_steer_cannot_wait() -> None:
    inbox = await Inbox.create(Store(), SESSION, AGENT)
    with pytest.raises(BadInput, match="running turn"):
        await inbox.accept("m-1", "do it", "steer", not_before=10**12)


# ---------------------------------------------------------------------------------------- driving


async def test_it_starts_at_its_time_and_not_before(hands: HandClock) -> None:
    world, now = Store(), hands.now_ms()
    await sent(world, ("m-1", 10 * MINUTE), now=now)
    async with serving(world, equipped(lease_seconds=3600)):
        await hands.advance(599)
        assert (await world.session(SESSION)).epoch == 0, "nobody looks at it before"
        await hands.advance(2)
        await until(is_(world, "completed"), hands)
    assert (await state_of(world)).turns["m-1"].started >= now + 10 * MINUTE


async def test_what_is_sent_meanwhile_comes_first_and_the_timer_is_kept(hands: HandClock) -> None:
    world, diary, now = Store(), Diary(), hands.now_ms()
    inbox = await sent(world, ("later", 10 * MINUTE), now=now)
    async with serving(world, equipped(Harness(diary), lease_seconds=3600)):
        await inbox.accept("now", "do it")
        await until(is_(world, "completed", "now"))
        await until(lambda: _parked_until(world, now + 10 * MINUTE))
        await hands.advance(601)
        await until(is_(world, "completed", "later"), hands)
        await until(lambda: _parked_until(world, None))
    assert diary.turns == [f"{SESSION}/now", f"{SESSION}/later"]


async def test_a_time_that_comes_while_another_turn_runs_is_not_missed(hands: HandClock) -> None:
    world, works, now = Store(), Works(), hands.now_ms()
    inbox = await sent(world, ("later", MINUTE), now=now)
    async with serving(world, equipped(Harness(works, completes()), lease_seconds=3600)):
        await inbox.accept("now", "do it")
        await until(lambda: _set(works.begun), hands)
        await hands.advance(120)
        works.enough.set()
        await until(is_(world, "completed", "later"), hands)


async def test_timers_survive_a_restart_of_everything(tmp_path: Path, hands: HandClock) -> None:
    url, now = f"sqlite:{tmp_path / 'world.db'}", hands.now_ms()
    world = await open_world(url)
    try:
        inbox = await Inbox.create(world, SESSION, AGENT)
        await inbox.accept("m-1", "do it", not_before=now + MINUTE)
    finally:
        await world.aclose()
    world = await open_world(url)
    try:
        row = await world.session(SESSION)
        assert (row.due, row.owner) == (now + MINUTE, None)
        await hands.advance(61)
        owner = Owner("w", "here", os.getpid())
        await world.register(owner)
        [claim] = await world.claim(owner, 4)
        assert claim.session == SESSION
    finally:
        await world.aclose()


async def test_a_driver_that_finds_only_later_messages_parks_the_session_until_then(hands: HandClock) -> None:
    world, now = Store(), hands.now_ms()
    await sent(world, ("m-1", MINUTE), now=now)
    state = await driven(world, equipped())
    row = await world.session(SESSION)
    assert (state.turns, row.due, row.status) == ({}, now + MINUTE, "queued")


async def test_a_program_that_is_open_starts_it_at_its_time(front: Front, hands: HandClock) -> None:
    world = Store()
    async with front(world, lease_seconds=3600) as durable:
        session = await durable.agent().session(SESSION)
        later = await session.send("check the build", message_id="later", wake_at=timedelta(minutes=10))
        await session.send("first this", message_id="now")
        await until(is_(world, "completed", "now"), None)
        await hands.advance(599)
        assert "later" not in (await state_of(world)).turns
        await hands.advance(2)
        await until(is_(world, "completed", "later"), hands)
        assert (await later.result()).status == "completed"


# ----------------------------------------------------------------------------------- taking it back


async def test_a_waiting_message_can_be_taken_back_and_the_session_is_parked(hands: HandClock) -> None:
    world, now = Store(), hands.now_ms()
    inbox = await sent(world, ("m-1", MINUTE), now=now)
    assert await inbox.withdraw("m-1", "anna")
    row, state = await world.session(SESSION), await state_of(world)
    assert (row.due, row.status, state.status, state.due) == (None, "idle", "idle", None)
    assert not await inbox.withdraw("m-1", "anna"), "once"
    assert not await inbox.accept("m-1", "again", not_before=now + MINUTE), "its id stays taken"


async def test_taking_one_back_leaves_the_others(hands: HandClock) -> None:
    world, now = Store(), hands.now_ms()
    inbox = await sent(world, ("m-1", MINUTE), ("m-2", 2 * MINUTE), ("m-3", 0), now=now)
    await inbox.withdraw("m-1", "anna")
    assert [one.id for one in inbox.state.queued] == ["m-3", "m-2"]
    state = await driven(world, equipped())
    assert list(state.turns) == ["m-3"]
    assert (await world.session(SESSION)).due == now + 2 * MINUTE


async def test_a_turn_that_has_started_cannot_be_taken_back() -> None:
    world = Store()
    await begun(world)
    inbox = await Inbox.open(world, SESSION)
    assert not await inbox.withdraw("m-1", "anna")
    with pytest.raises(NotFound, match="m-9"):
        await inbox.withdraw("m-9", "anna")


async def test_who_waits_for_a_message_that_is_taken_back_is_told(front: Front, hands: HandClock) -> None:
    told: list[str] = []
    async with front(Store(), lease_seconds=3600) as durable, anyio.create_task_group() as tasks:
        session = await durable.agent().session(SESSION)
        turn = await session.send("later", message_id="later", wake_at=timedelta(hours=1))

        async def wait() -> None:
            with pytest.raises(NotFound) as raised:
                await turn.result()
            told.append(str(raised.value))

        tasks.start_soon(wait)
        assert await session.withdraw("later")
        await until(lambda: _set(told), hands)
        assert [entry async for entry in turn.events(after=99)] == []
    assert "taken back" in told[0]


async def _parked_until(world: Store, due: int | None) -> bool:
    row = await world.session(SESSION)
    return row.owner is None and row.due == due


async def _set(thing: anyio.Event | list[str]) -> bool:
    return thing.is_set() if isinstance(thing, anyio.Event) else bool(thing)


async def test_a_message_whose_time_has_come_by_the_stores_clock_starts(hands: HandClock) -> None:
    """Else a worker whose clock is behind would claim the session again and again until it agrees."""

    class Ahead(Store):
        """Five minutes."""

        async def claim_session(self, owner: Owner, session: str, *, take_over: bool = False) -> Claim:
            claim = await super().claim_session(owner, session, take_over=take_over)
            return msgspec.structs.replace(claim, now=hands.now_ms() + 5 * MINUTE)

    world = Ahead()
    inbox = await Inbox.create(world, SESSION, AGENT)
    await inbox.accept("m-1", "later", not_before=hands.now_ms() + 4 * MINUTE)
    await inbox.accept("m-2", "much later", not_before=hands.now_ms() + 6 * MINUTE)
    state = await driven(world, equipped())
    assert list(state.turns) == ["m-1"]
