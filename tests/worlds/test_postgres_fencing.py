"""Who may write, on a real server with connections that meet in the middle of their transactions."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator

import anyio
import pytest

from harness_durable.errors import BadInput, Conflict, NotFound, WriterFenced
from harness_durable.world import MAX_BLOB, Claim, Owner, StoredRecord
from harness_durable_worlds import _postgres_log as log
from harness_durable_worlds._postgres_news import PAYLOAD_BYTES, payloads
from harness_durable_worlds._postgres_sql import statements
from harness_durable_worlds.postgres import PostgresWorld
from tests.worlds.postgres_kit import (
    APP,
    DUE,
    PARKED,
    Sql,
    add,
    backends,
    begin,
    ids,
    opened,
    owner,
    plain,
    record,
    until,
)
from tests.worlds.postgres_support import Cluster, cluster, fresh_schema


@pytest.fixture
def server() -> Cluster:
    return cluster()


class Scene:
    """A session driven under epoch 1 by a writer that we play by hand, and a World of somebody else."""

    def __init__(self, schema: str, world: PostgresWorld, hand: Sql, eye: Sql, claim: Claim) -> None:
        self.sql, self.world, self.hand, self.eye = statements(schema), world, hand, eye
        self.schema, self.claim = schema, claim

    def append(self, name: str) -> list[object]:
        """The arguments of the statement ``append``, as the World makes them, for one record."""
        head, epoch = self.claim.head, self.claim.epoch
        stored = StoredRecord(head + 1, epoch, name, "test.note", 1, b"body")
        job = [["s"], [head], [epoch], [1], [1], [False], [""], [None], [None]]
        return [APP, *job, *[[] for _ in range(6)], *log.columns(APP, [("s", stored)])]

    async def blocked(self) -> bool:
        return bool(await backends(self.eye, self.schema, "wait_event_type = 'Lock'"))


@pytest.fixture
async def scene(server: Cluster) -> AsyncGenerator[Scene]:
    schema = fresh_schema()
    url = f"{server.url(schema)}&application_name={schema}"
    async with opened(url) as [world], plain(server) as hand, plain(server) as eye:
        await begin(world)
        first = owner()
        await world.register(first)
        yield Scene(schema, world, hand, eye, await world.claim_session(first, "s"))


async def second(world: PostgresWorld) -> Owner:
    mine = owner()
    await world.register(mine)
    return mine


async def test_a_take_over_sees_an_append_that_was_not_yet_committed(scene: Scene) -> None:
    """An epoch that the append merely reads would not do this: the take-over would not wait for it, and what
    was acknowledged afterwards would be missing from what the new owner has read."""
    world, mine = scene.world, await second(scene.world)
    await scene.hand.execute("begin")
    assert await scene.hand.fetch(scene.sql["append"], *scene.append("old"))
    taken: list[Claim] = []
    async with anyio.create_task_group() as group:

        async def take_over() -> None:
            taken.append(await world.claim_session(mine, "s", take_over=True))

        group.start_soon(take_over)
        await until(scene.blocked)
        await scene.hand.execute("commit")
    assert taken[0].head == scene.claim.head + 2
    assert ids(await world.read("s"))[-2] == "old"
    late = scene.world.append("s", expected_head=3, epoch=scene.claim.epoch, records=[record("late")])
    with pytest.raises(WriterFenced):
        await late


async def test_an_append_waits_for_a_take_over_and_is_refused(scene: Scene) -> None:
    world, claim = scene.world, scene.claim
    taken = StoredRecord(claim.head + 1, claim.epoch + 1, "claim", "test.claim", 1, b"body")
    await scene.hand.execute("begin")
    assert await scene.hand.fetch(scene.sql["lock_one"], APP, "s")
    await scene.hand.fetch(scene.sql["take"], APP, *log.columns(APP, [("s", taken)]), "other", "there", 7)
    async with anyio.create_task_group() as group:

        async def write() -> None:
            with pytest.raises(WriterFenced):
                await add(world, "old", claim.head, claim.epoch)

        group.start_soon(write)
        await until(scene.blocked)
        await scene.hand.execute("commit")
    assert ids(await world.read("s"))[-1] == "claim"


async def test_an_append_whose_take_over_was_rolled_back_succeeds(scene: Scene) -> None:
    claim = scene.claim
    await scene.hand.execute("begin")
    assert await scene.hand.fetch(scene.sql["lock_one"], APP, "s")
    async with anyio.create_task_group() as group:
        group.start_soon(add, scene.world, "mine", claim.head, claim.epoch)
        await until(scene.blocked)
        await scene.hand.execute("rollback")
    assert ids(await scene.world.read("s"))[-1] == "mine"


async def test_a_place_in_the_log_is_given_once_whatever_a_writer_believes(scene: Scene) -> None:
    """The last resort: the primary key, also against one that looks at nothing else."""
    head = await add(scene.world, "right", scene.claim.head, scene.claim.epoch)
    wrong = StoredRecord(head, 9, "wrong", "test.note", 1, b"body")
    with pytest.raises(Exception, match="duplicate key") as refused:
        await scene.hand.fetch(scene.sql["restore_events"], APP, *log.columns(APP, [("s", wrong)]))
    assert getattr(refused.value, "sqlstate", "") == "23505"


async def test_a_session_that_is_deleted_takes_a_late_append_along(scene: Scene) -> None:
    """An append under way when the session is deleted leaves nothing behind it."""
    await scene.world.release("s", scene.claim.epoch)
    await scene.hand.execute("begin")
    assert await scene.hand.fetch(scene.sql["append"], *scene.append("late"))
    async with anyio.create_task_group() as group:
        group.start_soon(scene.world.delete, "s")
        await until(scene.blocked)
        await scene.hand.execute("commit")
    assert not await scene.eye.fetch(f"select * from {scene.schema}.event")
    assert await scene.world.create("s", [record("anew")], PARKED)


async def test_of_a_group_only_those_fail_that_must(server: Cluster) -> None:
    async with opened(server.url()) as [world]:
        for name in ("a", "b", "c", "d"):
            await begin(world, name)
        mine = await second(world)
        old = await world.claim_session(mine, "c")
        await world.claim_session(mine, "c")
        records = [record("x"), record("y")]
        nul = [record("has \0 in it")]
        answers = await asyncio.gather(
            world.append("a", expected_head=1, epoch=0, records=records),
            world.append("a", expected_head=1, epoch=0, records=[record("other")]),
            world.append("c", expected_head=2, epoch=old.epoch, records=records),
            world.append("none", expected_head=1, epoch=0, records=records),
            world.append("b", expected_head=1, epoch=0, records=nul),
            world.append("d", expected_head=1, epoch=0, records=[record("half \ud800")]),
            world.append("b", expected_head=1, epoch=0, records=records),
            return_exceptions=True,
        )
        kinds = [each if isinstance(each, int) else type(each) for each in answers]
        assert kinds == [3, Conflict, WriterFenced, NotFound, BadInput, BadInput, 3]
        for name in ("a", "b"):
            assert ids(await world.read(name)) == ["first", "x", "y"]
        assert len(await world.read("c")) == 3


async def test_two_groups_that_meet_do_not_wait_for_each_other(server: Cluster) -> None:
    """Both lock their rows in the same order, whatever order they were asked in."""
    names = [f"s{n}" for n in range(20)]
    async with opened(server.url(), 2) as worlds, plain(server) as eye:
        for name in names:
            await begin(worlds[0], name)
        before = await eye.fetch("select deadlocks from pg_stat_database where datname = current_database()")

        async def pour(world: PostgresWorld, order: list[str], tag: str) -> None:
            for n in range(15):
                calls = [_at_last(world, name, f"{tag}-{n}") for name in order]
                await asyncio.gather(*calls)

        await asyncio.gather(pour(worlds[0], names, "up"), pour(worlds[1], names[::-1], "down"))
        for name in names:
            assert len(ids(await worlds[0].read(name))) == 31
        after = await eye.fetch("select deadlocks from pg_stat_database where datname = current_database()")
        assert before == after


async def _at_last(world: PostgresWorld, session: str, name: str) -> None:
    head = (await world.session(session)).head
    while True:
        try:
            await add(world, name, head, session=session)
            return
        except Conflict as moved:
            head = moved.records[-1].seq


async def test_twenty_workers_claim_each_of_two_hundred_sessions_once(server: Cluster) -> None:
    async with opened(server.url(), 20) as worlds:
        await asyncio.gather(*(begin(worlds[n % 20], f"s{n:03}", DUE) for n in range(200)))
        owners = [await second(world) for world in worlds]
        won: list[str] = []

        async def work(world: PostgresWorld, mine: Owner) -> None:
            while len(won) < 200:
                for claim in await world.claim(mine, 4):
                    won.append(claim.session)
                    await world.append(
                        claim.session,
                        expected_head=claim.head,
                        epoch=claim.epoch,
                        records=[record("done")],
                        row=PARKED,
                    )
                    await world.release(claim.session, claim.epoch)

        with anyio.fail_after(60):
            await asyncio.gather(*(work(*each) for each in zip(worlds, owners, strict=True)))
        assert sorted(won) == [f"s{n:03}" for n in range(200)]
        assert {row.epoch for row in await worlds[0].sessions()} == {1}


async def test_two_apps_on_one_database_do_not_claim_or_hear_each_other(server: Cluster) -> None:
    url = server.url()
    async with opened(url, app="one") as [one], opened(url, app="two") as [two]:
        await begin(one, "s", DUE)
        await begin(two, "s")
        mine = await second(two)
        assert await two.claim(mine, 5) == []
        heard = two.wait("s", 1, 0.3)
        await add(one, "more", 1)
        assert await heard == 1


# --------------------------------------------------------------------------------------------- sizes


async def test_a_large_blob_is_in_pieces_and_a_refused_append_leaves_none(server: Cluster) -> None:
    """C118"""
    schema = fresh_schema()
    large, name = bytes(range(256)) * 10_000, "ab" * 32
    async with opened(server.url(schema)) as [world], plain(server) as eye:
        await begin(world)

        async def pieces() -> list[int]:
            return [int(str(n)) for (n,) in await eye.fetch(f"select octet_length(body) from {schema}.piece")]

        with pytest.raises(Conflict):
            await world.append("s", expected_head=7, epoch=0, records=[record("no")], blobs={name: large})
        assert await pieces() == []
        with pytest.raises(NotFound):
            await world.append("t", expected_head=0, epoch=0, records=[record("no")], blobs={name: large})
        assert await pieces() == []
        await world.append("s", expected_head=1, epoch=0, records=[record("yes")], blobs={name: large})
        assert sum(await pieces()) == len(large)
        assert max(await pieces()) <= 1 << 20
        await world.append(
            "s", expected_head=2, epoch=0, records=[record("again")], blobs={name: b"x" + large}
        )
        assert sum(await pieces()) == len(large)
        assert await world.blob("s", name) == large
        await world.delete("s")
        assert await pieces() == []


async def test_what_is_too_large_is_refused_before_anything_is_sent(server: Cluster) -> None:
    """C118"""
    async with opened(server.url()) as [world]:
        await begin(world)
        huge = bytes(MAX_BLOB + 1)
        with pytest.raises(BadInput, match="split it"):
            await world.append("s", expected_head=1, epoch=0, records=[], blobs={"ab" * 32: huge})
        with pytest.raises(BadInput, match="put its payload into a blob"):
            await world.append("s", expected_head=1, epoch=0, records=[record("r", bytes(2 << 20))])
        assert len(await world.read("s")) == 1


def test_a_notification_carries_ids_only_and_never_too_much() -> None:
    """C118"""
    sessions = [f"{n:03}" + "x" * 125 for n in range(300)]
    lines = payloads(sessions, due=True)
    assert max(map(len, lines)) <= PAYLOAD_BYTES
    assert [name for line in lines for name in line.split(" ")[1:]] == sessions
    assert [line.split(" ")[0] for line in lines].count("due") == 1
