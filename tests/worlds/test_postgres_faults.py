"""What goes wrong between a World and its server: restarts, cuts, silence, and a server that has no room."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import subprocess
from collections.abc import AsyncGenerator, Generator
from contextlib import AsyncExitStack
from functools import partial

import anyio
import pytest

from harness_durable import clock
from harness_durable.errors import BadInput, StorageUnavailable
from harness_durable.world import Owner, StoredRecord
from harness_durable_worlds import _postgres_db as db
from harness_durable_worlds import _postgres_lane as lane
from harness_durable_worlds import _postgres_line as line
from harness_durable_worlds import _postgres_listen as listen
from harness_durable_worlds._postgres_sql import statements
from harness_durable_worlds._postgres_url import target_of
from harness_durable_worlds.postgres import PostgresWorld, open_world
from tests.worlds.postgres_kit import (
    APP,
    DUE,
    PARKED,
    Proxy,
    add,
    backends,
    begin,
    claim_due,
    ids,
    insist,
    opened,
    owner,
    plain,
    record,
    until,
)
from tests.worlds.postgres_support import CURRENT, Cluster, cluster, fresh_schema


@pytest.fixture(scope="module")
def restarted() -> Generator[Cluster]:
    """A server that may be stopped."""
    server = Cluster(CURRENT, "fsync = off")
    yield server
    server.destroy()


@pytest.fixture
async def proxy() -> AsyncGenerator[Proxy]:
    async with Proxy(cluster().port) as between:
        yield between


@pytest.fixture
async def far(proxy: Proxy) -> AsyncGenerator[PostgresWorld]:
    """A World behind the proxy."""
    async with opened(f"{cluster().url(port=proxy.port)}&connect_timeout=2") as [world]:
        yield world


async def registered(world: PostgresWorld, lease: float = 15.0) -> Owner:
    mine = owner()
    await world.register(mine, lease)
    return mine


# ------------------------------------------------------------------------------------------ restarts


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGQUIT], ids=["fast", "immediate"])
async def test_a_restart_in_the_middle_of_everything_heals(restarted: Cluster, how: signal.Signals) -> None:
    """Appends, claims, renewals and waiting go on by themselves; nothing is lost, nothing is doubled."""
    async with opened(restarted.url(), 2) as [world, other]:
        mine = await registered(world)
        for n in range(4):
            await begin(world, f"log{n}")
            await begin(world, f"due{n}", DUE)
        stop = asyncio.Event()
        wrote = dict.fromkeys((f"log{n}" for n in range(4)), 0)
        turns, renewals, seen = 0, 0, 1

        async def write(session: str) -> None:
            while not stop.is_set():
                head = 1 + wrote[session]
                await insist(partial(add, world, f"r{head}", head, session=session))
                wrote[session] += 1

        async def drive() -> None:
            nonlocal turns
            while not stop.is_set():
                claim = await claim_due(other, mine)
                await insist(partial(other.release, claim.session, claim.epoch))
                turns += 1

        async def renew() -> None:
            nonlocal renewals
            while not stop.is_set():
                await insist(lambda: world.renew(mine))
                renewals += 1
                await anyio.sleep(0.01)

        async def follow() -> None:
            nonlocal seen
            while not stop.is_set():
                try:
                    seen = max(seen, await other.wait("log0", seen, 0.3))
                except StorageUnavailable:
                    await anyio.sleep(0.02)

        async def restart_twice() -> None:
            for _ in range(2):
                before = (*wrote.values(), turns, renewals, seen)
                await asyncio.to_thread(restarted.restart, how)

                async def all_moved(before: tuple[int, ...] = before) -> bool:
                    now = (*wrote.values(), turns, renewals, seen)
                    return all(new > old for new, old in zip(now, before, strict=True))

                await until(all_moved)
            stop.set()

        calls = [*map(write, wrote), drive(), renew(), follow(), restart_twice()]
        with anyio.fail_after(60):
            await asyncio.gather(*calls)
        for session, count in wrote.items():
            assert ids(await world.read(session)) == ["first", *(f"r{n}" for n in range(1, count + 1))]


async def test_after_each_of_twenty_restarts_every_worker_gets_its_turn(restarted: Cluster) -> None:
    """C085: polling is the base, a notification only a hint."""
    async with opened(restarted.url(), 2) as worlds:
        owners = [await registered(world) for world in worlds]
        await begin(worlds[0], "s0", PARKED)
        await begin(worlds[0], "s1", PARKED)
        for turn in range(20):
            await asyncio.to_thread(restarted.restart, signal.SIGQUIT)
            heads = [(await _row(worlds[0], f"s{n}")) for n in range(2)]
            for n, head in enumerate(heads):
                await insist(lambda n=n, head=head, turn=turn: _message(worlds[0], f"s{n}", head, turn))
            claims = await asyncio.gather(*(claim_due(*each) for each in zip(worlds, owners, strict=True)))
            assert sorted(claim.session for claim in claims) == ["s0", "s1"]
            for claim, world in zip(claims, worlds, strict=True):
                await world.append(
                    claim.session, expected_head=claim.head, epoch=claim.epoch, records=[], row=PARKED
                )
                await world.release(claim.session, claim.epoch)


async def _row(world: PostgresWorld, session: str) -> int:
    heads: list[int] = []

    async def ask() -> None:
        heads.append((await world.session(session)).head)

    await insist(ask)
    return heads[-1]


async def _message(world: PostgresWorld, session: str, head: int, turn: int) -> None:
    await world.append(session, expected_head=head, epoch=0, records=[record(f"m{turn}")], row=DUE)


async def test_a_restart_displaces_no_live_worker(restarted: Cluster) -> None:
    """Its connection is gone, and so is everybody's: that says nothing of its life."""
    async with opened(restarted.url(), 2) as [world, other]:
        mine, rival = await registered(world), await registered(other)
        await begin(world, "s", DUE)
        assert await world.claim(mine, 1)
        await asyncio.to_thread(restarted.restart)
        for _ in range(20):
            assert await other.claim(rival, 1) == []
        assert (await other.session("s")).owner_alive


async def test_a_server_that_is_away_is_said_and_comes_back(
    restarted: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(line, "PATIENCE", 0.3)
    async with opened(restarted.url()) as [world]:
        await begin(world)
        await asyncio.to_thread(restarted.stop)
        try:
            for call in (add(world, "a", 1), begin(world, "t"), world.read("s"), world.wait("s", 1, 9.0)):
                with pytest.raises(StorageUnavailable) as away:
                    await call
                assert "see that the server runs" in str(away.value)
                assert restarted.password not in str(away.value)
            with pytest.raises(StorageUnavailable):
                await open_world(restarted.url(), APP)
        finally:
            await asyncio.to_thread(restarted.start)
        await insist(lambda: add(world, "a", 1))
        assert ids(await world.read("s")) == ["first", "a"]


async def test_a_server_that_hangs_is_away_within_a_bound(
    restarted: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(db, "STATEMENT_SECONDS", 0.5)
    monkeypatch.setattr(lane, "TOTAL_SECONDS", 1.0)
    monkeypatch.setattr(line, "PATIENCE", 0.5)
    async with opened(f"{restarted.url()}&connect_timeout=2") as [world]:
        mine = await registered(world)
        await begin(world)
        pids = [
            int(pid)
            for pid in restarted.sql("select pid from pg_stat_activity where backend_type like 'client%'")
        ]
        for pid in pids:
            _signal(pid, signal.SIGSTOP)
        try:
            restarted.signal(signal.SIGSTOP)
            calls = [add(world, "a", 1), *(world.session("s") for _ in range(30)), world.renew(mine)]
            with anyio.fail_after(30):
                answers = await asyncio.gather(*calls, return_exceptions=True)
        finally:
            restarted.signal(signal.SIGCONT)
            for pid in pids:
                _signal(pid, signal.SIGCONT)
        assert {type(answer) for answer in answers} == {StorageUnavailable}
        assert "does not answer" in str(answers[0])
        await insist(lambda: add(world, "a", 1))
        assert ids(await world.read("s")) == ["first", "a"]


def _signal(pid: int, number: signal.Signals) -> None:
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        return


# ----------------------------------------------------------------------------------- answers that get lost


@pytest.mark.parametrize("arrives", [False, True], ids=["the statement is lost", "the answer is lost"])
class TestCut:
    async def test_an_append_is_settled(self, proxy: Proxy, far: PostgresWorld, arrives: bool) -> None:
        await begin(far)
        proxy.cut_at(b"cut-here", arrives=arrives)
        assert await add(far, "cut-here", 1) == 2
        assert ids(await far.read("s")) == ["first", "cut-here"]
        assert proxy.cuts == 1

    async def test_a_group_of_appends_is_settled(
        self, proxy: Proxy, far: PostgresWorld, arrives: bool
    ) -> None:
        names = [f"s{n}" for n in range(8)]
        for name in names:
            await begin(far, name)
        proxy.cut_at(b"cut-s5", arrives=arrives)
        heads = await asyncio.gather(*(add(far, f"cut-{name}", 1, session=name) for name in names))
        assert heads == [2] * 8
        for name in names:
            assert ids(await far.read(name)) == ["first", f"cut-{name}"]

    async def test_a_session_is_created_once(self, proxy: Proxy, far: PostgresWorld, arrives: bool) -> None:
        await begin(far, "t")  # so that the cut meets no first use of a connection
        proxy.cut_at(b"cut-here", arrives=arrives)
        assert await far.create("s", [record("cut-here")], PARKED)
        assert not await far.create("s", [record("other")], PARKED)
        assert ids(await far.read("s")) == ["cut-here"]

    async def test_a_claim_is_given_once_and_not_lost(
        self, proxy: Proxy, far: PostgresWorld, arrives: bool
    ) -> None:
        mine = await registered(far)
        await begin(far, "s", DUE)
        proxy.cut_at(b"commit\0", arrives=arrives)
        [claim] = await far.claim(mine, 5)
        assert (claim.head, claim.epoch, proxy.cuts) == (2, 1, 1)
        assert await add(far, "driven", claim.head, claim.epoch) == 3

    async def test_a_claim_by_name_is_given_once(
        self, proxy: Proxy, far: PostgresWorld, arrives: bool
    ) -> None:
        mine = await registered(far)
        await begin(far)
        proxy.cut_at(b"commit\0", arrives=arrives)
        claim = await far.claim_session(mine, "s")
        assert (claim.head, claim.epoch, proxy.cuts) == (2, 1, 1)

    async def test_a_deletion_is_settled(self, proxy: Proxy, far: PostgresWorld, arrives: bool) -> None:
        await begin(far)
        proxy.cut_at(b"commit\0", arrives=arrives)
        await far.delete("s")
        assert await far.sessions() == []

    async def test_an_import_is_settled(self, proxy: Proxy, far: PostgresWorld, arrives: bool) -> None:
        records = [StoredRecord(n, 0, f"r{n}", "test.note", 1, b"body") for n in range(1, 4)]
        proxy.cut_at(b"commit\0", arrives=arrives)
        await far.restore("s", records, {}, PARKED)
        with pytest.raises(BadInput):
            await far.restore("s", records, {}, PARKED)
        assert await far.read("s") == records


async def test_a_claim_whose_answer_never_comes_is_given_back(
    proxy: Proxy, far: PostgresWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A session that is claimed and driven by nobody would wait as long as this worker lives."""
    monkeypatch.setattr(line, "PATIENCE", 0.5)
    mine = await registered(far)
    await begin(far, "s", DUE)
    async with opened(cluster().url(far_schema(far))) as [near]:
        rival = await registered(near)
        proxy.cut_at(b"commit\0", arrives=True)
        far_claim = asyncio.create_task(far.claim(mine, 5))
        await until(lambda: _true(proxy.cuts == 1))
        proxy.freeze()
        with pytest.raises(StorageUnavailable) as unclear:
            await far_claim
        assert unclear.value.unclear
        proxy.thaw()
        assert await near.claim(rival, 5) == []
        await insist(lambda: far.renew(mine))

        async def freed() -> bool:
            return bool(await near.claim(rival, 5))

        await until(freed)


async def test_a_claim_whose_caller_has_gone_is_given_back(far: PostgresWorld) -> None:
    mine = await registered(far)
    await begin(far, "s", DUE)
    task = asyncio.create_task(far.claim(mine, 5))
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert [claim.session for claim in [await claim_due(far, mine)]] == ["s"]


async def _true(value: bool) -> bool:
    return value


def far_schema(world: PostgresWorld) -> str:
    return world._store.target.schema  # pyright: ignore[reportPrivateUsage]


# -------------------------------------------------------------------------------------- connections


async def test_to_lose_all_connections_ends_nothing() -> None:
    """C089: while idle, and again."""
    schema = fresh_schema()
    url = f"{cluster().url(schema)}&application_name={schema}"
    async with opened(url) as [world], plain(cluster()) as eye:
        mine = await registered(world)
        await begin(world)
        assert await add(world, "second", 1) == 2
        for n in range(3):
            assert len(await backends(eye, schema)) == 4
            await eye.fetch(
                "select pg_terminate_backend(pid) from pg_stat_activity where application_name = $1", schema
            )

            async def gone() -> bool:
                return not await backends(eye, schema, "backend_start < now() - interval '1 hour'")

            await until(gone)
            assert await add(world, f"r{n}", 2 + n) == 3 + n
            await world.renew(mine)
            assert (await world.session("s")).head == 3 + n

            async def listens() -> bool:
                return len(await backends(eye, schema)) == 4

            await until(listens)


async def test_connections_that_idle_too_long_for_the_server_come_back() -> None:
    schema = fresh_schema()
    place = f"{cluster().url(schema)}&application_name={schema}"
    async with opened(f"{place}&options=-c%20idle_session_timeout%3D150") as [world], plain(cluster()) as eye:
        mine = await registered(world)
        await begin(world)

        async def idle() -> bool:
            return len(await backends(eye, schema)) <= 1

        for n in range(3):
            await until(idle)
            await world.renew(mine)
            assert await add(world, f"r{n}", 1 + n) == 2 + n
        waiting = asyncio.create_task(world.wait("s", 4, 20.0))
        await until(idle)
        await add(world, "last", 4)
        assert await waiting == 5


async def test_no_connection_left_is_an_error_that_passes(restarted: Cluster) -> None:
    schema = fresh_schema()
    restarted.sql(f"create role {schema} login superuser connection limit 3")
    url = f"postgresql://{schema}@/postgres?host={restarted.folder}&port={restarted.port}&schema={schema}"
    restarted.sql(f"alter role {schema} nosuperuser; grant create on database postgres to {schema}")
    async with AsyncExitStack() as others:
        [world] = await others.enter_async_context(opened(url))
        await begin(world)
        async with AsyncExitStack() as crowd:
            await crowd.enter_async_context(plain(restarted, user=schema))
            with pytest.raises(StorageUnavailable, match="max_connections"):
                await add(world, "a", 1)
        assert await add(world, "a", 1) == 2


async def test_a_listener_that_goes_deaf_only_slows_things_down(
    proxy: Proxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    """C086: packets dropped, no error. What waits is told within the bound of polling, and the connection is
    built anew."""
    monkeypatch.setattr(listen, "ECHO_EVERY", 0.5)
    monkeypatch.setattr(listen, "ECHO_SECONDS", 1.5)
    monkeypatch.setattr(db, "STATEMENT_SECONDS", 2.0)
    schema = fresh_schema()
    url = f"{cluster().url(schema, port=proxy.port)}&connect_timeout=2"
    async with opened(url) as [far], opened(cluster().url(schema)) as [near]:
        await begin(far)
        await until(lambda: _notified(far))
        proxy.freeze()
        await until(lambda: _not(_notified(far)))
        proxy.thaw()
        waiting = asyncio.create_task(far.wait("s", 1, 20.0))
        await add(near, "more", 1)
        assert await waiting == 2
        await until(lambda: _notified(far))


async def test_a_listener_that_is_cut_is_built_anew_without_a_busy_loop() -> None:
    """C086"""
    schema = fresh_schema()
    url = f"{cluster().url(schema)}&application_name={schema}"
    async with opened(url, 2) as [world, other], plain(cluster()) as eye:
        await begin(world)
        await until(lambda: _notified(other))
        for n in range(3):
            await eye.fetch(
                "select pg_terminate_backend(pid) from pg_stat_activity "
                "where application_name = $1 and (query ilike '%pg_notify%' or query ilike 'listen %')",
                schema,
            )
            head = 1 + n
            waiting = asyncio.create_task(other.wait("s", head, 20.0))
            await add(world, f"r{n}", head)
            assert await waiting == head + 1
            await until(lambda: _notified(other))


async def _notified(world: PostgresWorld) -> bool:
    return world._listener.works  # pyright: ignore[reportPrivateUsage]


async def _complained(world: PostgresWorld) -> bool:
    return world._listener._complaints._unsaid >= 4  # pyright: ignore[reportPrivateUsage]


async def _not(answer: object) -> bool:
    return not await answer  # type: ignore[misc]


async def test_the_same_trouble_is_not_told_again_and_again(
    restarted: Cluster, caplog: pytest.LogCaptureFixture
) -> None:
    """C088"""
    caplog.set_level(logging.WARNING)
    async with opened(restarted.url()) as [world]:
        await until(lambda: _notified(world))
        await asyncio.to_thread(restarted.stop)
        try:
            await until(lambda: _complained(world))
        finally:
            await asyncio.to_thread(restarted.start)
        await until(lambda: _notified(world))
    assert len([line for line in caplog.records if "harness_durable" in line.name]) == 1


# --------------------------------------------------------------------------------------------- room


async def test_a_full_disk_on_the_server_is_an_error_that_passes(restarted: Cluster) -> None:
    """With a small file system of its own where that can be mounted (root); elsewhere the conformance suite
    has the server's error alone."""
    schema, small = fresh_schema(), restarted.folder / "small"
    small.mkdir(exist_ok=True)
    mount = ["mount", "-t", "tmpfs", "-o", "size=6m,mode=0777", "tmpfs", str(small)]
    mounted = (
        os.getuid() == 0 and (await asyncio.to_thread(subprocess.run, mount, check=False)).returncode == 0
    )
    try:
        space = small / "space"
        space.mkdir()
        if os.getuid() == 0:
            os.chown(space, restarted.data.stat().st_uid, restarted.data.stat().st_gid)
        async with opened(restarted.url(schema)) as [world]:
            await begin(world)
            restarted.sql(f"create tablespace {schema} location '{space}'")
            restarted.sql(f"alter table {schema}.event set tablespace {schema}")
            head, refused = 1, 0
            body = os.urandom(900_000)
            for n in range(8 if mounted else 1):
                try:
                    head = await world.append(
                        "s", expected_head=head, epoch=0, records=[record(f"r{n}", body)]
                    )
                except StorageUnavailable as full:
                    refused += 1
                    assert "53100" in str(full)
                    assert "free space on the server's disk" in str(full)
                    assert not full.unclear
            assert bool(refused) is mounted
            assert len(await world.read("s")) == head
            restarted.sql(f"alter table {schema}.event set tablespace pg_default")
            assert await add(world, "after", head) == head + 1
        restarted.sql(f"drop schema {schema} cascade; drop tablespace {schema}")
    finally:
        if mounted:
            await asyncio.to_thread(subprocess.run, ["umount", str(small)], check=True)


# ------------------------------------------------------------------------------------- one connection


async def test_a_script_ends_when_its_job_has_to() -> None:
    target = target_of(cluster().url(fresh_schema()))
    connection = await db.connect(target, statements(target.schema), prepare=True, seconds=20.0)
    try:
        connection.until = clock.monotonic() + 0.05
        with pytest.raises(TimeoutError):
            await connection.run("select pg_sleep(10)")
    finally:
        connection.sever()


async def test_a_server_that_knows_no_such_setting_is_used_without_it() -> None:
    target = target_of(cluster().url(fresh_schema()))
    sql = statements(target.schema)
    older = {**sql, "limits": sql["limits"].replace("plan_cache_mode", "no_such_mode")}
    connection = await db.connect(target, older, prepare=True, seconds=20.0)
    try:
        assert connection.usable
    finally:
        await connection.close()
