"""Files and outcomes in one append, with a tracker that sees what it is told to."""

from __future__ import annotations

import anyio
import anyio.lowlevel
import msgspec
import pytest

from harness_durable import clock
from harness_durable import events as ev
from harness_durable.errors import StorageUnavailable
from harness_durable.fold import fold
from harness_durable.fold.workspace import FOUND
from harness_durable.journal import Inbox, Journal
from harness_durable.state import Session
from harness_durable.workspace import Scanned
from tests.runtime.kit import HandClock
from tests.unit.memory_world import OWNER, MemoryWorld
from tests.unit.session_kit import AGENT, SESSION, asked, kinds, life

DURABLE = msgspec.structs.replace(AGENT, files="durable")


class Tracks:
    """Gives what lies in ``next``, in order; then what it gave last. ``running`` counts looks at once."""

    def __init__(self, *scans: Scanned) -> None:
        self.next, self.landings = list(scans), list[str]()
        self.parents: list[str] = []
        self.running = self.most = 0

    async def scan(self, parent: str) -> Scanned | None:
        self.parents.append(parent)
        self.running += 1
        self.most = max(self.most, self.running)
        await anyio.lowlevel.checkpoint()
        self.running -= 1
        return self.next.pop(0) if len(self.next) > 1 else self.next[0]

    async def landed(self, scanned: Scanned) -> None:
        self.landings.append(scanned.root)


def seen(root: str, **more: object) -> Scanned:
    return msgspec.convert({"root": root, "blobs": {root: b"rx"}, **more}, Scanned)


async def driven(world: MemoryWorld, tracks: Tracks, agent: ev.AgentSpec = DURABLE) -> Journal:
    """In a turn, with two calls released."""
    inbox = await Inbox.create(world, SESSION, agent)
    await inbox.accept("m-1", "do it")
    await world.register(OWNER)
    claim = await world.claim_session(OWNER, SESSION)
    journal = await Journal.open(world, claim, patience=0.2, tracker=tracks)
    await journal.turn_started("m-1")
    await life(journal, "L1")
    await asked(journal, ("c1", "Bash", {}), ("c2", "Bash", {"n": 2}), origin="builtin")
    for call in ("c1", "c2"):
        await journal.tool_gate(call, "L1")
    return journal


async def finished(journal: Journal, call: str) -> None:
    await journal.tool_finished(call, ok=True, result=b"", source="hook")


async def test_a_look_lands_only_after_its_append_and_is_made_again_otherwise() -> None:
    world, tracks = MemoryWorld(), Tracks(seen("r1"))
    journal = await driven(world, tracks)
    world.fail_next = 1000
    with pytest.raises(StorageUnavailable):
        await finished(journal, "c1")
    assert (tracks.landings, journal.state.files.root, world.stored[SESSION].blobs) == ([], "", {})
    world.fail_next = 0
    await finished(journal, "c1")
    assert (tracks.landings, tracks.parents) == (["r1"], ["", ""])
    assert (journal.state.files.root, world.stored[SESSION].blobs) == ("r1", {"r1": b"rx"})


async def test_one_look_at_a_time_each_after_what_the_last_one_left() -> None:
    world, tracks = MemoryWorld(), Tracks(seen("r1"), seen("r2"))
    journal = await driven(world, tracks)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(finished, journal, "c1")
        tasks.start_soon(finished, journal, "c2")
        await anyio.lowlevel.checkpoint()
        await journal.message_delivered("m-1", "L1")  # who writes something else does not wait for a look
    assert (tracks.most, tracks.parents, tracks.landings) == (1, ["", "r1"], ["r1", "r2"])


async def test_an_outcome_that_is_known_is_not_looked_for_again() -> None:
    world, tracks = MemoryWorld(), Tracks(seen("r1"))
    journal = await driven(world, tracks)
    await finished(journal, "c1")
    await finished(journal, "c1")
    await journal.tool_closed("c1", "unknown", "?")
    assert tracks.parents == [""]


@pytest.mark.parametrize("files", ["kept", "scratch"])
async def test_other_files_are_not_looked_at(files: ev.Keeping) -> None:
    world, tracks = MemoryWorld(), Tracks(seen("r1"))
    journal = await driven(world, tracks, msgspec.structs.replace(AGENT, files=files))
    await finished(journal, "c1")
    await journal.turn_completed("done")
    assert tracks.parents == []


async def test_nothing_changed_is_no_event_and_a_failure_is_one_that_has_the_old_root_and_says_so() -> None:
    world = MemoryWorld()
    tracks = Tracks(seen("r1"), Scanned("r1", skipped="timeout", why="not finished within 60 s"), seen("r1"))
    journal = await driven(world, tracks)
    await finished(journal, "c1")
    await finished(journal, "c2")
    files = journal.state.files
    assert (files.root, files.uncovered_seq, files.skipped) == (
        "r1",
        journal.state.tool_calls["c2"].outcome_seq - 1,
        "timeout: not finished within 60 s",
    )
    await journal.turn_completed("done")  # nothing changed, and that it is covered again is news
    await journal.files_committed("found")
    assert (await kinds(world, "workspace.")) == ["workspace.committed"] * 3
    assert (journal.state.files.uncovered_seq, tracks.landings) == (0, ["r1", "r1", "r1"])


async def test_looks_that_take_too_long_cost_a_tenth_of_the_time_and_are_made_at_the_turns_end() -> None:
    late = Scanned("r0", skipped="timeout", why="not finished within 20 s", ms=20_000)
    world, tracks, hands = (
        MemoryWorld(),
        Tracks(seen("r0"), late, late, seen("r4"), late, seen("r5")),
        HandClock(),
    )
    with clock.use(hands):
        journal = await driven(world, tracks)

        async def looks_at(call: str) -> int:
            await asked(journal, (call, "Bash", {"n": call}), origin="builtin")
            await journal.tool_gate(call, "L1")
            await finished(journal, call)
            return len(tracks.parents)

        assert [await looks_at("a1"), await looks_at("a2")] == [1, 2]
        since = journal.state.files.uncovered_seq
        assert since and [await looks_at("a3"), await looks_at("a4")] == [2, 2]
        await hands.advance(199)
        assert await looks_at("a5") == 2
        await hands.advance(2)
        assert [await looks_at("a6"), await looks_at("a7")] == [3, 3]
        assert journal.state.files.uncovered_seq == since
        assert all(
            call.outcome == "completed" for call in journal.state.tool_calls.values() if call.id[0] == "a"
        )
        await journal.turn_completed("done")
        assert (len(tracks.parents), journal.state.files.root, journal.state.files.uncovered_seq) == (
            4,
            "r4",
            0,
        )
        assert await kinds(world, "workspace.") == ["workspace.committed"] * 4


async def test_a_look_that_hangs_is_not_asked_for_at_every_outcome() -> None:
    stuck, hands = Scanned("", skipped="timeout", why="still waiting", ms=0), HandClock()
    tracks = Tracks(stuck, stuck, seen("r1"))
    with clock.use(hands):
        journal = await driven(MemoryWorld(), tracks)
        await finished(journal, "c1")
        await finished(journal, "c2")
        assert len(tracks.parents) == 1
        await journal.files_committed("found")
        assert len(tracks.parents) == 2


async def test_no_outcome_rests_on_a_look_of_which_the_log_was_not_told() -> None:
    """Else the log would take the files for covered."""
    late = Scanned("r0", skipped="timeout", why="not finished within 20 s", ms=20_000)
    world, tracks, hands = MemoryWorld(), Tracks(seen("r0"), late), HandClock()
    with clock.use(hands):
        journal = await driven(world, tracks)
        await finished(journal, "c1")

        async with journal.files.look("call", ["c2"]) as look:
            assert look.skipped
        assert (len(tracks.parents), journal.state.files.uncovered_seq) == (2, 0)
        await finished(journal, "c2")
        assert len(tracks.parents) == 3
        assert journal.state.files.uncovered_seq == journal.state.tool_calls["c2"].outcome_seq - 1


async def test_who_lost_the_race_for_the_head_writes_the_same_look() -> None:
    world, tracks = MemoryWorld(), Tracks(seen("r1"))
    journal = await driven(world, tracks)
    inbox = await Inbox.open(world, SESSION)

    async def message() -> None:
        world.between = None
        await inbox.accept("m-2", "meanwhile")

    world.between = message
    await finished(journal, "c1")
    assert (tracks.parents, tracks.landings) == ([""], ["r1"])
    assert (await kinds(world))[-2:] == ["tool.released", "tool.completed"]


async def test_a_remark_of_ours_never_becomes_a_message() -> None:
    world, tracks = MemoryWorld(), Tracks(seen("r1"))
    journal = await driven(world, tracks)
    await journal.files_restored("Not restored: big/")
    await journal.turn_completed("done")
    (remark,) = (message for message in journal.state.messages.values() if message.remark)
    assert (remark.status, journal.state.queued) == ("delivered", [])


def test_what_was_found_adds_up_until_a_call_has_finished() -> None:
    def commit(cause: str, names: list[str], more: int = 0) -> ev.WorkspaceCommitted:
        changes = tuple(ev.Change("modified", name) for name in names)
        told = {"root": "".join(names), "parent": "", "cause": cause, "more": more}
        return msgspec.structs.replace(msgspec.convert(told, ev.WorkspaceCommitted), changes=changes)

    def after(*commits: ev.WorkspaceCommitted) -> Session:
        return fold(ev.Entry(place, place, 1, event) for place, event in enumerate(commits, 1))

    many = [f"f{number}" for number in range(FOUND + 5)]
    state = after(commit("call", ["a"]), commit("found", ["a", "b"]), commit("found", ["b", "c"], 3))
    assert (state.files.found, state.files.found_more, state.files.base) == (("a", "b", "c"), 3, "a")
    state = after(commit("found", many))
    assert (len(state.files.found), state.files.found_more, state.files.base) == (FOUND, 5, "")
    state = after(commit("found", many), commit("turn_end", ["a"]))
    assert (state.files.found, state.files.found_more, state.files.base) == ((), 0, "a")
