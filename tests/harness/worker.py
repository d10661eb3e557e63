"""A worker process for the tests of this folder: accepts the message, drives the session until it is idle.

``rig`` starts it; everything comes in by environment variables, so that a crash point can be armed."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import cast

import anyio

from harness_durable import tool
from harness_durable.errors import SessionBusy
from harness_durable.events import AgentSpec, ReplayPolicy
from harness_durable.journal import Inbox
from harness_durable.runtime.equipment import Equipment
from harness_durable.runtime.worker import Worker
from harness_durable.settings import resolve
from harness_durable.worlds import open_world

REPLAY = cast(ReplayPolicy, os.environ.get("RIG_REPLAY", "never"))


@tool(replay=REPLAY)
async def effect(token: str, nap: float = 0.0) -> str:
    """Do the effect of this token, once; with another ``RIG_REPLAY``, as often as its policy allows."""
    with Path(os.environ["RIG_EFFECTS"]).open("a") as ledger:  # noqa: ASYNC230
        ledger.write(f"{token}\n")
    await anyio.sleep(nap)
    return f"did {token}"


async def main() -> int:
    env = os.environ
    settings = resolve().settings
    world = await open_world(settings.world)
    equipment = Equipment(settings, tools=[effect])
    try:
        agent = AgentSpec(
            adapter=env["RIG_ADAPTER"],
            harness_version=env["RIG_VERSION"],
            model=env["RIG_MODEL"],
            sandbox="local",
            workspace=env["RIG_WORKSPACE"],
            permission_mode=env.get("RIG_PERMISSION", "default"),
            tools=tuple(env["RIG_TOOLS"].split(",")) if "RIG_TOOLS" in env else None,
        )
        inbox = await Inbox.create(world, env["RIG_SESSION"], agent)
        if env.get("RIG_TEXT"):
            await inbox.accept(env["RIG_MESSAGE"], env["RIG_TEXT"])
        async with Worker.open(world, equipment) as worker:
            while True:
                try:
                    await worker.drive(env["RIG_SESSION"])
                    return 0
                except SessionBusy:
                    await anyio.sleep(0.1)
    finally:
        await equipment.aclose()
        await world.aclose()


if __name__ == "__main__":
    sys.exit(anyio.run(main))
