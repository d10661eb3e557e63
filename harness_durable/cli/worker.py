"""``harness-durable worker``: drive whatever is due in this app, until told to stop."""

from __future__ import annotations

import logging
import signal
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import click

from harness_durable.cli.common import Log, asynchronous, importing, say, world_options

if TYPE_CHECKING:
    from harness_durable.runtime.service import Service


@click.command()
@click.option("--tools", "module", help="Python file or module whose @tool functions the agents get")
@click.option("--concurrency", type=int, help="sessions at once")
@click.option("--health", help="HOST:PORT for GET /healthz [default: nowhere]")
@click.option("--drain", "drain_seconds", type=float, help="seconds that turns get to settle at a stop")
@world_options
@asynchronous
async def worker(module: str | None, **flags: Any) -> None:
    """Claim and drive due sessions. Ctrl-C (SIGTERM) waits a little for turns to settle, then hands them
    back; again, at once. Neither uses up an attempt. Exit code 1: start it again."""
    with importing():
        from harness_durable.cli.tools import load_tools
        from harness_durable.runtime.equipment import Equipment
        from harness_durable.runtime.serving import guard_for, serve
        from harness_durable.settings import check_run_dir, resolve
        from harness_durable.worlds import open_world, redact

    settings = resolve(flags).settings
    equipment = Equipment(settings, tuple(load_tools(module)))
    equipment.check_provider()
    check_run_dir(settings.run_dir)
    told = Log("")
    told.setFormatter(logging.Formatter("%(asctime)s %(message)s"))
    logging.basicConfig(level=logging.INFO, handlers=[told], force=True)
    watched = guard_for(settings).start()
    store = await open_world(settings.world, settings.app)
    names: list[str] = []

    def ready(service: Service) -> None:
        names.append(service.worker.owner.worker[:8])
        say(f"worker {names[0]} serves app {settings.app!r} on {redact(settings.world)}")
        on_signals(service.stop)

    try:
        await serve(store, equipment, watched, ready)
        say(f"worker {names[0]} has stopped")
    finally:
        await equipment.aclose()
        await store.aclose()


def on_signals(stop: Callable[[], None]) -> None:
    """What would interrupt a command asks this one to stop, to its very end. A signal that was ignored stays
    ignored: Ctrl-C at a background job is for somebody else."""
    import asyncio

    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) != signal.SIG_IGN:
            asyncio.get_running_loop().add_signal_handler(number, stop)
