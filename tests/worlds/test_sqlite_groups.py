"""The writing thread of the SQLite World: groups, answers that nobody hears, and what an idle World does."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncGenerator, Sequence
from pathlib import Path

import anyio
import apsw
import pytest

from harness_durable.errors import BadInput, Conflict, NotFound, StorageUnavailable, WriterFenced
from harness_durable.world import MAX_BLOB, MAX_RECORD, Claim, Owner, RowUpdate
from harness_durable_worlds import _sqlite_claims as claims
from harness_durable_worlds import _sqlite_log as log
from harness_durable_worlds._sqlite_db import Db, open_db
from harness_durable_worlds._sqlite_lane import Job
from harness_durable_worlds._sqlite_writer import CHECKPOINT_BYTES, Writer
from harness_durable_worlds.sqlite import SqliteWorld, open_world
from tests.worlds.sqlite_support import APP, DUE, PARKED, batch, begin, ids, record, until

OWNER = Owner("worker-1", "here", 1)


@pytest.fixture
async def world(tmp_path: Path) -> AsyncGenerator[SqliteWorld, None]:
    opened = await open_world(f"sqlite:{tmp_path}/s.db", APP)
    yield opened
    await opened.aclose()


async def test_of_a_group_only_those_fail_that_must(world: SqliteWorld) -> None:
    for name in ("a", "b", "c"):
        await begin(world, name)
    claim = await world.claim_session(OWNER, "c")
    await world.claim_session(OWNER, "c", take_over=True)
    records = batch(0)
    answers = await asyncio.gather(
        world.append("a", expected_head=1, epoch=0, records=records),
        world.append("a", expected_head=1, epoch=0, records=batch(1)),
        world.append("c", expected_head=2, epoch=claim.epoch, records=records),
        world.append("none", expected_head=1, epoch=0, records=records),
        world.create("a", records, PARKED),
        world.append("b", expected_head=1, epoch=0, records=records),
        return_exceptions=True,
    )
    kinds = [each if isinstance(each, int | bool) else type(each) for each in answers]
    assert kinds == [4, Conflict, WriterFenced, NotFound, False, 4]
    for name in ("a", "b"):
        assert ids(await world.read(name)) == ["first", *(each.id for each in records)]
    assert len(await world.read("c")) == 3


async def test_a_job_that_fails_half_way_takes_nothing_of_its_own_along(
    world: SqliteWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    await begin(world, "a")
    await begin(world, "b")
    move_head = log.move_head

    def broken(db: Db, key: log.Key, head: int, row: RowUpdate | None) -> None:
        if key[1] == "a":
            raise RuntimeError("half way")
        move_head(db, key, head, row)

    monkeypatch.setattr(log, "move_head", broken)
    answers = await asyncio.gather(
        world.append("a", expected_head=1, epoch=0, records=batch(0)),
        world.append("b", expected_head=1, epoch=0, records=batch(0)),
        return_exceptions=True,
    )
    assert [type(each) for each in answers] == [RuntimeError, int]
    monkeypatch.undo()
    assert await world.append("a", expected_head=1, epoch=0, records=batch(1)) == 4
    assert ids(await world.read("a")) == ["first", *(each.id for each in batch(1))]


async def test_a_commit_whose_answer_was_lost_is_found_to_have_happened(
    world: SqliteWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    await begin(world)
    await lose_answers(world, monkeypatch, times=1)
    assert await world.append("s", expected_head=1, epoch=0, records=batch(0)) == 4
    assert await world.append("s", expected_head=4, epoch=0, records=batch(1)) == 7
    assert ids(await world.read("s")) == ["first", *(each.id for n in (0, 1) for each in batch(n))]


async def test_a_claim_whose_answer_was_lost_is_found_to_have_happened(
    world: SqliteWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    await begin(world, row=DUE)
    await world.register(OWNER)
    await lose_answers(world, monkeypatch, times=1)
    assert [claim.epoch for claim in await world.claim(OWNER, 5)] == [1]
    assert (await world.session("s")).owner == OWNER


async def test_a_claim_that_stays_unclear_is_given_back(
    world: SqliteWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    await begin(world, row=DUE)
    await world.register(OWNER)
    await lose_answers(world, monkeypatch, times=2)
    with pytest.raises(StorageUnavailable) as caught:
        await world.claim(OWNER, 5)
    assert caught.value.unclear
    monkeypatch.undo()

    async def free() -> bool:
        return (await world.session("s")).owner is None

    await until(free)
    [claim] = await world.claim(OWNER, 5)
    assert [each.kind for each in await world.read("s", after=1)] == ["session.claimed"] * claim.epoch


async def test_a_claim_that_nobody_waits_for_any_more_is_given_back(
    world: SqliteWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    await begin(world, row=DUE)
    await world.register(OWNER)
    taking, take = asyncio.Event(), claims.take
    loop, cancelled = asyncio.get_running_loop(), threading.Event()

    def slow(
        db: Db, app: str, owner: Owner, sessions: Sequence[str], lease_left: claims.LeaseLeft
    ) -> list[Claim]:
        loop.call_soon_threadsafe(taking.set)
        assert cancelled.wait(20)
        return take(db, app, owner, sessions, lease_left)

    monkeypatch.setattr(claims, "take", slow)
    task = asyncio.create_task(world.claim(OWNER, 5))
    await taking.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    cancelled.set()

    async def given_back() -> bool:
        row = await world.session("s")
        return row.epoch == 1 and row.owner is None

    await until(given_back)


async def test_closing_finishes_what_is_queued(tmp_path: Path) -> None:
    url = f"sqlite:{tmp_path}/s.db"
    world = await open_world(url, APP)
    await begin(world)
    append = asyncio.create_task(world.append("s", expected_head=1, epoch=0, records=batch(0)))
    read = asyncio.create_task(world.read("s"))
    await asyncio.sleep(0)
    await world.aclose()
    assert await append == 4
    assert ids(await read)[0] == "first"
    assert not (tmp_path / "s.db-wal").exists()
    world = await open_world(url, APP)
    assert len(await world.read("s")) == 4
    await world.aclose()


async def checkpointed(path: Path) -> bool:
    """The idle writer has copied its log into the file, and will not do so again without another append."""
    db = open_db(path, apsw.SQLITE_OPEN_READWRITE)
    try:
        db.pragma("user_version")  # opens the log
        in_log, copied = db.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_NOOP)
        return 0 < in_log == copied
    finally:
        db.close()


async def test_waiting_and_polling_write_nothing(world: SqliteWorld, tmp_path: Path) -> None:
    await begin(world)
    await begin(world, "later", row=RowUpdate("later", 4_000_000_000_000))
    await world.register(OWNER)
    await until(lambda: checkpointed(tmp_path / "s.db"))

    def stamps() -> list[tuple[int, int]]:
        found = [(tmp_path / f"s.db{end}").stat() for end in ("", "-wal")]
        return [(each.st_size, each.st_mtime_ns) for each in found]

    before = stamps()
    async with anyio.create_task_group() as group:
        for _ in range(20):
            assert await world.claim(OWNER, 5) == []
        for _ in range(3):
            group.start_soon(world.wait, "s", 1, 0.6)
            group.start_soon(world.wait_due, 0.6)
    await world.sessions()
    assert stamps() == before


async def test_progress_and_snapshots_do_not_wait_for_the_disk_but_records_do(
    world: SqliteWorld,
) -> None:
    async def synchronous() -> object:
        return await writer_of(world).do(Job(lambda db: db.pragma("synchronous"), durable=False))

    await begin(world)
    await world.put_progress("s", b"half")
    assert await synchronous() == 1
    await world.append("s", expected_head=1, epoch=0, records=batch(0))
    assert await writer_of(world).do(Job(lambda db: db.pragma("synchronous"))) == 2
    assert await world.progress("s") == b"half"


async def test_the_write_ahead_log_does_not_grow_without_end(
    world: SqliteWorld, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    head = await begin(world)
    for number in range(48):
        records = [record(f"r{number}", b"x" * MAX_RECORD)]
        head = await world.append("s", expected_head=head, epoch=0, records=records)
    assert (tmp_path / "s.db-wal").stat().st_size < 3 * CHECKPOINT_BYTES


async def test_what_is_deleted_leaves_the_file(world: SqliteWorld, tmp_path: Path) -> None:
    await begin(world, "kept")
    await begin(world)
    secret = b"a secret that shall not stay"
    blobs = {f"{n:064}": secret * 40_000 for n in range(8)}
    await world.append("s", expected_head=1, epoch=0, records=[record("r", secret)], blobs=blobs)
    await world.put_snapshot("s", 2, secret)
    await world.put_progress("s", secret)
    await world.delete("s")
    with pytest.raises(NotFound):
        await world.session("s")

    async def small() -> bool:
        return (tmp_path / "s.db").stat().st_size < 1 << 20

    await until(small)
    await world.aclose()
    assert secret not in (tmp_path / "s.db").read_bytes()
    assert not (tmp_path / "s.db-wal").exists()


async def test_too_large_bodies_are_refused_and_the_largest_fit(world: SqliteWorld) -> None:
    head = await begin(world)
    largest = [record("big", b"x" * MAX_RECORD)]
    assert await world.append("s", expected_head=head, epoch=0, records=largest) == 2
    with pytest.raises(BadInput, match="blob"):
        await world.append("s", expected_head=2, epoch=0, records=[record("over", b"x" * (MAX_RECORD + 1))])
    with pytest.raises(BadInput, match="split"):
        await world.append("s", expected_head=2, epoch=0, records=[], blobs={"0" * 64: bytes(MAX_BLOB + 1)})
    assert (await world.session("s")).head == 2


def writer_of(world: SqliteWorld) -> Writer:
    return world._writer  # pyright: ignore[reportPrivateUsage]  # what no method of a World tells


async def lose_answers(world: SqliteWorld, monkeypatch: pytest.MonkeyPatch, times: int) -> None:
    """The next commits succeed, and SQLite reports an error all the same."""
    left = [times]

    def hook(*_: object) -> int:
        left[0] -= 1
        return apsw.SQLITE_IOERR if left[0] >= 0 else apsw.SQLITE_OK

    monkeypatch.setattr(writer_of(world), "_committed", hook)  # for the connections that follow
    await writer_of(world).do(Job(lambda db: db.set_wal_hook(hook)))
