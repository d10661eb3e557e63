"""``python -m bench.scale_worker URL IDLE BUSY SECONDS`` and ``... URL growth CALLS``: the inside of the
scale scenario, in a process of its own so that its memory is its own. Prints a line of JSON.

The harness is a function and there is no keeper: what is measured is the worker, its log and its World.
"""

from __future__ import annotations

import json
import sys
import time
from functools import partial
from pathlib import Path

import anyio
from anyio.abc import TaskGroup

from bench.conversation import Conversation
from bench.driving import on_disk
from harness_durable.adapter import LifeContext, TurnEnd
from harness_durable.journal import Inbox
from harness_durable.runtime.service import Service
from harness_durable.runtime.worker import Worker
from harness_durable.sandbox import Link
from harness_durable.world import World
from harness_durable.worlds import open_world
from tests.runtime.kit import Harness, Place, accepted, equipped
from tests.unit.session_kit import begun

WAKES = 20
TOOL_SECONDS = 0.05
"""How long a busy session's tool takes: nobody's model is faster."""
RESULT = "x" * 1000


class Lives:
    """What the harness does: it says when it began, and in a busy session makes calls until it is enough."""

    def __init__(self) -> None:
        self.began: dict[str, float] = {}
        self.calls, self.end = 0, 0.0

    async def __call__(self, context: LifeContext, link: Link) -> TurnEnd:
        self.began[context.session] = time.perf_counter()
        if context.session.startswith("busy"):
            talk = Conversation(context.journal, context.life, RESULT)
            while time.perf_counter() < self.end:
                await talk.call()
                self.calls += 1
                await anyio.sleep(TOOL_SECONDS)
        return TurnEnd("completed", "done")


def memory() -> float:
    """MB of this process."""
    status = Path("/proc/self/status").read_text().splitlines()
    return int(next(line for line in status if line.startswith("VmRSS")).split()[1]) / 1024


async def used(seconds: float) -> float:
    """CPU of this process while it is left alone, in percent of a core."""
    began, cpu = time.perf_counter(), time.process_time()
    await anyio.sleep(seconds)
    return (time.process_time() - cpu) / (time.perf_counter() - began) * 100


async def woken(world: World, lives: Lives, session: str) -> float:
    """Milliseconds from the message until its harness begins."""
    inbox = await Inbox.open(world, session)
    began = time.perf_counter()
    await inbox.accept("m-1", "do it")
    while session not in lives.began:  # noqa: ASYNC110 (what is waited for tells nobody)
        await anyio.sleep(0.001)
    return (lives.began[session] - began) * 1000


async def busy(world: World, lives: Lives, count: int, seconds: float) -> dict[str, float]:
    """So many sessions at once."""
    lives.end = time.perf_counter() + 3600
    for number in range(count):
        await accepted(world, "m-1", session=f"busy{number}")
    while sum(name.startswith("busy") for name in lives.began) < count:  # noqa: ASYNC110 (as above)
        await anyio.sleep(0.01)
    lives.calls, cpu, began = 0, time.process_time(), time.perf_counter()
    await anyio.sleep(seconds)
    calls, cpu, took = lives.calls, time.process_time() - cpu, time.perf_counter() - began
    found = {"busy_mb": memory(), "cpu_ms": cpu / max(1, calls) * 1000, "calls": calls / took}
    lives.end = 0.0
    return found


async def scale(url: str, idle: int, count: int, seconds: float) -> dict[str, float]:
    world, lives = await open_world(url, "bench"), Lives()
    found = {"base_mb": memory()}
    tasks: TaskGroup
    try:
        for number in range(idle):
            await accepted(world, session=f"idle{number}")
        equipment = equipped(Harness(lives), Place(), concurrency=max(1, count))
        async with Worker.open(world, equipment) as worker, anyio.create_task_group() as tasks:
            service = Service(worker)
            tasks.start_soon(service.run)
            await anyio.sleep(0.5)
            found |= {"idle_cpu": await used(seconds), "idle_mb": memory()}
            wakes = sorted([await woken(world, lives, f"idle{n}") for n in range(min(idle, WAKES))])
            if wakes:
                found |= {"wake_ms": wakes[len(wakes) // 2], "wake_worst_ms": wakes[-1]}
            if count:
                found |= await busy(world, lives, count, seconds)
            service.stop()
    finally:
        await world.aclose()
    return found


async def growth(url: str, most: int) -> dict[str, list[float]]:
    """A turn of ever more calls: now and then the CPU (s) so far, and the bytes that its World has stored."""
    world = await open_world(url, "bench")
    place = Path(url.partition(":")[2])
    calls: list[float] = []
    cpu: list[float] = []
    stored: list[float] = []
    new: list[float] = []
    try:
        talk = Conversation(await begun(world), "L1", RESULT)
        empty, began = on_disk(place.parent).size, time.process_time()
        spent = 0.0
        for mark in (each for each in (10, 30, 100, 300, 1000, 3000) if each <= most):
            while talk.calls < mark:
                await talk.call()
            spent += time.process_time() - began
            calls.append(mark)
            cpu.append(spent)
            stored.append(on_disk(place.parent).size - empty)
            new.append(talk.bytes)
            began = time.process_time()
    finally:
        await world.aclose()
    return {"calls": calls, "cpu": cpu, "stored": stored, "new": new}


def main() -> None:
    url, first, *more = sys.argv[1:]
    if first == "growth":
        work = partial(growth, url, int(more[0]))
        print(json.dumps(anyio.run(work)))
    else:
        print(json.dumps(anyio.run(partial(scale, url, int(first), int(more[0]), float(more[1])))))


if __name__ == "__main__":
    main()
