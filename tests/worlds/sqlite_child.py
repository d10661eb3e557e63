"""A process that writes to a SQLite World, for tests that stop it, kill it or make its system calls fail.

``python sqlite_child.py pour URL COUNT [die]`` appends COUNT batches to "s", prints each answer.
``python sqlite_child.py together URL COUNT`` creates COUNT sessions at once, then appends to all at once.
``python sqlite_child.py create URL NAME`` creates session "s" with a record of that name.
``python sqlite_child.py hold URL LEASE`` claims session "s" and appends once for every line of its input.
``python sqlite_child.py race URL TAG COUNT`` claims what is due and appends to session "shared".
"""

from __future__ import annotations

import os
import signal
import sys

import anyio
import anyio.to_thread

from harness_durable.errors import Conflict, StorageError, StorageUnavailable
from harness_durable.world import Owner, World
from harness_durable.worlds import open_world
from tests.worlds.sqlite_support import APP, PARKED, batch, record

TRIES = 20


def say(*words: object) -> None:
    os.write(1, (" ".join(map(str, words)) + "\n").encode())  # one call, for those who trace it


async def pour(world: World, count: int, then: str = "") -> None:
    await world.create("s", [record("first")], PARKED)
    head = 1
    for number in range(count):
        for _ in range(TRIES):
            try:
                head = await world.append("s", expected_head=head, epoch=0, records=batch(number))
            except StorageUnavailable as error:
                say("failed", number, "unclear" if error.unclear else "clear", error)
                if then == "die":
                    os.kill(os.getpid(), signal.SIGKILL)
                continue
            say("wrote", number, head)
            break


async def together(world: World, count: int) -> None:
    async def append(number: int) -> None:
        await world.append(f"s{number}", expected_head=1, epoch=0, records=batch(number))

    async with anyio.create_task_group() as group:
        for number in range(count):
            group.start_soon(world.create, f"s{number}", [record("first")], PARKED)
    async with anyio.create_task_group() as group:
        for number in range(count):
            group.start_soon(append, number)


async def hold(world: World, lease: float) -> None:
    owner = Owner(f"held-{os.getpid()}", "here", os.getpid())
    await world.register(owner, lease)
    claim = await world.claim_session(owner, "s")
    say("claimed", claim.epoch, claim.head)
    head = claim.head
    async for line in anyio.wrap_file(sys.stdin):
        try:
            records = [record(line.strip())]
            head = await world.append("s", expected_head=head, epoch=claim.epoch, records=records)
            say("wrote", head)
        except StorageError as error:
            say(type(error).__name__)


async def race(world: World, tag: str, count: int) -> None:
    owner = Owner(f"racer-{tag}", "here", os.getpid())
    await world.register(owner)
    say("ready")
    await anyio.to_thread.run_sync(sys.stdin.readline)
    won = [claim.session for claim in await world.claim(owner, 100)]
    head = 1
    for number in range(count):
        while True:
            try:
                records = [record(f"{tag}-{number}")]
                head = await world.append("shared", expected_head=head, epoch=0, records=records)
                break
            except Conflict as moved:
                head = moved.records[-1].seq
    say("won", *won)
    await anyio.to_thread.run_sync(sys.stdin.readline)


async def main(what: str, url: str, *rest: str) -> None:
    try:
        world = await open_world(url, APP)
    except StorageError as error:
        say("refused", type(error).__name__)
        return
    try:
        match what:
            case "pour":
                await pour(world, int(rest[0]), *rest[1:])
            case "together":
                await together(world, int(rest[0]))
            case "hold":
                await hold(world, float(rest[0]))
            case "create":
                say(await world.create("s", [record(rest[0])], PARKED))
            case _:
                await race(world, rest[0], int(rest[1]))
    finally:
        await world.aclose()
    say("end")


if __name__ == "__main__":
    anyio.run(main, sys.argv[1], sys.argv[2], *sys.argv[3:])
