"""Do parked sessions cost anything? A part of the scale scenario.

On one PostgreSQL there are two schemas: one is empty, the other has 100,000 parked sessions of the same app,
put there after the World was opened, so that plans made for a small table meet a large one. Each thing is
done once here, once there, again and again, since other work on the machine then meets both. The server does
not wait for its disk (``fsync = off``), which would hide the difference. With 0 sessions it shows how much of
that is noise.
"""

from __future__ import annotations

import os
import statistics
import time
import uuid
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AsyncExitStack

import anyio

from harness_durable.world import Owner, Record, RowUpdate, World
from harness_durable_worlds.postgres import open_world
from tests.worlds.postgres_support import Cluster, cluster, fresh_schema

SECONDS = 1.0
"""How long each thing is done in a round, in both together."""
APP = "bench"
BODY = os.urandom(512).hex().encode()
MANY = 16
PARKED, DUE = RowUpdate("parked", None), RowUpdate("ready", 1)
OWNER, IDLE = (Owner(uuid.uuid4().hex, "bench", os.getpid()) for _ in range(2))

Work = Callable[[World], Awaitable[None]]


def record() -> Record:
    return Record(uuid.uuid4().hex, "bench.note", 1, BODY)


async def append_one(world: World) -> None:
    head = (await world.session("a0")).head
    await world.append("a0", expected_head=head, epoch=0, records=[record()])


async def append_many(world: World) -> None:
    """A session's append beside those of others, as a busy worker has them."""

    async def one(session: str) -> None:
        head = (await world.session(session)).head
        await world.append(session, expected_head=head, epoch=0, records=[record()])

    async with anyio.create_task_group() as group:
        for number in range(MANY):
            group.start_soon(one, f"a{number}")


async def claim(world: World) -> None:
    """What is due is claimed and given back."""
    claims = await world.claim(OWNER, MANY)
    assert len(claims) == MANY
    for each in claims:
        await world.release(each.session, each.epoch)


async def look(world: World) -> None:
    """A claim that finds nothing: what idle workers do all day."""
    assert await world.claim(IDLE, MANY) == []


CASES: dict[str, Work] = {"append 1": append_one, f"append {MANY}": append_many, "claim": claim, "look": look}


async def opened(server: Cluster, schema: str) -> World:
    """A World with sessions to append to, and others that are due."""
    world = await open_world(server.url(schema), APP)
    for number in range(MANY):
        await world.create(f"a{number}", [record()], PARKED)
        await world.create(f"d{number}", [record()], DUE)
    for owner in (OWNER, IDLE):
        await world.register(owner, 3600)
    return world


def crowd(server: Cluster, schema: str, count: int) -> None:
    """Sessions that wait for a person, each with a record."""
    numbers = f"from generate_series(1, {count}) n"
    server.sql(
        f"insert into {schema}.session (session, app, head, epoch, status, created, updated) "
        f"select 'parked' || n, '{APP}', 1, 0, 'parked', 1, 1 {numbers};"
        f"insert into {schema}.event (session, app, seq, epoch, id, kind, time, crc, body) "
        f"select 'parked' || n, '{APP}', 1, 0, 'r' || n, 'bench.note', 1, 0, '' {numbers};"
    )


async def once(world: World, work: Work) -> float:
    began = time.perf_counter()
    await work(world)
    return (time.perf_counter() - began) * 1000


async def one_round(worlds: Sequence[World], name: str) -> tuple[float, float]:
    """The median milliseconds in the empty World and in the crowded one. For ``look``, what is due is in
    other hands."""
    held = [await world.claim(OWNER, MANY if name == "look" else 0) for world in worlds]
    try:
        took: tuple[list[float], list[float]] = ([], [])
        began = time.perf_counter()
        while time.perf_counter() - began < SECONDS:
            for which in (0, 1, 1, 0):  # so that neither is always second
                took[which].append(await once(worlds[which], CASES[name]))
        return statistics.median(took[0]), statistics.median(took[1])
    finally:
        for world, claims in zip(worlds, held, strict=True):
            for each in claims:
                await world.release(each.session, each.epoch)


async def parked(rounds: int, count: int) -> dict[str, list[tuple[float, float]]]:
    """By case and round, the median milliseconds in the empty World and in the crowded one."""
    server, schemas = cluster(), (fresh_schema(), fresh_schema())
    times: dict[str, list[tuple[float, float]]] = {name: [] for name in CASES}
    async with AsyncExitStack() as stack:
        worlds: list[World] = []
        for schema in schemas:
            worlds.append(await opened(server, schema))
            stack.push_async_callback(worlds[-1].aclose)
        for name in CASES:
            await one_round(worlds, name)  # to begin with, both are empty
        crowd(server, schemas[1], count)
        for _ in range(rounds):
            for name in CASES:
                times[name].append(await one_round(worlds, name))
    return times
