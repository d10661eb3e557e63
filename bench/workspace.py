"""What a snapshot costs: ``python -m bench.workspace [ROUNDS] [FILES] [--json]``. Not part of the wheel.

A tree of 50,000 files of 10 KB on average (as installed Python packages have), in folders of 20, saved in a
SQLite World. Compared with the least that any scanner must do: list each folder and look at each file. All
cases take turns in every round, since other work on the machine then meets them all; ratios are of medians.
What is timed is the scan, the hashing, the compression and the World's commit.
Bytes are those of one step, as they are stored. With ``--json`` the last line is JSON instead of the table.
"""

from __future__ import annotations

import json
import os
import random
import statistics
import sys
import tempfile
import time
import uuid
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from functools import partial
from pathlib import Path

import anyio
import anyio.to_thread

from harness_durable.workspace import Limits, Scanned, Tracker, restore
from harness_durable.world import World
from harness_durable.worlds import open_world

IN_FOLDER = 20
CASES = ("walk", "first", "0 changed", "1 changed", "20 changed", "2000 changed", "cache lost")


class Kept:
    """The blobs of one session."""

    def __init__(self, world: World, session: str) -> None:
        self.world, self.session = world, session
        self.read = partial(world.blob, session)

    async def put(self, blobs: Mapping[str, bytes]) -> None:
        if blobs:
            await self.world.put_blobs(self.session, blobs)

    async def missing(self, names: Sequence[str]) -> set[str]:
        return await self.world.missing_blobs(self.session, names)

    def tracker(self, place: Path) -> Tracker:
        return Tracker(place, Limits(), cache=None, put=self.put, missing=self.missing, read=self.read)


class Bench:
    """A tree, its session, and what each case took (seconds) and stored (bytes)."""

    def __init__(self, place: Path, files: int, world: World) -> None:
        self.place, self.files, self.world, self.chance = place, files, world, random.Random(1)
        self.kept = Kept(world, "s")
        self.tracker, self.root = self.kept.tracker(place), ""
        self.times: dict[str, list[float]] = {case: [] for case in CASES}
        self.stored: dict[str, list[int]] = {case: [] for case in CASES}

    def path(self, number: int) -> Path:
        folder = number // IN_FOLDER
        return self.place / f"p{folder % 50}" / f"m{folder}" / f"module_{number}.py"

    def content(self, number: int) -> str:
        return "".join(
            f"def f{number}_{self.chance.random()}(x): return x\n" for _ in range(self.chance.randrange(520))
        )

    def make(self) -> None:
        for number in range(self.files):
            path = self.path(number)
            if number % IN_FOLDER == 0:
                path.parent.mkdir(parents=True)
            path.write_text(self.content(number))

    async def step(self, tracker: Tracker, root: str) -> Scanned:
        scanned = await tracker.scan(root)
        assert not scanned.skipped, scanned.why
        await self.kept.put(scanned.blobs)
        tracker.landed(scanned)
        return scanned

    async def timed(self, case: str, work: Callable[[], Awaitable[Scanned | None]]) -> Scanned | None:
        began = time.perf_counter()
        scanned = await work()
        self.times[case].append(time.perf_counter() - began)
        self.stored[case].append(scanned.stored_bytes if scanned else 0)
        return scanned

    async def changed(self, count: int) -> None:
        """Write so many files anew; one snapshot of that."""
        for number in self.chance.sample(range(self.files), count):
            self.path(number).write_text(self.content(number))
        scanned = await self.timed(f"{count} changed", lambda: self.step(self.tracker, self.root))
        assert scanned and scanned.counts.modified >= count * 0.9  # some content is empty before and after
        self.root = scanned.root

    async def first(self) -> Scanned:
        """A session of its own, so that all is new to it."""
        kept = Kept(self.world, uuid.uuid4().hex)
        scanned = await kept.tracker(self.place).scan("")
        await kept.put(scanned.blobs)
        return scanned

    async def round(self) -> None:
        await self.timed("first", self.first)
        for count in (1, 0, 20, 0, 2000, 0):
            await self.timed("walk", lambda: anyio.to_thread.run_sync(walk, self.place))
            await self.changed(count)
        lost = self.kept.tracker(self.place)
        await self.timed("cache lost", lambda: self.step(lost, self.root))


def walk(place: Path) -> None:
    """The floor: every folder listed, every name looked at."""
    pending = [os.fspath(place)]
    while pending:
        with os.scandir(pending.pop()) as entries:
            for entry in entries:
                entry.stat(follow_symlinks=False)
                if entry.is_dir(follow_symlinks=False):
                    pending.append(entry.path)


def report(bench: Bench, restored: float, as_json: bool) -> None:
    middle = {case: statistics.median(times) for case, times in bench.times.items()}
    middle["restore"] = restored
    stored = {case: round(statistics.median(sizes)) for case, sizes in bench.stored.items()}
    if as_json:
        print(
            json.dumps(
                {
                    case: {
                        "ms": round(seconds * 1000, 1),
                        "to walk": round(seconds / middle["walk"], 2),
                        "stored": stored.get(case, 0),
                    }
                    for case, seconds in middle.items()
                }
            )
        )
        return
    print(f"{bench.files} files{'':9}{'median ms':>10}{'to walk':>9}{'of first':>10}{'bytes stored':>14}")
    for case, seconds in middle.items():
        print(
            f"{case:20}{seconds * 1000:10.1f}{seconds / middle['walk']:8.2f}x"
            f"{seconds / middle['first']:9.3f}x{stored.get(case, 0):14,}"
        )


async def main(rounds: int, files: int, as_json: bool) -> None:
    async with AsyncExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory())
        world = await open_world(f"sqlite:{folder}/world.db", "bench")
        stack.push_async_callback(world.aclose)
        bench = Bench(Path(folder, "tree"), files, world)
        bench.make()
        bench.root = (await bench.step(bench.tracker, "")).root
        await bench.step(bench.tracker, bench.root)  # what was just written is read again once
        for _ in range(rounds):
            await bench.round()
        began = time.perf_counter()
        await restore(bench.root, Path(folder, "restored"), bench.kept.read, at_ms=1)
        report(bench, time.perf_counter() - began, as_json)


if __name__ == "__main__":
    given = [int(word) for word in sys.argv[1:] if word != "--json"]
    anyio.run(
        main,
        given[0] if given else 5,
        given[1] if len(given) > 1 else 50_000,
        "--json" in sys.argv,
    )
