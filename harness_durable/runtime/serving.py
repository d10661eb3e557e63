"""A worker service with all that stands around it: lease, health, supervisor, guard."""

from __future__ import annotations

from collections.abc import Callable

from harness_durable.runtime.equipment import Equipment
from harness_durable.runtime.groups import beside
from harness_durable.runtime.health import Health
from harness_durable.runtime.lives import LEAVE_SECONDS
from harness_durable.runtime.service import Service
from harness_durable.runtime.supervised import Guard, Supervisor
from harness_durable.runtime.worker import Worker
from harness_durable.settings import Settings
from harness_durable.world import ANSWER_SECONDS, World


def guard_for(settings: Settings) -> Guard:
    """What ends a worker with these settings if it hangs: later than it would end by itself."""
    return Guard(settings.store_patience_seconds + 3 * ANSWER_SECONDS)


async def serve(world: World, equipment: Equipment, guard: Guard, ready: Callable[[Service], None]) -> None:
    """Serve until ``stop`` was said to the service that ``ready`` gets, and all is handed back. Called by the
    command.

    Raises ``StorageUnavailable`` when a new start is better than going on, ``BadSetting`` for an address of
    health that cannot be used. However it ends, it ends: what hangs on the way out is cut off by the guard.
    """
    settings, supervisor = equipment.settings, Supervisor()
    leave = LEAVE_SECONDS + ANSWER_SECONDS

    def alive() -> None:
        guard.beat()
        supervisor.alive()

    def stopping() -> None:
        guard.leave(settings.drain_seconds + leave)
        supervisor.stopping()

    async with Worker.open(world, equipment) as worker, beside() as tasks:
        service = Service(worker, alive=alive, stopping=stopping)
        health = Health(service)
        if settings.health:
            await tasks.start(health.serve, settings.health)
        tasks.start_soon(health.tell)
        ready(service)
        supervisor.ready()
        try:
            await service.run()
        finally:
            guard.leave(leave)
