"""Restate: its server beside us, and a service with a handler of steps in this process. A step cannot be read
by itself, so a run's answer is what is read back."""

# pyright: basic, reportMissingImports=false
# It runs in the environment of the peer, which ours does not have.

from __future__ import annotations

import asyncio
import os
import socket
import subprocess
import time
from contextlib import AsyncExitStack, suppress
from pathlib import Path

import httpx
import restate
from common import STEPS, Work, again, result_of, serve
from hypercorn.asyncio import serve as serve_http
from hypercorn.config import Config

RESULT: dict[str, object] = {}
bench = restate.Service("bench")


async def act() -> dict[str, object]:
    return RESULT


@bench.handler()
async def turn(context: restate.Context, end: float) -> int:
    done = 0
    while done < STEPS and (not done or time.perf_counter() < end):
        await context.run_typed(f"s{done}", act)
        done += 1
    return done


def ports(count: int) -> list[int]:
    probes = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    found = [probe.getsockname()[1] for probe in probes]
    for probe in probes:
        probe.close()
    return found


def server(stack: AsyncExitStack, folder: Path, ingress: int, admin: int, fabric: int) -> None:
    folder.mkdir()
    modules = Path(os.environ["BENCH_MODULES"])
    binary = next(modules.glob("@restatedev/restate-server-*/bin/restate-server"))
    settings = {
        "RESTATE_LOG_FILTER": "error",
        "RESTATE_DISABLE_TELEMETRY": "true",
        "RESTATE_INGRESS__BIND_ADDRESS": f"127.0.0.1:{ingress}",
        "RESTATE_ADMIN__BIND_ADDRESS": f"127.0.0.1:{admin}",
        "RESTATE_BIND_ADDRESS": f"127.0.0.1:{fabric}",
        "RESTATE_ADVERTISED_ADDRESS": f"http://127.0.0.1:{fabric}",
    }
    log = stack.enter_context((folder / "server.log").open("wb"))
    process = subprocess.Popen(
        [binary, "--base-dir", folder / "data", "--node-name", "n1"],
        env={**os.environ, **settings},
        stdout=log,
        stderr=log,
    )
    stack.callback(process.wait, 20)
    stack.callback(process.terminate)


async def opened(stack: AsyncExitStack, store: str, size: int) -> dict[str, Work]:
    folder = Path(store.partition(":")[2])
    RESULT.update(result_of(size))
    ingress, admin, fabric, ours = ports(4)
    server(stack, folder, ingress, admin, fabric)
    config, stop = Config(), asyncio.Event()
    config.bind, config.loglevel = [f"127.0.0.1:{ours}"], "ERROR"
    serving = asyncio.create_task(serve_http(restate.app([bench]), config, shutdown_trigger=stop.wait))
    stack.callback(stop.set)
    client = await stack.enter_async_context(
        httpx.AsyncClient(timeout=60, limits=httpx.Limits(max_connections=64), trust_env=False)
    )
    deadline = time.monotonic() + 60
    while not serving.done() and time.monotonic() < deadline:
        with suppress(httpx.HTTPError):
            asked = {"uri": f"http://127.0.0.1:{ours}"}
            if (await client.post(f"http://127.0.0.1:{admin}/deployments", json=asked)).is_success:
                break
        await asyncio.sleep(0.2)

    async def run(end: float) -> int:
        answer = await client.post(f"http://127.0.0.1:{ingress}/bench/turn", json=end)
        answer.raise_for_status()
        return int(answer.text)

    return {"step": again(run)}


if __name__ == "__main__":
    serve(opened)
