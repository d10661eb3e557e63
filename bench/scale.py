"""Many sessions in one worker, many parked ones in one database, and long turns: what grows, and how fast."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from functools import partial
from pathlib import Path

import anyio

from bench.driving import Server
from bench.measure import Options, Result, Table, exponent, interleaved
from bench.parked import parked

NAME = "scale"
WORLDS = ("file", "sqlite", "postgresql")
IDLE, BUSY = 1000, 50
PARKED = 100_000
BUSIES = (5, 15, 50)
LATE = 100
"""From so many calls on a turn is long: before that, the first snapshot is a step in its curve."""
HASHED = """\
CPU grows faster than the calls of a turn, since each model request holds the whole conversation: it is read,
and each of its parts hashed, so that only what is new is stored (about a microsecond a part)."""
COLUMNS = {
    "base_mb": "memory with no session, MB",
    "idle_mb": f"with {IDLE:,} idle, MB",
    "busy_mb": f"and {BUSY} busy, MB",
    "idle_cpu": "CPU with all idle, % of a core",
    "cpu_ms": "CPU of a busy call, ms",
    "calls": "calls a second",
    "wake_ms": "message to harness, median ms",
    "wake_worst_ms": "message to harness, worst ms",
}


def inside(*words: object) -> dict[str, float]:
    """What a worker in a process of its own says of itself."""
    command = [sys.executable, "-m", "bench.scale_worker", *map(str, words)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"{' '.join(command[2:])}: {done.stderr[-2000:]}")
    found: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return found


class Places:
    """New stores, each for one measurement."""

    def __init__(self, folder: Path, server: Server | None) -> None:
        self._folder, self._server, self._made = folder, server, 0

    def url(self, world: str) -> str:
        self._made += 1
        if world == "postgresql" and self._server is not None:
            return self._server.fresh()
        (place := self._folder / f"{self._made}").mkdir()
        return f"{world}:{place / 'world'}"


def run(options: Options) -> Result:
    rounds = options.rounds or (1 if options.quick else 3)
    worker = Table("worker", "One worker", "", False, digits=1)
    growing = Table("growth", "k of cost ~ size^k (1: in proportion)", "k", False, digits=2, notes=[HASHED])
    longer = Table("turn", "A turn of so many calls, file World, as a whole", "", False)
    names = options.of(WORLDS)
    with tempfile.TemporaryDirectory(prefix="hd-bench-") as folder:
        server = Server() if "postgresql" in names else None
        places = Places(Path(folder), server)
        try:
            for number, world in interleaved(names, rounds):
                options.say(f"scale: round {number + 1} of {rounds}: {world}")
                _worker(worker, places, world, 2.0 if options.quick else 4.0)
            for number in range(rounds):
                options.say(f"scale: round {number + 1} of {rounds}: long turns, more sessions")
                _growth(growing, longer, places, 300 if options.quick else 1000)
        finally:
            if server is not None:
                server.close()
    crowd = Table("parked", f"{PARKED:,} parked sessions in one Postgres, to none", "x", False, digits=2)
    count = PARKED // 10 if options.quick else PARKED
    crowd.title = f"{count:,} parked sessions in one Postgres, to none"
    if not options.only or "postgresql" in names:
        options.say(f"scale: {count:,} parked sessions")
        for case, pairs in anyio.run(partial(parked, max(1, rounds), count)).items():
            for empty, crowded in pairs:
                crowd.add(case, "crowded to empty", crowded / empty)
                crowd.add(case, "ms, empty", empty)
                crowd.add(case, "ms, crowded", crowded)
    worker.sort(names)
    return Result(NAME, rounds, quick=options.quick, tables=[worker, crowd, growing, longer])


def _worker(table: Table, places: Places, world: str, seconds: float) -> None:
    found = inside(places.url(world), IDLE, BUSY, seconds)
    for key, column in COLUMNS.items():
        table.add(world, column, found[key])


def _growth(table: Table, longer: Table, places: Places, most: int) -> None:
    """Costs are totals of a turn, so in proportion means that its last call costs what its first did."""
    found = inside(places.url("file"), "growth", most)
    calls, cpu, stored, new = (_list(found[key]) for key in ("calls", "cpu", "stored", "new"))
    for count, seconds, left, fresh in zip(calls, cpu, stored, new, strict=True):
        longer.add("CPU, ms", f"{count:.0f} calls", seconds * 1000)
        longer.add("stored, KB", f"{count:.0f} calls", left / 1024)
        longer.add("stored to new content, x", f"{count:.0f} calls", left / fresh)
    late = [place for place, count in enumerate(calls) if count >= LATE]
    for what, costs in (("bytes stored", stored), ("CPU", cpu)):
        k = exponent([calls[place] for place in late], [costs[place] for place in late])
        table.add(f"{what}, by calls of a turn", "k", k)
    marginal = [inside(places.url("sqlite"), 0, count, 2.0) for count in BUSIES]
    spent = [each["cpu_ms"] * each["calls"] for each in marginal]
    table.add("CPU, by busy sessions", "k", exponent(BUSIES, spent))


def _list(found: object) -> list[float]:
    assert isinstance(found, list)
    return [float(each) for each in found]  # pyright: ignore[reportUnknownVariableType, reportUnknownArgumentType]
