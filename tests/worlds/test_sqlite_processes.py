"""Several processes on one SQLite file: races, and an owner that was stopped past its lease."""

from __future__ import annotations

import os
import signal
from collections import Counter
from collections.abc import AsyncGenerator
from pathlib import Path

import anyio
import anyio.lowlevel
import pytest

from harness_durable.errors import SessionBusy
from harness_durable.world import Claim, Owner
from harness_durable_worlds.sqlite import SqliteWorld, open_world
from tests.worlds.sqlite_support import APP, DUE, begin, end, hear, ids, integrity, record, say, start, until

ME = Owner("me", "here", os.getpid())
APPENDS = 60


@pytest.fixture
async def world(tmp_path: Path) -> AsyncGenerator[SqliteWorld, None]:
    opened = await open_world(f"sqlite:{tmp_path}/s.db", APP)
    yield opened
    await opened.aclose()
    assert integrity(tmp_path / "s.db") == "ok"


async def test_racing_processes_neither_lose_an_append_nor_share_a_claim(
    world: SqliteWorld, tmp_path: Path
) -> None:
    await begin(world, "shared")
    names = [f"work-{number}" for number in range(12)]
    for name in names:
        await begin(world, name, DUE)
    racers = {tag: start("race", f"sqlite:{tmp_path}/s.db", tag, str(APPENDS)) for tag in ("a", "b", "c")}
    try:
        assert all(hear(child) == ["ready"] for child in racers.values())
        for child in racers.values():
            say(child, "go")
        won = {tag: hear(child)[1:] for tag, child in racers.items()}
        log = ids(await world.read("shared"))
        rows = {row.session: row for row in await world.sessions()}
    finally:
        for child in racers.values():
            end(child)
    assert sorted(log) == sorted(["first", *(f"{tag}-{n}" for tag in racers for n in range(APPENDS))])
    for tag in racers:
        mine = [name for name in log if name.startswith(f"{tag}-")]
        assert mine == [f"{tag}-{n}" for n in range(APPENDS)]
    assert Counter(name for each in won.values() for name in each) == Counter(names)
    for tag, sessions in won.items():
        for name in sessions:
            owner = rows[name].owner
            assert (rows[name].epoch, owner and owner.worker) == (1, f"racer-{tag}")


async def test_an_owner_that_was_stopped_past_its_lease_is_fenced_when_it_wakes(
    world: SqliteWorld, tmp_path: Path
) -> None:
    await begin(world, "s", DUE)
    await world.register(ME)
    child = start("hold", f"sqlite:{tmp_path}/s.db", "1")
    try:
        assert hear(child) == ["claimed", "1", "2"]
        say(child, "before")
        assert hear(child) == ["wrote", "3"]
        child.send_signal(signal.SIGSTOP)
        with pytest.raises(SessionBusy):
            await world.claim_session(ME, "s")
        taken: list[Claim] = []

        async def free() -> bool:
            taken.extend(await world.claim(ME, 5))
            return bool(taken)

        await until(free)
        assert [(claim.session, claim.epoch, claim.head) for claim in taken] == [("s", 2, 4)]
        head = await world.append("s", expected_head=4, epoch=2, records=[record("after")])
        child.send_signal(signal.SIGCONT)
        say(child, "late")
        assert hear(child) == ["WriterFenced"]
        log = await world.read("s")
        assert [each.epoch for each in log] == [0, 1, 1, 2, 2]
        assert ids(log)[2] == "before"
        assert len(log) == head
    finally:
        end(child)


async def test_a_killed_owner_frees_its_session_at_once_and_wakes_who_looks_for_work(
    world: SqliteWorld, tmp_path: Path
) -> None:
    await begin(world, "s", DUE)
    await world.register(ME)
    child = start("hold", f"sqlite:{tmp_path}/s.db", "600")
    try:
        assert hear(child) == ["claimed", "1", "2"]
        assert await world.claim(ME, 5) == []
        child.kill()
        child.wait()
        with anyio.fail_after(30):
            await world.wait_due(60)
            [claim] = await world.claim(ME, 5)
        assert (claim.epoch, claim.previous and claim.previous.pid) == (2, child.pid)
    finally:
        end(child)


async def test_an_append_elsewhere_wakes_who_waits_here(world: SqliteWorld, tmp_path: Path) -> None:
    await begin(world, "s", DUE)
    child = start("hold", f"sqlite:{tmp_path}/s.db", "600")
    try:
        with anyio.fail_after(30):
            assert await world.wait("s", 1, 60) == 2
            say(child, "more")
            assert await world.wait("s", 2, 60) == 3
    finally:
        end(child)


async def test_a_session_that_becomes_due_elsewhere_wakes_who_looks_for_work(
    world: SqliteWorld, tmp_path: Path
) -> None:
    other = await open_world(f"sqlite:{tmp_path}/s.db", APP)
    with anyio.fail_after(30):
        async with anyio.create_task_group() as group:
            group.start_soon(world.wait_due, 60)
            await anyio.lowlevel.checkpoint()
            await begin(other, "s", DUE)
    await other.aclose()
