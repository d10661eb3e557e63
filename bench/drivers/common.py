"""What the drivers of the append scenario share. Standard library only: it runs in every peer's environment.

A driver is started with a store (a folder or a URL) and the size of a step's result. It says ``ready``, and
answers one line of JSON for each line that it is given: how many steps so many sessions did in that time,
and how many bare syncs of the disk there were, measured in this very process just before and just after.
"""

from __future__ import annotations

import asyncio
import json
import os
import resource
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from pathlib import Path

Work = Callable[[int, float], Awaitable[int]]
"""What one session does: its number, and until when (``time.perf_counter``). How many steps it did."""
Opened = Callable[[AsyncExitStack, str, int], Awaitable[dict[str, Work]]]
"""Open the store for steps of a size. What can be done with it, by name."""

STEPS = 50
"""Of one session or workflow, at most; then the next one begins. For everybody, us as well."""
BARE_SECONDS = 0.12
WARM_SECONDS = 0.3


def result_of(size: int) -> dict[str, object]:
    """What a step returns: a tool's output that no compression makes much smaller."""
    return {"type": "tool.completed", "call": "call_0001", "ok": True, "out": os.urandom(size // 2).hex()}


def repeated(step: Callable[[int], Awaitable[None]]) -> Work:
    """A session that does one step after the other."""

    async def session(number: int, end: float) -> int:
        done = 0
        while time.perf_counter() < end:
            await step(number)
            done += 1
        return done

    return session


def again(run: Callable[[float], Awaitable[int]]) -> Work:
    """A session that runs one workflow after the other; each does up to ``STEPS`` steps until that time, and
    their results are read back before it is over."""

    async def session(number: int, end: float) -> int:
        done = 0
        while time.perf_counter() < end:
            done += await run(end)
        return done

    return session


def bare(folder: Path, seconds: float = BARE_SECONDS) -> float:
    """Appends of 1 KB to one growing file, each with an fdatasync, a second."""
    block, done = b"x" * 1024, 0
    with tempfile.NamedTemporaryFile(dir=folder, buffering=0) as file:
        began = time.perf_counter()
        while time.perf_counter() - began < seconds:
            file.write(block)
            os.fdatasync(file.fileno())
            done += 1
        return done / (time.perf_counter() - began)


async def measured(work: Work, sessions: int, seconds: float) -> tuple[int, float]:
    """Steps that all of them did together, and how long that took."""
    began = time.perf_counter()
    done = await asyncio.gather(*(work(number, began + seconds) for number in range(sessions)))
    return sum(done), time.perf_counter() - began


def used() -> float:
    """Seconds of CPU of this process, and of what it has started and seen the end of."""
    return sum(sum(resource.getrusage(who)[:2]) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))


async def answers(opened: Opened, store: str, size: int, scratch: Path) -> None:
    loop = asyncio.get_running_loop()
    async with AsyncExitStack() as stack:
        works = await opened(stack, store, size)
        for work in works.values():
            await measured(work, 1, WARM_SECONDS)
        print(json.dumps({"ready": list(works)}), flush=True)
        while line := await loop.run_in_executor(None, sys.stdin.readline):
            asked = json.loads(line)
            before, cpu = bare(scratch), used()
            steps, seconds = await measured(works[asked["what"]], asked["sessions"], asked["seconds"])
            cpu = used() - cpu
            answer = {"steps": steps, "seconds": seconds, "cpu": cpu, "bare": (before + bare(scratch)) / 2}
            print(json.dumps(answer), flush=True)


def serve(opened: Opened) -> None:
    """``driver.py STORE SIZE SCRATCH``. Ends at the end of its input, and leaves no thread to wait for."""
    store, size, scratch = sys.argv[1:4]
    asyncio.run(answers(opened, store, int(size), Path(scratch)))
    os._exit(0)
