"""Who is alive: by its process on its own machine, by its connection from elsewhere, at last by its lease."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections.abc import AsyncGenerator

import pytest

from harness_durable import clock
from harness_durable.errors import LeaseLost, SessionBusy, StorageUnavailable
from harness_durable.world import Owner, RowUpdate
from harness_durable_worlds import _postgres_liveness as liveness
from harness_durable_worlds._postgres_clock import ServerClock
from harness_durable_worlds.postgres import PostgresWorld
from tests.worlds.postgres_kit import DUE, PARKED, Sql, begin, claim_due, opened, owner, plain, record, until
from tests.worlds.postgres_support import cluster, fresh_schema


class Pair:
    """A World whose worker drives "s", another one, and an eye on the tables."""

    def __init__(self, schema: str, world: PostgresWorld, other: PostgresWorld, eye: Sql) -> None:
        self.schema, self.world, self.other, self.eye = schema, world, other, eye
        self.mine, self.rival = owner(), owner()

    async def set(self, change: str) -> None:
        """Change the row of our worker."""
        await self.eye.fetch(f"update {self.schema}.worker set {change} where id = $1", self.mine.worker)

    async def backend(self) -> int:
        rows = await self.eye.fetch(
            f"select backend from {self.schema}.worker where id = $1", self.mine.worker
        )
        return int(str(rows[0][0] or 0))

    async def alive(self) -> bool:
        return (await self.other.session("s")).owner_alive


@pytest.fixture
async def pair() -> AsyncGenerator[Pair]:
    schema = fresh_schema()
    url = cluster().url(schema)
    async with opened(url) as [world], opened(url) as [other], plain(cluster()) as eye:
        made = Pair(schema, world, other, eye)
        await world.register(made.mine)
        await other.register(made.rival)
        await begin(world, "s", DUE)
        assert await world.claim(made.mine, 1)
        await until(lambda: _known(made))
        yield made


async def _known(pair: Pair) -> bool:
    return bool(await pair.backend())


FAR = "process = 'another-boot pid:[1] 7 12345'"


async def test_a_worker_elsewhere_is_dead_soon_after_its_connection(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(liveness, "GRACE", 0.2)
    backend = await pair.backend()
    await pair.set(FAR)
    assert await pair.alive()
    pair.world._workers._leases.clear()  # pyright: ignore[reportPrivateUsage]  # so that it cannot come back
    await pair.eye.fetch("select pg_terminate_backend($1)", backend)
    claim = await claim_due(pair.other, pair.rival)
    assert claim.previous == pair.mine
    assert claim.displaced  # its connection is gone; what it does nobody knows


async def test_a_worker_elsewhere_whose_connection_comes_back_is_not_displaced(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(liveness, "this_process", lambda: "another-boot pid:[1] 7 12345")
    await pair.world.renew(pair.mine)
    for _ in range(3):
        before = await pair.backend()
        await pair.eye.fetch("select pg_terminate_backend($1)", before)

        async def new(before: int = before) -> bool:
            assert await pair.other.claim(pair.rival, 1) == []
            return await pair.backend() not in (0, before)

        await until(new)
        assert await pair.alive()


async def test_a_worker_here_outlives_its_connection(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its process can be seen to live, so that the connection says nothing."""
    monkeypatch.setattr(liveness, "GRACE", 0.0)
    pair.world._workers._leases.clear()  # pyright: ignore[reportPrivateUsage]  # so that it cannot come back
    await pair.eye.fetch("select pg_terminate_backend($1)", await pair.backend())
    for _ in range(20):
        assert await pair.other.claim(pair.rival, 1) == []
    assert await pair.alive()


async def test_a_lease_ends_by_the_servers_clock_and_is_renewed_by_it(pair: Pair) -> None:
    await pair.set("lease_until = lease_until - 15500")
    assert not await pair.alive()
    await pair.world.renew(pair.mine)
    assert await pair.alive()
    with pytest.raises(SessionBusy) as busy:
        await pair.other.claim_session(pair.rival, "s")
    assert 10 < (busy.value.lease_left or 0) <= 15


async def test_what_waits_for_a_worker_is_told_and_not_claimed(pair: Pair) -> None:
    assert await pair.other.waiting(5) == []
    await begin(pair.world, "late", RowUpdate("queued", 7))
    await begin(pair.world, "parked")
    assert await pair.other.waiting(5) == [("late", 7)]
    await pair.set("lease_until = 0")
    assert await pair.other.waiting(5) == [("s", 1), ("late", 7)]
    assert await pair.other.waiting(1) == [("s", 1)]
    assert len(await pair.other.claim(pair.rival, 5)) == 2


async def test_a_worker_whose_row_is_gone_has_lost_its_lease(pair: Pair) -> None:
    await pair.eye.fetch(f"delete from {pair.schema}.worker where id = $1", pair.mine.worker)
    assert not await pair.alive()
    for _ in range(2):
        with pytest.raises(LeaseLost):
            await pair.world.renew(pair.mine)


async def test_nothing_that_a_wall_clock_says_ends_a_lease(pair: Pair) -> None:
    class Wrong:
        def now_ms(self) -> int:
            return 10**15

        def monotonic(self) -> float:
            return real.monotonic()

        async def sleep(self, seconds: float) -> None:
            await real.sleep(seconds)

    real = clock.current()
    with clock.use(Wrong()):
        assert await pair.other.claim(pair.rival, 1) == []
        await pair.world.renew(pair.mine)
        assert await pair.alive()


async def test_what_is_due_is_judged_by_the_servers_clock_whatever_a_host_believes(pair: Pair) -> None:
    """A host whose clock is an hour ahead sends a message: it is due now, and not in an hour."""

    class Ahead:
        def now_ms(self) -> int:
            return real.now_ms() + 3_600_000

        def monotonic(self) -> float:
            return real.monotonic()

        async def sleep(self, seconds: float) -> None:
            await real.sleep(seconds)

    real = clock.current()
    await begin(pair.world, "t", PARKED)
    with clock.use(Ahead()):
        row = RowUpdate("queued", clock.now_ms())
        await pair.world.append("t", expected_head=1, epoch=0, records=[record("m")], row=row)
    assert (await pair.other.session("t")).due == row.due
    assert [claim.session for claim in await pair.other.claim(pair.rival, 5)] == ["t"]


def test_clocks_that_agree_leave_due_times_as_they_are() -> None:
    server = ServerClock()
    assert server.translate(5) == 5
    for wrong in (0, 40, -90):
        server.met(clock.now_ms() + wrong)
        assert server.translate(1_000_000) == 1_000_000
    server.met(clock.now_ms() - 7_200_000)
    assert server.translate(10_000_000) == 2_800_000


def test_processes_are_told_apart() -> None:
    mine = liveness.this_process()
    assert liveness.is_gone(mine) is False
    place, pid, start = mine.rsplit(" ", 2)
    assert liveness.is_gone(f"{place} {pid} {int(start) - 1}") is True  # the pid is another process's now
    assert liveness.is_gone(f"another-boot pid:[1] {pid} {start}") is None
    assert liveness.is_gone(f"  {pid} {start}") is None
    assert liveness.is_gone(f"{place} {pid} ") is None
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    theirs = f"{place} {child.pid} {liveness._start(child.pid)}"  # pyright: ignore[reportPrivateUsage]
    assert liveness.is_gone(theirs) is False
    child.kill()
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
    assert liveness.is_gone(theirs) is True  # a zombie does nothing any more
    child.communicate()
    assert liveness.is_gone(theirs) is True


async def test_a_worker_that_ends_and_stays_keeps_its_sessions_from_other_hosts_for_a_lease(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(liveness, "GRACE", 0.0)
    schema = fresh_schema()
    url = cluster().url(schema)
    async with opened(url) as [other], plain(cluster()) as eye:
        mine, rival = owner(), owner()
        async with opened(url) as [world]:
            await world.register(mine)
            await begin(world, "s", DUE)
            assert await world.claim(mine, 1)
            await world.stay(mine)
        await other.register(rival)

        process = f"update {schema}.worker set process = $2 where id = $1"
        await eye.fetch(process, mine.worker, "another-boot pid:[1] 7 12345")
        for _ in range(3):
            assert await other.claim(rival, 1) == [], "that its connection is gone says nothing"
        assert (await other.session("s")).owner_alive
        place, pid, start = liveness.this_process().rsplit(" ", 2)
        await eye.fetch(process, mine.worker, f"{place} {pid} {int(start) - 1}")
        claim = await claim_due(other, rival)  # on its own host, as soon as its process is gone
        assert (claim.previous, claim.displaced) == (mine, False)


async def test_a_connection_that_is_lost_and_does_not_come_back_says_nothing_about_its_worker(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    """There may be no connections left, while those that it has go on."""

    async def refused(*_: object) -> object:
        raise ConnectionRefusedError("no connections left")

    monkeypatch.setattr(pair.world._listener._line._store, "connect", refused)  # pyright: ignore[reportPrivateUsage]
    await pair.eye.fetch("select pg_terminate_backend($1)", await pair.backend())

    async def unknown() -> bool:
        return not await pair.backend()

    await until(unknown)
    monkeypatch.setattr(liveness, "GRACE", 0.0)
    await pair.set(FAR)
    assert await pair.other.claim(pair.rival, 1) == []
    assert await pair.alive()


async def test_a_registration_that_failed_is_not_renewed_for_ever(pair: Pair) -> None:
    async def fails(*_: object, **__: object) -> object:
        raise StorageUnavailable("the server is away; wait")

    workers, who = pair.world._workers, owner()  # pyright: ignore[reportPrivateUsage]
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(workers._lane, "do", fails)  # pyright: ignore[reportPrivateUsage]
        with pytest.raises(StorageUnavailable):
            await pair.world.register(who)
    assert list(workers._leases) == [pair.mine.worker]  # pyright: ignore[reportPrivateUsage]
    with pytest.raises(LeaseLost):
        await pair.world.renew(who)


async def test_an_owner_that_has_left_is_not_said_to_live_on() -> None:
    async with opened(cluster().url(), 2) as [world, other]:
        mine, rival = owner(), owner()
        await world.register(mine)
        await other.register(rival)
        await begin(world, "s", DUE)
        await world.claim(mine, 1)
        waiting = asyncio.create_task(other.wait_due(20.0))
        await world.unregister(mine)
        await waiting
        [claim] = await other.claim(rival, 1)
        assert (claim.previous, claim.displaced) == (Owner(mine.worker, "here", 1), False)
