"""Owners that were stopped, claimers that died half-way: whoever is slower writes nothing that counts."""

from __future__ import annotations

import asyncio
import fcntl
import os
import signal
import subprocess
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from harness_durable.errors import Conflict, NotFound, SessionBusy, StorageUnavailable, WriterFenced
from harness_durable_worlds import _file_lock
from harness_durable_worlds import file as file_world
from harness_durable_worlds._file_frames import encode_batch, salt_of
from harness_durable_worlds.file import FileWorld
from tests.worlds import file_child
from tests.worlds.file_support import DUE, go_on, line_of, note, opened, start, worker


async def until(what: str, condition: Callable[[], bool]) -> None:
    for _ in range(2000):
        if condition():
            return
        await asyncio.sleep(0.01)
    raise AssertionError(f"never came: {what}")


def claimed_child(folder: Path, *strace: str) -> tuple[subprocess.Popen[str], int]:
    """A child that has claimed ``s``, and its process id."""
    child = start(folder, "step", *strace)
    pid = int(line_of(child)[1])
    assert line_of(child)[0] == "claimed"
    return child, pid


async def add(world: FileWorld, session: str, epoch: int = 0) -> int:
    head = (await world.session(session)).head
    return await world.append(session, expected_head=head, epoch=epoch, records=[note()])


async def test_an_owner_that_wakes_after_a_take_over_is_fenced_and_writes_nothing(tmp_path: Path) -> None:
    async with opened(tmp_path) as world:
        await world.create("s", [note()], DUE)
        child, pid = claimed_child(tmp_path)
        go_on(child)
        assert line_of(child) == ["acked", "0", "3"]
        os.kill(pid, signal.SIGSTOP)
        me = worker()
        await world.register(me)
        with pytest.raises(SessionBusy, match=f"pid {pid}"):
            await world.claim_session(me, "s")
        claim = await world.claim_session(me, "s", take_over=True)
        assert (claim.epoch, claim.head) == (2, 4)
        old = tmp_path / "a" / "sessions" / "s" / "1.log"
        size = old.stat().st_size
        os.kill(pid, signal.SIGCONT)
        go_on(child)
        assert line_of(child)[:2] == ["ended", "WriterFenced"]
        child.communicate()
        assert old.stat().st_size == size
        assert [record.kind for record in await world.read("s", 3)] == ["session.claimed"]
        assert await add(world, "s", claim.epoch) == 5


@pytest.mark.parametrize("call", ["pwrite64", "fdatasync"])
async def test_an_owner_stopped_inside_an_append_does_not_hold_up_a_take_over(
    tmp_path: Path, call: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It holds the lock, its bytes are written, it was not told so. It never will be."""
    monkeypatch.setattr(file_world, "LOCK_SECONDS", 0.05)
    async with opened(tmp_path) as world:
        await world.create("s", [note()], DUE)
        # by thread: the older segment's sync, the claim's write and sync, then the first append's
        nth = {"pwrite64": 2, "fdatasync": 3}[call]
        child, pid = claimed_child(tmp_path, f"--trace={call}", f"--inject={call}:signal=SIGSTOP:when={nth}")
        go_on(child)
        trace = Path(f"{tmp_path}.trace")
        await until("the stop", lambda: "stopped by SIGSTOP" in trace.read_text())
        with pytest.raises(StorageUnavailable, match=f"process {pid} holds the lock"):
            await add(world, "s")
        me = worker()
        await world.register(me)
        claim = await world.claim_session(me, "s", take_over=True)
        head = await add(world, "s", claim.epoch)
        await add(world, "s")
        os.kill(pid, signal.SIGCONT)
        assert line_of(child)[:2] == ["ended", "WriterFenced"]
        child.communicate()
        records = await world.read("s")
        assert [record.seq for record in records] == list(range(1, head + 2))
        assert [record.epoch for record in records if record.seq > claim.head] == [2, 0]
        assert (await world.salvage("s")).damages == []


async def test_two_worlds_that_race_lose_and_double_nothing(tmp_path: Path) -> None:
    async with opened(tmp_path) as one, opened(tmp_path) as two:
        await one.create("s", [note()], DUE)

        async def pour(world: FileWorld, tag: str) -> None:
            head = 1
            for number in range(30):
                while True:
                    try:
                        records = [note(name=f"{tag}{number}")]
                        head = await world.append("s", expected_head=head, epoch=0, records=records)
                        break
                    except Conflict as moved:
                        head = moved.records[-1].seq

        await asyncio.gather(pour(one, "a"), pour(two, "b"), pour(one, "c"))
        records = await two.read("s")
        assert [record.seq for record in records] == list(range(1, 92))
        for tag in "abc":
            assert [r.id for r in records[1:] if r.id[0] == tag] == [f"{tag}{n}" for n in range(30)]


async def test_a_file_of_a_claimer_that_died_is_adopted_by_a_sender(tmp_path: Path) -> None:
    async with opened(tmp_path) as world:
        await world.create("s", [note()], DUE)
        me = worker()
        await world.register(me)
        claim = await world.claim_session(me, "s")
        (tmp_path / "a" / "sessions" / "s" / "2.log").write_bytes(b"DHR1 half a header")
        with pytest.raises(WriterFenced):
            await add(world, "s", claim.epoch)
        assert (await world.session("s")).owner is None, "nobody drives it: it must not be stranded"
        assert await add(world, "s") == 3
        with pytest.raises(WriterFenced):
            await add(world, "s", claim.epoch)
        assert [c.epoch for c in await world.claim(me, 1)] == [3]


async def test_a_file_of_a_claimer_that_died_is_adopted_by_the_next(tmp_path: Path) -> None:
    async with opened(tmp_path) as world:
        await world.create("s", [note()], DUE)
        (tmp_path / "a" / "sessions" / "s" / "1.log").touch()
        me = worker()
        await world.register(me)
        assert [c.epoch for c in await world.claim(me, 1)] == [1]
        assert await add(world, "s", 1) == 3


async def test_a_claimer_that_was_stopped_half_way_is_passed_by_a_take_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(file_world, "LOCK_SECONDS", 0.05)
    async with opened(tmp_path) as world:
        await world.create("s", [note()], DUE)
        with (tmp_path / "a" / "sessions" / "s" / "1.log").open("wb") as stopped:
            fcntl.flock(stopped, fcntl.LOCK_EX)
            me = worker()
            await world.register(me)
            assert await world.claim(me, 1) == []
            with pytest.raises(StorageUnavailable, match="holds the lock"):
                await add(world, "s")
            claim = await world.claim_session(me, "s", take_over=True)
            assert claim.epoch == 2
            assert await add(world, "s", 2) == 3


async def test_a_claimer_stopped_before_it_had_the_lock_overwrites_nobody(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It has made its file, somebody else has taken that over, begun in it, and let go of the lock."""
    stopped, woken, real = threading.Event(), threading.Event(), _file_lock.try_lock

    def try_lock(fd: int) -> bool:
        if not stopped.is_set():
            stopped.set()
            assert woken.wait(30)
        return real(fd)

    monkeypatch.setattr("harness_durable_worlds._file_claim.try_lock", try_lock)
    async with opened(tmp_path) as one, opened(tmp_path) as two:
        await one.create("s", [note()], DUE)
        first, second = worker(), worker()
        await one.register(first)
        await two.register(second)
        late = asyncio.create_task(one.claim_session(first, "s"))
        await until("the stop", stopped.is_set)
        claim = await two.claim_session(second, "s")
        head = await add(two, "s", claim.epoch)
        before = await two.read("s")
        woken.set()
        with pytest.raises(SessionBusy):
            await late
        async with opened(tmp_path) as fresh:
            assert await fresh.read("s") == before
        assert await add(two, "s", claim.epoch) == head + 1


async def test_a_sender_that_goes_on_after_a_dead_claimer_hides_no_living_owner(tmp_path: Path) -> None:
    async with opened(tmp_path) as world:
        await world.create("s", [note()], DUE)
        first, second = worker(), worker()
        for each in (first, second):
            await world.register(each)
        await world.claim_session(first, "s")
        (tmp_path / "a" / "sessions" / "s" / "2.log").touch()
        await add(world, "s")
        claim = await world.claim_session(second, "s")
        assert (claim.epoch, claim.previous, claim.displaced) == (3, first, True)


async def test_what_a_late_writer_adds_to_an_older_segment_is_never_seen(tmp_path: Path) -> None:
    """Stopped after all its checks and before its write, the writer wakes after the claim."""
    async with opened(tmp_path) as world:
        await world.create("s", [note(name="first")], DUE)
        me = worker()
        await world.register(me)
        await world.claim(me, 1)
        late = encode_batch(salt_of("s", 0), 1, 0, [note(name="late")], None)
        with (tmp_path / "a" / "sessions" / "s" / "0.log").open("ab") as old:
            old.write(late)
        await add(world, "s", 1)
        for _ in range(2):
            async with opened(tmp_path) as fresh:
                records = await fresh.read("s")
                assert [record.seq for record in records] == [1, 2, 3]
                assert "late" not in {record.id for record in records}
                assert (await fresh.salvage("s")).damages == []


async def test_a_released_session_is_free_and_stays_so(tmp_path: Path) -> None:
    async with opened(tmp_path) as world:
        await world.create("s", [note()], DUE)
        me = worker()
        await world.register(me)
        claim = await world.claim_session(me, "s")
        await world.release("s", claim.epoch + 1)
        assert (await world.session("s")).owner == me
        await world.release("s", claim.epoch)
        assert (await world.session("s")).owner is None
        async with opened(tmp_path) as other:
            assert (await other.session("s")).owner is None
            again = (await other.claim(me, 1))[0]
        assert (again.epoch, again.previous) == (2, None)


async def test_a_deleted_session_takes_nothing_more_from_whoever_had_it_open(tmp_path: Path) -> None:
    async with opened(tmp_path) as world, opened(tmp_path) as other:
        await world.create("s", [note()], DUE)
        await add(other, "s")
        await world.delete("s")
        with pytest.raises(NotFound):
            await other.append("s", expected_head=2, epoch=0, records=[note()])
        assert await world.create("s", [note(b"anew")], DUE)
        assert await add(other, "s") == 2
        assert [record.body for record in await other.read("s")] == [b"anew", b"x"]


async def test_an_append_whose_answer_was_lost_happens_once(tmp_path: Path) -> None:
    async with opened(tmp_path) as world:
        await world.create("s", [note()], DUE)
        lost = file_child.batch(2)
        assert await world.append("s", expected_head=1, epoch=0, records=lost) == 4
        await add(world, "s")
        assert await world.append("s", expected_head=1, epoch=0, records=lost) == 4
        assert len(await world.read("s")) == 5
