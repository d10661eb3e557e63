"""Temporal: its development server on SQLite, which is not what it has for production, and a worker in this
process. An activity is a step; a workflow's history is read back when it is done."""

# pyright: basic, reportMissingImports=false
# It runs in the environment of the peer, which ours does not have.

from __future__ import annotations

import asyncio
import socket
import subprocess
import sys
import time
import uuid
from contextlib import AsyncExitStack
from datetime import UTC, datetime, timedelta
from pathlib import Path

from common import STEPS, Work, again, result_of, serve
from temporalio import activity, workflow
from temporalio.client import Client
from temporalio.worker import UnsandboxedWorkflowRunner, Worker

QUEUE = "bench"
RESULT: dict[str, object] = {}


@activity.defn
async def act(number: int) -> dict:
    return RESULT


@workflow.defn
class Turn:
    @workflow.run
    async def run(self, end: float) -> int:
        done = 0
        while done < STEPS and (not done or workflow.now().timestamp() < end):
            await workflow.execute_activity(act, done, start_to_close_timeout=timedelta(seconds=60))
            done += 1
        return done


async def connected(port: int) -> Client:
    deadline = time.monotonic() + 60
    while True:
        try:
            return await Client.connect(f"127.0.0.1:{port}")
        except RuntimeError:
            if time.monotonic() > deadline:
                raise
            await asyncio.sleep(0.2)


def server(stack: AsyncExitStack, place: Path) -> int:
    """Started; its port."""
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    command = [
        Path(sys.executable).with_name("temporal"),
        "server",
        "start-dev",
        "--headless",
        "--ip",
        "127.0.0.1",
    ]
    command += ["--port", str(port), "--db-filename", place, "--log-level", "error"]
    command += ["--disable-config-file", "--disable-config-env"]
    log = stack.enter_context(place.with_suffix(".log").open("wb"))
    process = subprocess.Popen(command, stdout=log, stderr=log)
    stack.callback(process.wait, 20)
    stack.callback(process.terminate)
    return port


async def opened(stack: AsyncExitStack, store: str, size: int) -> dict[str, Work]:
    RESULT.update(result_of(size))
    port = server(stack, Path(store.partition(":")[2]))
    client = await connected(port)
    await stack.enter_async_context(
        Worker(
            client,
            task_queue=QUEUE,
            workflows=[Turn],
            activities=[act],
            workflow_runner=UnsandboxedWorkflowRunner(),
        )
    )

    async def run(end: float) -> int:
        wall = datetime.now(UTC).timestamp() + end - time.perf_counter()
        handle = await client.start_workflow(Turn.run, wall, id=uuid.uuid4().hex, task_queue=QUEUE)
        done = await handle.result()
        async for _ in handle.fetch_history_events():
            pass
        return done

    return {"step": again(run)}


if __name__ == "__main__":
    serve(opened)
