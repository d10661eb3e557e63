"""The journal: decided on the state, appended once, and silent for ever once another has the session."""

from __future__ import annotations

import random

import anyio
import pytest

from harness_durable import clock, events
from harness_durable.errors import BadInput, NotFound, StorageUnavailable, WriterFenced
from harness_durable.journal import Inbox, Journal, Reader
from harness_durable.journal import writer as writing
from harness_durable.journal.driver import Splice
from harness_durable.policy import NOT_STARTED, UNKNOWN
from harness_durable.recovery import Facts, plan
from tests.unit.memory_world import OTHER, OWNER, MemoryWorld
from tests.unit.session_kit import AGENT, SESSION, asked, begun, kinds, taken


class FakeClock:
    """Time that passes only when somebody sleeps."""

    def __init__(self) -> None:
        self.now = 1000.0

    def now_ms(self) -> int:
        return int(self.now * 1000)

    def monotonic(self) -> float:
        return self.now

    async def sleep(self, seconds: float) -> None:
        self.now += seconds
        await anyio.lowlevel.checkpoint()


async def dense(world: MemoryWorld) -> None:
    records = await world.read(SESSION)
    assert [record.seq for record in records] == list(range(1, len(records) + 1))


# ------------------------------------------------------------------------------------------ conflicts


async def test_a_transition_decides_again_when_somebody_wrote_in_between() -> None:
    world = MemoryWorld()
    journal = await begun(world)
    await asked(journal, ("c1", "f", {}))

    async def message() -> None:
        await (await Inbox.open(world, SESSION)).accept("m-2", "more")

    world.between = message
    assert (await journal.tool_gate("c1", "L1")).action == "release"
    assert (await kinds(world, ""))[-2:] == ["message.accepted", "tool.released"]
    assert "m-2" in journal.state.messages
    assert journal.state == await Reader(world, SESSION).load()
    await dense(world)


async def test_a_decision_that_others_made_needless_writes_nothing() -> None:
    world = MemoryWorld()
    await begun(world)
    first, second = await Inbox.open(world, SESSION), await Inbox.open(world, SESSION)

    async def other() -> None:
        assert await first.accept("m-2", "the first text")

    world.between = other
    assert not await second.accept("m-2", "the second text")
    assert (await kinds(world, "message")).count("message.accepted") == 2  # m-1 and m-2
    assert await second.reader.text(second.state.messages["m-2"].text) == "the first text"


async def test_two_transitions_at_once_are_one_after_the_other() -> None:
    world = MemoryWorld()
    journal = await begun(world)
    await asked(journal, *((f"c{n}", "f", {"n": n}) for n in range(20)))
    async with anyio.create_task_group() as group:
        for n in range(20):
            group.start_soon(journal.tool_gate, f"c{n}", "L1")
    assert (await kinds(world)).count("tool.released") == 20
    await dense(world)


# --------------------------------------------------------------------------------------------- fencing


async def test_a_superseded_journal_is_fenced_for_ever() -> None:
    world = MemoryWorld()
    journal = await begun(world)
    await taken(world, OTHER)
    head = len(await world.read(SESSION))
    for _ in range(2):
        with pytest.raises(WriterFenced):
            await journal.turn_completed("done")
    appends = world.appends
    with pytest.raises(WriterFenced):
        await journal.tool_gate("c1", "L1")
    assert (len(await world.read(SESSION)), world.appends) == (head, appends)


async def test_a_journal_that_reads_of_its_successor_is_fenced_before_it_writes() -> None:
    world = MemoryWorld()
    journal = await begun(world)
    await taken(world, OTHER)
    appends = world.appends
    with pytest.raises(WriterFenced):
        await journal.still_ours()
    with pytest.raises(WriterFenced):
        await journal.turn_completed("done")
    assert world.appends == appends


async def test_the_same_worker_under_a_new_epoch_fences_its_old_self() -> None:
    world = MemoryWorld()
    old = await begun(world)
    new = await taken(world, OWNER)
    await new.turn_completed("done")
    with pytest.raises(WriterFenced):
        await old.turn_failed("x", "y")
    assert new.state.turns["m-1"].status == "completed"


# ------------------------------------------------------------------------------- trouble with the store


async def test_an_append_is_patient_while_the_store_is_away() -> None:
    world = MemoryWorld()
    journal = await begun(world)
    with clock.use(FakeClock()):
        world.fail_next = 2
        await journal.turn_completed("done")
    assert (await kinds(world, "turn")).count("turn.completed") == 1


async def test_patience_ends_and_nothing_was_written_and_later_it_works_again() -> None:
    world, time = MemoryWorld(), FakeClock()
    journal = await begun(world)
    before = await world.read(SESSION)
    with clock.use(time):
        world.fail_next = 10_000
        with pytest.raises(StorageUnavailable, match="disk is full"):
            await journal.turn_completed("done")
    assert time.now - 1000.0 <= 0.2
    assert await world.read(SESSION) == before
    assert journal.state.status == "running"
    world.fail_next = 0
    await journal.turn_completed("done")
    assert journal.state.turns["m-1"].status == "completed"


async def test_a_lost_answer_is_settled_and_never_doubled() -> None:
    world = MemoryWorld()
    journal = await begun(world)
    with clock.use(FakeClock()):
        world.lose_answer = True
        await journal.turn_completed("done")
    assert (await kinds(world, "turn")).count("turn.completed") == 1
    assert journal.state == await Reader(world, SESSION).load()


async def test_an_answer_that_stays_unclear_silences_the_writer_for_ever() -> None:
    world = MemoryWorld()
    journal = await begun(world)

    world.lose_answer = True
    append = world.append

    async def once(*args: object, **more: object) -> int:
        try:
            return await append(*args, **more)  # type: ignore[arg-type]  # pyright: ignore
        finally:
            world.fail_next = 10_000

    world.append = once  # type: ignore[method-assign]  # pyright: ignore
    with clock.use(FakeClock()), pytest.raises(StorageUnavailable):
        await journal.turn_completed("done")
    world.fail_next, world.append = 0, append  # type: ignore[method-assign]
    with pytest.raises(WriterFenced):
        await journal.turn_interrupted("x")


async def test_an_append_that_gets_no_answer_is_handed_in_again_and_happens_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world = MemoryWorld()
    journal = await begun(world)
    monkeypatch.setattr(writing, "ANSWER_SECONDS", 0.05)

    async def hang() -> None:
        await anyio.sleep_forever()

    world.between = hang
    await journal.turn_completed("done")
    assert (await kinds(world, "turn")).count("turn.completed") == 1


async def test_a_snapshot_that_cannot_be_stored_is_no_trouble(monkeypatch: pytest.MonkeyPatch) -> None:
    world = MemoryWorld()
    journal = await begun(world)

    async def full(session: str, seq: int, data: bytes) -> None:
        raise StorageUnavailable("the disk is full; free some space")

    monkeypatch.setattr(world, "put_snapshot", full)
    await journal.turn_completed("done")
    assert journal.state.turns["m-1"].status == "completed"


# -------------------------------------------------------------------------------------------- snapshots


async def test_with_snapshots_deleted_or_broken_the_state_is_the_same(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(writing, "SNAPSHOT_EVERY", 10)
    world = MemoryWorld()
    journal = await begun(world)
    for n in range(12):
        await asked(journal, (f"c{n}", "f", {}))
    stored = world.stored[SESSION].snapshot
    assert stored is not None
    assert stored[0] < journal.state.seq
    for snapshot in (stored, None, (5, b"broken")):
        world.stored[SESSION].snapshot = snapshot
        assert await Reader(world, SESSION).load() == journal.state


async def test_a_state_as_of_then_does_not_use_a_later_snapshot() -> None:
    world = MemoryWorld()
    journal = await begun(world)
    await journal.turn_completed("done")
    then = await Reader(world, SESSION).load(upto=4)
    assert (then.seq, then.turns["m-1"].status) == (4, "running")


# ------------------------------------------------------------------------------------------ transitions


async def test_outcomes_are_written_once() -> None:
    world = MemoryWorld()
    journal = await begun(world)
    await asked(journal, ("c1", "f", {}))
    await journal.tool_gate("c1", "L1")
    await journal.tool_finished("c1", ok=True, result=b"yes", source="host")
    await journal.tool_finished("c1", ok=False, result=b"no", source="transcript")
    await journal.tool_closed("c1", "unknown", UNKNOWN)
    await journal.tools_closed([("c1", "cancelled", "x"), ("not-known", "unknown", "x")])
    assert not await journal.tool_released_again("c1", "L2")
    assert await kinds(world) == ["tool.requested", "tool.released", "tool.completed"]


async def test_a_release_is_written_once_per_life() -> None:
    world = MemoryWorld()
    journal = await begun(world)
    await asked(journal, ("c1", "f", {}))
    first, second = await journal.tool_gate("c1", "L1"), await journal.tool_gate("c1", "L1")
    assert (first.already, second.already) == (False, True)
    assert (await kinds(world)).count("tool.released") == 1


async def test_a_cut_off_call_can_be_released_again_while_it_is_open() -> None:
    journal = await begun(MemoryWorld())
    await asked(journal, ("c1", "f", {}))
    await journal.tool_gate("c1", "L1", key="k")
    assert await journal.tool_released_again("c1", "L2", key="k")
    call = journal.state.tool_calls["c1"]
    assert (call.releases, call.released_in, call.key) == (2, "L2", "k")
    assert not await journal.tool_released_again("not-known", "L2")


@pytest.mark.parametrize("end", ["completed", "failed", "cancelled"])
async def test_no_call_stays_open_when_its_turn_is_settled(end: str) -> None:
    world = MemoryWorld()
    journal = await begun(world)
    await asked(journal, ("c1", "f", {}), ("c2", "f", {}), ("c3", "f", {}))
    await journal.tool_gate("c1", "L1")
    await journal.tool_gate("c2", "L1")
    await journal.tool_finished("c2", ok=True, result=b"x", source="host")
    match end:
        case "completed":
            await journal.turn_completed("done")
        case "failed":
            await journal.turn_failed("x", "y")
        case _:
            await journal.turn_cancelled("x")
    calls = journal.state.tool_calls
    assert [calls[name].outcome for name in ("c1", "c2", "c3")] == ["unknown", "completed", "not_started"]
    assert await journal.reader.text(calls["c3"].result or calls["c3"].input) == NOT_STARTED
    assert (await world.session(SESSION)).due is not None  # until its life has been ended, too


async def test_a_turn_that_waits_for_a_person_is_parked_with_its_calls_open() -> None:
    world = MemoryWorld()
    journal = await begun(world)
    await asked(journal, ("c1", "f", {}))
    await journal.turn_needs_input("why")
    assert (await world.session(SESSION)).due is not None, "somebody has to end its life"
    await journal.life_lost("L1", "it hung")
    await journal.released("nothing left to do")
    row = await world.session(SESSION)
    assert (row.status, row.due) == ("needs_input", None)
    assert journal.state.tool_calls["c1"].open
    inbox = await Inbox.open(world, SESSION)
    assert await inbox.resume("anna")
    assert not await inbox.resume("bob")
    assert (await world.session(SESSION)).due is not None


async def test_a_message_during_a_turn_keeps_the_session_due_when_it_ends() -> None:
    world = MemoryWorld()
    journal = await begun(world)
    inbox = await Inbox.open(world, SESSION)
    await inbox.accept("m-2", "next")
    await inbox.accept("m-3", "by the way", when_busy="steer")
    with pytest.raises(BadInput, match="works on 'm-1'"):
        await inbox.accept("m-4", "no", when_busy="reject")
    await journal.turn_completed("done")
    row = await world.session(SESSION)
    assert (row.status, row.due is None) == ("queued", False)
    assert [message.id for message in journal.state.queued] == ["m-2", "m-3+queued"]


@pytest.mark.parametrize("text", ["", " \n", "x" * ((32 << 20) + 1)])
async def test_a_message_that_cannot_be_accepted_is_refused_before_anything_is_stored(text: str) -> None:
    world = MemoryWorld()
    inbox = await Inbox.create(world, SESSION, AGENT)
    with pytest.raises(BadInput):
        await inbox.accept("m-1", text)
    assert await kinds(world, "message") == []


async def test_a_session_that_does_not_exist_is_not_found() -> None:
    with pytest.raises(NotFound):
        await Inbox.open(MemoryWorld(), "nobody")


async def test_creating_a_session_again_finds_it() -> None:
    world = MemoryWorld()
    first = await Inbox.create(world, SESSION, AGENT, "one")
    second = await Inbox.create(world, SESSION, AGENT, "two")
    assert second.state == first.state


async def test_the_first_answer_to_a_permission_request_counts() -> None:
    world = MemoryWorld()
    journal = await begun(world)
    await asked(journal, ("c1", "f", {}))
    await journal.permission_requested("p1", "c1", "f", "L1")
    await journal.permission_requested("p1", "c1", "f", "L1")
    inbox = await Inbox.open(world, SESSION)
    await inbox.answer("p1", allow=False, by="anna")
    await inbox.answer("p1", allow=True, by="bob")
    assert await kinds(world, "permission") == ["permission.requested", "permission.resolved"]
    with pytest.raises(NotFound, match="p9"):
        await inbox.answer("p9", allow=True, by="anna")


async def test_a_stop_is_asked_for_once_and_only_of_an_open_turn() -> None:
    world = MemoryWorld()
    journal = await begun(world)
    inbox = await Inbox.open(world, SESSION)
    assert await inbox.request_stop("anna")
    assert await inbox.request_stop("bob")
    assert (await kinds(world, "turn")).count("turn.stop_requested") == 1
    await journal.turn_cancelled("stopped")
    await inbox.refresh()
    assert not await inbox.request_stop("anna")


async def test_a_recovery_closes_what_the_last_worker_left_in_one_append() -> None:
    """C101: what the last worker left open is closed at once."""
    world = MemoryWorld()
    journal = await begun(world)
    await journal.model_requested(
        key="k", life="L1", wire="w", model="x", path="/", body=b"{}", field="messages", agent=None
    )
    successor = await taken(world, OTHER)
    found = plan(successor.state, Facts(keeper_alive=False))
    appends = world.appends
    await successor.recovery_begun(found, life_gone="the machine is gone")
    await successor.recovery_begun(found, life_gone="the machine is gone")
    assert world.appends == appends + 1
    assert successor.state.model_calls["m1"].status == "lost"
    assert successor.state.lives["L1"].reason == "the machine is gone"
    assert successor.state.turns["m-1"].status == "interrupted"


async def test_a_transcript_is_what_was_appended_and_replaced() -> None:
    journal = await begun(MemoryWorld())
    await journal.transcript_appended("L1", {"main": [b'{"a":1}', b"two\r"]}, offset=10)
    await journal.transcript_appended("L1", {"main": [b"again, from the spool"]}, offset=10)
    await journal.transcript_appended("L1", {"main": [b"x" * 100_000]}, offset=20)
    await journal.transcript_replaced("main", [Splice(2, None, [b"new", b""])], "rebuilt")
    assert [line async for line in journal.transcript_lines("main")] == [b'{"a":1}', b"two\r", b"new", b""]
    assert [line async for line in journal.transcript_lines("other")] == []


@pytest.mark.parametrize("seed", range(20))
async def test_a_transcript_is_changed_at_several_places_at_once(seed: int) -> None:
    """C113: only what changes is written, and what the log had before it is read from where it was."""
    choice = random.Random(seed)
    journal = await begun(MemoryWorld())
    lines: list[bytes] = []
    for offset in range(1, 6):
        more = [b"%d-%d" % (offset, number) for number in range(choice.randrange(1, 6))]
        await journal.transcript_appended("L1", {"main": more}, offset=offset)
        lines += more
    for turn in range(4):
        splices: list[Splice] = []
        new: list[bytes] = []
        place = 0
        while place < len(lines):
            at = choice.randrange(place, len(lines) + 1)
            drop = choice.randrange(min(3, len(lines) - at) + 1)
            fresh = [b"new-%d" % turn] * choice.randrange(3)
            splices.append(Splice(at, drop, fresh))
            new += [*lines[place:at], *fresh]
            place = at + drop + 1
            new += lines[at + drop : place]
        lines = new
        await journal.transcript_replaced("main", splices, "rebuilt")
        assert [line async for line in journal.transcript_lines("main")] == lines
        assert journal.state.transcripts["main"].lines == len(lines)
        if not lines:
            return


async def test_whoever_waits_for_a_state_sees_it_come_from_outside() -> None:
    world = MemoryWorld()
    journal = await begun(world)
    seen = anyio.Event()

    async def wait() -> None:
        await journal.until(lambda state: state.turns["m-1"].stop_by == "anna")
        seen.set()

    async with anyio.create_task_group() as group:
        group.start_soon(journal.watch)
        group.start_soon(wait)
        await anyio.wait_all_tasks_blocked()
        await (await Inbox.open(world, SESSION)).request_stop("anna")
        with anyio.fail_after(20):
            await seen.wait()
        group.cancel_scope.cancel()


async def test_a_reader_pages_through_a_long_log_and_follows_it() -> None:
    world = MemoryWorld()
    inbox = await Inbox.create(world, SESSION, AGENT)
    for n in range(1200):
        await inbox.accept(f"m-{n}", "x")
    reader = Reader(world, SESSION)
    assert [entry.seq async for entry in reader.entries()] == list(range(1, 1202))
    got: list[events.Entry] = []
    async for entry in reader.follow(1200):
        got.append(entry)
        if len(got) == 1:
            await inbox.accept("late", "x")
        else:
            break
    assert [entry.seq for entry in got] == [1201, 1202]


def test_readers_have_no_way_to_write() -> None:
    assert not [name for name in vars(Reader) if name in ("append", "decide", "create", "write")]
    assert not hasattr(Reader, "writer")


async def test_a_journal_opens_where_the_log_is() -> None:
    world = MemoryWorld()
    journal = await begun(world)
    again = await Journal.open(world, await world.claim_session(OWNER, SESSION))
    assert (again.state.epoch, again.state.turns) == (2, journal.state.turns)


@pytest.mark.parametrize("message", ["", "x" * 257, "two\nlines", "\x1b[31m"])
async def test_an_id_that_cannot_name_a_message_is_refused_and_nothing_is_stored(message: str) -> None:
    world = MemoryWorld()
    inbox = await Inbox.create(world, SESSION, AGENT)
    with pytest.raises(BadInput, match="message id"):
        await inbox.accept(message, "hello")
    assert len(await world.read(SESSION)) == 1
