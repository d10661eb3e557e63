"""``harness-durable worker``: drive whatever is due in this app, until told to stop."""

from __future__ import annotations

import logging
from typing import Any

import click

from harness_durable.cli.common import Log, asynchronous, check_run_dir, say, world_options


@click.command()
@click.option("--tools", "module", help="Python file or module whose @tool functions the agents get")
@click.option("--concurrency", type=int, help="sessions at once")
@world_options
@asynchronous
async def worker(module: str | None, **flags: Any) -> None:
    """Claim and drive due sessions. Ctrl-C hands them back."""
    from harness_durable.cli.tools import load_tools
    from harness_durable.runtime.equipment import Equipment
    from harness_durable.runtime.worker import Worker
    from harness_durable.settings import resolve
    from harness_durable.worlds import open_world, redact

    settings = resolve(flags).settings
    equipment = Equipment(settings, tuple(load_tools(module)))
    equipment.check_provider()
    check_run_dir(settings.run_dir)
    told = Log("")
    told.setFormatter(logging.Formatter("%(asctime)s %(message)s"))
    logging.basicConfig(level=logging.INFO, handlers=[told], force=True)
    store = await open_world(settings.world, settings.app)
    try:
        async with Worker.open(store, equipment) as found:
            say(f"worker {found.owner.worker[:8]} serves app {settings.app!r} on {redact(settings.world)}")
            await found.serve()
    finally:
        await equipment.aclose()
        await store.aclose()
