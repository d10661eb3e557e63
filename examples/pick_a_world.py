"""The same program on SQLite or on files: one variable says where the logs live.

HARNESS_DURABLE_WORLD=file:log python examples/pick_a_world.py
"""

from __future__ import annotations

import asyncio

from _provider import calls, folder, model, says

from harness_durable import Durable


async def work() -> None:
    async with Durable.open() as durable:
        where = await durable.world.describe()
        print(f"The log is in {where.url}: {where.durability}.")
        session = await durable.agent("claude-code").session("notes")
        turn = await session.send("Say hello from the shell.", message_id="m-1")
        async for entry in turn.events():
            print(f"{entry.seq:>3} {type(entry.event).__name__}")
        print((await turn.result()).text)


if __name__ == "__main__":
    with folder(), model(calls("Bash", command="echo hello"), says("hello, said the shell")):
        asyncio.run(work())
