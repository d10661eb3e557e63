"""DBOS: a workflow of steps, whose results are listed from its database at the end."""

# pyright: basic, reportMissingImports=false
# It runs in the environment of the peer, which ours does not have.

from __future__ import annotations

import time
from contextlib import AsyncExitStack

from common import STEPS, Work, again, result_of, serve
from dbos import DBOS, DBOSConfig

RESULT: dict[str, object] = {}


@DBOS.step()
async def act(number: int) -> dict[str, object]:
    return RESULT


@DBOS.workflow()
async def turn(end: float) -> int:
    done = 0
    while done < STEPS and (not done or time.perf_counter() < end):
        await act(done)
        done += 1
    return done


async def run(end: float) -> int:
    handle = await DBOS.start_workflow_async(turn, end)
    done = await handle.get_result()
    steps = await DBOS.list_workflow_steps_async(handle.workflow_id)
    assert len(steps) == done and steps[-1]["output"] == RESULT
    return done


async def opened(stack: AsyncExitStack, store: str, size: int) -> dict[str, Work]:
    kind, _, place = store.partition(":")
    url = f"sqlite:///{place}" if kind == "sqlite" else store
    RESULT.update(result_of(size))
    config: DBOSConfig = {
        "name": "bench",
        "system_database_url": url,
        "log_level": "ERROR",
        "run_admin_server": False,
        "sys_db_pool_size": 20,
    }
    DBOS(config=config)
    DBOS.launch()
    return {"step": again(run)}


if __name__ == "__main__":
    serve(opened)
