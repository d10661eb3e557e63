"""Our Worlds. ``append``: one record. ``step``: one record, and read back. ``strict``: what a tool call
writes, an intent and, once that is durable, its outcome; and the outcome is read back."""

from __future__ import annotations

import itertools
import os
from contextlib import AsyncExitStack

import msgspec
from common import STEPS, Work, repeated, result_of, serve

from harness_durable.world import Record, RowUpdate, World
from harness_durable.worlds import open_world

PARKED = RowUpdate("parked", None)
INTENT = {"call": "call_0001", "tool": "read_file", "input": {"path": "a/b.py"}}


class Log:
    """What a worker knows of the sessions that it drives: their names and heads."""

    def __init__(self, world: World, name: str, most: int) -> None:
        self._world, self._most = world, most
        self._names = (f"{name}{number}" for number in itertools.count())
        self._open: dict[int, tuple[str, int]] = {}

    async def write(self, number: int, body: bytes) -> tuple[str, int]:
        """One durable record; where it stands. A session that has all it may have is left for a new one."""
        session, head = self._open.get(number, ("", self._most))
        if head >= self._most:
            session, head = next(self._names), 1
            await self._world.create(session, [record(b"{}")], PARKED)
        head = await self._world.append(session, expected_head=head, epoch=0, records=[record(body)])
        self._open[number] = session, head
        return session, head


def record(body: bytes) -> Record:
    return Record(os.urandom(8).hex(), "bench.note", 1, body)


async def opened(stack: AsyncExitStack, store: str, size: int) -> dict[str, Work]:
    world = await open_world(store, "bench")
    stack.push_async_callback(world.aclose)
    result = result_of(size)
    encode, decode = msgspec.json.Encoder().encode, msgspec.json.Decoder(dict[str, object]).decode
    long, short = Log(world, "long", 1 << 30), Log(world, "short", STEPS)
    double = Log(world, "double", 2 * STEPS)

    async def append(number: int) -> None:
        await long.write(number, encode(result))

    async def back(session: str, head: int) -> None:
        (found,) = await world.read(session, after=head - 1)
        assert decode(found.body) == result

    async def step(number: int) -> None:
        await back(*await short.write(number, encode(result)))

    async def strict(number: int) -> None:
        await double.write(number, encode(INTENT))
        await back(*await double.write(number, encode(result)))

    return {"append": repeated(append), "step": repeated(step), "strict": repeated(strict)}


if __name__ == "__main__":
    serve(opened)
