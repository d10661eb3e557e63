"""``python -m tests.bench.counted URL CALLS [BYTES]``: a turn of so many tool calls on a World, each with a
result of so many bytes, and nothing else."""

from __future__ import annotations

import sys

import anyio

from bench.conversation import Conversation
from harness_durable.worlds import open_world
from tests.unit.session_kit import begun


async def turn(url: str, calls: int, result: int = 1000) -> None:
    world = await open_world(url, "bench")
    try:
        talk = Conversation(await begun(world), "L1", "x" * result)
        for _ in range(calls):
            await talk.call()
    finally:
        await world.aclose()


if __name__ == "__main__":
    anyio.run(turn, sys.argv[1], *map(int, sys.argv[2:]))
