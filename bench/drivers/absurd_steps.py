"""Absurd: a task of steps. As many clients as sessions; each claims and runs what is there, its own task or
another's. The checkpoints of a task are read from the database when it is done."""

# pyright: basic, reportMissingImports=false
# It runs in the environment of the peer, which ours does not have.

from __future__ import annotations

import subprocess
import sys
import time
from contextlib import AsyncExitStack
from pathlib import Path

from absurd_sdk import AsyncAbsurd
from common import STEPS, Work, result_of, serve

MOST, QUEUE, CLAIM_SECONDS = 64, "bench", 60


def prepare(store: str) -> None:
    tool = Path(sys.executable).with_name("absurdctl")
    subprocess.run([tool, "init", "--database", store], check=True, capture_output=True)


async def opened(stack: AsyncExitStack, store: str, size: int) -> dict[str, Work]:
    prepare(store)
    result = result_of(size)

    async def act() -> dict[str, object]:
        return result

    done = [0] * MOST

    def task(number: int):
        async def turn(params: dict[str, float], context) -> int:
            steps = 0
            while steps < STEPS and (not steps or time.perf_counter() < params["end"]):
                await context.step(f"s{steps}", act)
                steps += 1
            done[number] += steps
            return steps

        return turn

    clients: list[AsyncAbsurd] = []
    for number in range(MOST):
        client = AsyncAbsurd(store, queue_name=QUEUE)
        client.register_task(name="turn")(task(number))
        clients.append(client)
    await clients[0].create_queue(QUEUE)

    async def session(number: int, end: float) -> int:
        client, before = clients[number], done[number]
        while time.perf_counter() < end:
            spawned = await client.spawn("turn", {"end": end})
            await client.work_batch(f"w{number}", CLAIM_SECONDS, 1)
            cursor = client._conn.cursor()
            await cursor.execute(
                "select * from absurd.get_task_checkpoint_states(%s, %s, %s)",
                (QUEUE, spawned["task_id"], spawned["run_id"]),
            )
            await cursor.fetchall()
        return done[number] - before

    return {"step": session}


if __name__ == "__main__":
    serve(opened)
