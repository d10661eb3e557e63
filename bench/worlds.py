"""What a World costs over the disk: ``python bench/worlds.py [ROUNDS] [FOLDER]``. Not part of the wheel.

An append is one record of 1 KB; a step is an append and reading it back. Beside each measurement, at 1, 16
and 64 sessions, a bare write + fdatasync is measured in the same folder, since absolute times say more about
the disk and its other work than about the World. The last line is JSON: for each case the median of the
rounds' ratios to the bare sync, the smallest and largest of them, and the microseconds of CPU for each
operation, which other work on the machine changes least.
"""

from __future__ import annotations

import json
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

import anyio

from harness_durable.world import Record, RowUpdate, World
from harness_durable.worlds import open_world

SECONDS = 0.4
BODY = os.urandom(512).hex().encode()
PARKED = RowUpdate("parked", None)
SESSIONS: tuple[int, ...] = (1, 16, 64)
DEMANDS: dict[str, tuple[float, ...]] = {
    "file append": (0.65, 1.6, 2.2),
    "file step": (0.45, 1.1, 1.4),
    "sqlite step": (0.38, 2.6, 4.7),
}
"""Ratios at 1, 16 and 64 sessions that a World should reach on a quiet machine."""

Found = dict[str, list[tuple[float, float]]]
Work = Callable[[World, str, int], Awaitable[int]]


def record() -> Record:
    return Record(os.urandom(8).hex(), "bench.note", 1, BODY)


async def append(world: World, session: str, head: int) -> int:
    return await world.append(session, expected_head=head, epoch=0, records=[record()])


async def step(world: World, session: str, head: int) -> int:
    head = await append(world, session, head)
    (found,) = await world.read(session, after=head - 1)
    assert found.body == BODY
    return head


def bare(folder: Path) -> float:
    """Syncs per second of one growing file."""
    path, done = folder / "bare", 0
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_APPEND)
    try:
        began = time.perf_counter()
        while time.perf_counter() - began < SECONDS / 2:
            os.write(fd, BODY)
            os.fdatasync(fd)
            done += 1
        return done / (time.perf_counter() - began)
    finally:
        os.close(fd)


async def rate(world: World, work: Work, sessions: list[str]) -> tuple[float, float]:
    """How much ``work`` per second, by that many sessions at once; and microseconds of CPU for each."""
    done = 0
    end = time.perf_counter() + SECONDS

    async def one(session: str) -> None:
        nonlocal done
        head = (await world.session(session)).head
        while time.perf_counter() < end:
            head = await work(world, session, head)
            done += 1

    began, used = time.perf_counter(), time.process_time()
    async with anyio.create_task_group() as group:
        for session in sessions:
            group.start_soon(one, session)
    return done / (time.perf_counter() - began), (time.process_time() - used) / done * 1e6


async def one_round(worlds: dict[str, World], folder: Path, ratios: Found) -> float:
    """Adds a ratio, and what it cost, to each case; syncs per second."""
    for name, world in worlds.items():
        for what, work in (("append", append), ("step", step)):
            for count in SESSIONS:
                before = bare(folder)
                measured, cpu = await rate(world, work, [f"s{n}" for n in range(count)])
                disk = (before + bare(folder)) / 2
                ratios.setdefault(f"{name} {what} {count}", []).append((measured / disk, cpu))
    return bare(folder)


def report(ratios: Found, syncs: list[float]) -> None:
    print(f"{'':22} {'median':>8} {'least':>8} {'most':>8} {'us CPU':>8}  demand      (x of a bare sync)")
    result: dict[str, object] = {"syncs_per_second": round(statistics.median(syncs)), "rounds": len(syncs)}
    for case, measured in ratios.items():
        found, costs = zip(*measured, strict=True)
        cpu = statistics.median(costs)
        name, _, count = case.rpartition(" ")
        middle = statistics.median(found)
        demand = dict(zip(SESSIONS, DEMANDS.get(name, ()), strict=False)).get(int(count))
        verdict = "" if demand is None else f"{demand:6.2f}  {'met' if middle >= demand else 'MISSED'}"
        print(f"{case:22} {middle:8.2f} {min(found):8.2f} {max(found):8.2f} {cpu:8.0f}  {verdict}")
        result[case] = [round(number, 3) for number in (middle, min(found), max(found), cpu)]
    print(json.dumps(result))


async def main(rounds: int, place: str | None) -> None:
    ratios: Found = {}
    syncs: list[float] = []
    with tempfile.TemporaryDirectory(prefix="bench-worlds-", dir=place) as name:
        folder = Path(name)
        urls = {"file": f"file:{folder}/files", "sqlite": f"sqlite:{folder}/store.db"}
        worlds = {kind: await open_world(url, "bench") for kind, url in urls.items()}
        try:
            for world in worlds.values():
                for number in range(max(SESSIONS)):
                    await world.create(f"s{number}", [record()], PARKED)
            for _ in range(rounds):
                syncs.append(await one_round(worlds, folder, ratios))
        finally:
            for world in worlds.values():
                await world.aclose()
    report(ratios, syncs)


if __name__ == "__main__":
    anyio.run(main, int(sys.argv[1]) if len(sys.argv) > 1 else 7, sys.argv[2] if len(sys.argv) > 2 else None)
