"""``python -m tests.bench.counted URL CALLS``: a turn of so many tool calls on a World, and nothing else."""

from __future__ import annotations

import sys

import anyio

from bench.conversation import Conversation
from harness_durable.worlds import open_world
from tests.unit.session_kit import begun


async def turn(url: str, calls: int) -> None:
    world = await open_world(url, "bench")
    try:
        talk = Conversation(await begun(world), "L1", "x" * 1000)
        for _ in range(calls):
            await talk.call()
    finally:
        await world.aclose()


if __name__ == "__main__":
    anyio.run(turn, sys.argv[1], int(sys.argv[2]))
