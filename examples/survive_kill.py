"""A worker is killed with SIGKILL while its agent deploys. The next one continues the same turn.

python examples/survive_kill.py
"""

from __future__ import annotations

import asyncio
import sys
import time
from pathlib import Path

from _provider import calls, folder, kill_worker_after, model, says

from harness_durable import Durable, TurnResult, tool

RECORD = Path("deployments.log")


@tool(replay="never")
def deploy(version: str) -> str:
    """Put a version into production. Each deployment adds a line to deployments.log."""
    with RECORD.open("a") as record:
        record.write(f"deployed {version}\n")
    if len(sys.argv) > 1:
        time.sleep(600)  # the effect has happened; the worker will not live to tell
    return f"deployed {version}"


async def work() -> TurnResult:
    """What every worker runs: the same session and the same message id are the same turn."""
    async with Durable.open() as durable:
        agent = durable.agent("claude-code", tools=[deploy])
        session = await agent.session("release")
        turn = await session.send("Deploy version 1.4.2, then tell me the truth.", message_id="m-1")
        return await turn.result()


def main() -> None:
    script = (
        calls("mcp__durable__deploy", version="1.4.2"),
        calls("Bash", command="cat deployments.log"),
        says("1.4.2 is deployed, once: I was not told so, but it is on record."),
    )
    with folder(), model(*script):
        kill_worker_after(RECORD, __file__)
        print("The first worker was killed right after the deployment.")

        result = asyncio.run(work())
        print(f"The same turn: {result.status}, {len(result.unknown)} call(s) unknown.")
        print(f"The agent: {result.text}")
        print(f"deployments.log: {RECORD.read_text().splitlines()}")


if __name__ == "__main__":
    if len(sys.argv) > 1:
        asyncio.run(work())
    else:
        main()
