"""A worker: claims sessions, drives them, keeps its lease. The process may die at any point of it.

A worker that cannot renew its lease stops itself after two thirds of it, by its own monotonic clock, before
anybody else may think it dead.
"""

from __future__ import annotations

import logging
import os
import socket
import uuid
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import anyio
from anyio.abc import TaskGroup

from harness_durable import clock
from harness_durable.crashpoints import reach
from harness_durable.errors import LeaseLost, SessionBusy, StaleEpoch, StorageUnavailable, WriterFenced
from harness_durable.runtime.driver import Driver
from harness_durable.runtime.equipment import Equipment
from harness_durable.runtime.groups import heaviest
from harness_durable.world import Claim, Owner, World

log = logging.getLogger("harness_durable.worker")


class Worker:
    """Use it within ``Worker.open``. One per process and World."""

    def __init__(self, world: World, equipment: Equipment, owner: Owner, lease: float) -> None:
        self.world, self.equipment, self.owner, self.lease = world, equipment, owner, lease
        self.leaving = False
        self._lease_lost = False
        self._done: set[Claim] = set()

    @classmethod
    @asynccontextmanager
    async def open(cls, world: World, equipment: Equipment) -> AsyncGenerator[Worker]:
        """Register, keep the lease while the body runs, and leave. Raises ``LeaseLost`` out of the body."""
        lease = equipment.settings.lease_seconds
        owner = Owner(str(uuid.uuid4()), socket.gethostname(), os.getpid())
        worker = cls(world, equipment, owner, lease)
        await world.register(owner, lease)
        try:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(worker._keep_lease)
                try:
                    yield worker
                finally:
                    worker.leaving = True
                    tasks.cancel_scope.cancel()
        except BaseExceptionGroup as group:
            raise heaviest(group) from group
        finally:
            with anyio.CancelScope(shield=True):
                await world.unregister(owner)

    async def drive(
        self, session: str, *, equipment: Equipment | None = None, take_over: bool = False
    ) -> None:
        """Claim one session by name and drive it until it is idle. Raises ``SessionBusy``.

        ``equipment`` is this session's, if it needs other tools than the worker's own.
        """
        claim = await self.world.claim_session(self.owner, session, take_over=take_over)
        await self._drive(claim, equipment or self.equipment)

    async def serve(self) -> None:
        """Drive whatever is due, for ever, up to ``concurrency`` sessions at once."""
        slots = anyio.CapacityLimiter(self.equipment.settings.concurrency)
        async with anyio.create_task_group() as tasks:
            try:
                while True:
                    await self._fill(tasks, slots)
                    await self.world.wait_due(1.0)
            except anyio.get_cancelled_exc_class():
                self.leaving = True  # before our drivers hear of it
                raise

    async def _fill(self, tasks: TaskGroup, slots: anyio.CapacityLimiter) -> None:
        free = int(slots.available_tokens)
        for claim in await self.world.claim(self.owner, free) if free else []:
            await slots.acquire_on_behalf_of(claim)
            tasks.start_soon(self._drive_one, claim, slots)

    async def _drive_one(self, claim: Claim, slots: anyio.CapacityLimiter) -> None:
        try:
            await self._drive(claim, self.equipment)
        except (WriterFenced, StaleEpoch, StorageUnavailable, SessionBusy) as trouble:
            log.warning("session %s: %s", claim.session, trouble)
        finally:
            slots.release_on_behalf_of(claim)

    async def _drive(self, claim: Claim, equipment: Equipment) -> None:
        try:
            driver = await Driver.open(self.world, claim, self.owner, equipment, self._planned)
            await driver.run()
        except BaseExceptionGroup as group:
            raise heaviest(group) from group
        finally:
            self._done.add(claim)
            with anyio.CancelScope(shield=True):
                await self._give_back()

    async def _give_back(self) -> None:
        """Release what is driven no more. Tried again with each renewal: what the store did not let us give
        back would stay ours, driven by nobody, as long as we live."""
        for claim in tuple(self._done):
            await self.world.release(claim.session, claim.epoch)
            self._done.discard(claim)

    def _planned(self) -> bool:
        """Are we stopping because we want to? A worker that lost its lease leaves its harnesses alone."""
        return self.leaving and not self._lease_lost

    async def _keep_lease(self) -> None:
        renewed = clock.monotonic()
        while True:
            await clock.sleep(self.lease / 3)
            reach("lease.renewing")
            asked = clock.monotonic()
            try:
                with anyio.fail_after(self.lease / 3):
                    await self.world.renew(self.owner)
                    renewed = asked
                    await self._give_back()
            except (StorageUnavailable, TimeoutError) as trouble:
                log.warning("the lease could not be renewed: %s", trouble)
            if clock.monotonic() - renewed > self.lease * 2 / 3:
                self._lease_lost = True
                raise LeaseLost(
                    f"no renewal for {clock.monotonic() - renewed:.0f} s; this worker stopped driving, "
                    "start it again when the World can be reached"
                )
