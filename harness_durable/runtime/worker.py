"""A worker: claims sessions, drives them, keeps its lease. The process may die at any point of it.

A worker that cannot renew its lease stops driving after two thirds of it, by its own monotonic clock, before
anybody else may think it dead. It then registers anew, as another worker, as soon as the store is back.
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
from harness_durable.errors import HarnessDurableError, LeaseLost, NotFound, StorageUnavailable
from harness_durable.runtime.driver import Driver
from harness_durable.runtime.equipment import Equipment
from harness_durable.runtime.groups import beside, heaviest
from harness_durable.world import Claim, Owner, World

log = logging.getLogger("harness_durable.worker")

MOST_PATIENT = 60.0
"""Seconds. The longest pause between two tries at a session that cannot be driven now, or at a store."""


class Worker:
    """Use it within ``Worker.open``. One per process and World."""

    def __init__(self, world: World, equipment: Equipment, owner: Owner, lease: float) -> None:
        self.world, self.equipment, self.owner, self.lease = world, equipment, owner, lease
        self._drivers: set[anyio.CancelScope] = set()
        self._done: dict[Claim, int | None] = {}
        self._pauses: dict[str, float] = {}

    @classmethod
    @asynccontextmanager
    async def open(cls, world: World, equipment: Equipment) -> AsyncGenerator[Worker]:
        """Register, keep the lease while the body runs, and leave."""
        lease = equipment.settings.lease_seconds
        worker = cls(world, equipment, _owner(), lease)
        await world.register(worker.owner, lease)
        try:
            async with beside() as tasks:
                tasks.start_soon(worker._keep_lease)
                yield worker
        finally:
            with anyio.CancelScope(shield=True):
                await worker._unregister()

    async def drive(
        self, session: str, *, equipment: Equipment | None = None, take_over: bool = False
    ) -> None:
        """Claim one session by name and drive it until it is idle. ``equipment`` is this session's, if it
        needs other tools than the worker's own.

        Raises ``SessionBusy``, what ``Driver.open`` and ``Driver.run`` raise, and ``LeaseLost``.
        """
        claim = await self.world.claim_session(self.owner, session, take_over=take_over)
        await self._drive(claim, equipment or self.equipment)

    async def serve(self) -> None:
        """Drive whatever is due, for ever, up to ``concurrency`` sessions at once. One session that cannot be
        driven is tried again later and later, and holds up no other."""
        slots = anyio.CapacityLimiter(self.equipment.settings.concurrency)
        pause = 0.1
        async with beside() as tasks:
            while True:
                try:
                    await self._fill(tasks, slots)
                    await self.world.wait_due(1.0)
                    pause = 0.1
                except StorageUnavailable as trouble:
                    log.warning("no sessions can be claimed: %s", trouble)
                    await clock.sleep(pause)
                    pause = min(pause * 2, MOST_PATIENT)

    async def _fill(self, tasks: TaskGroup, slots: anyio.CapacityLimiter) -> None:
        free = int(slots.available_tokens)
        for claim in await self.world.claim(self.owner, free) if free else []:
            await slots.acquire_on_behalf_of(claim)
            tasks.start_soon(self._drive_one, claim, slots)

    async def _drive_one(self, claim: Claim, slots: anyio.CapacityLimiter) -> None:
        try:
            await self._drive(claim, self.equipment, back_off=True)
            self._pauses.pop(claim.session, None)
        except Exception as trouble:
            if not isinstance(trouble, HarnessDurableError):
                log.exception("session %s", claim.session)
            log.warning("session %s is tried again later: %s", claim.session, trouble)
        finally:
            slots.release_on_behalf_of(claim)

    async def _drive(self, claim: Claim, equipment: Equipment, *, back_off: bool = False) -> None:
        """With ``back_off``, a session that cannot be driven is due again only after a pause, for all
        workers; but whoever asks for it by name, or sends it a message, has it tried at once."""
        due: int | None = None
        with anyio.CancelScope() as scope:
            self._drivers.add(scope)
            try:
                driver = await Driver.open(
                    self.world, claim, self.owner, equipment, lambda: scope.cancel_called
                )
                await driver.run()
            except Exception as trouble:
                due = clock.now_ms() + self._pause(claim.session) if back_off else None
                if isinstance(trouble, BaseExceptionGroup):
                    raise heaviest(trouble) from trouble
                raise
            except BaseExceptionGroup as group:
                raise heaviest(group) from group
            finally:
                self._drivers.discard(scope)
                self._done[claim] = due
                with anyio.CancelScope(shield=True):
                    await self._give_back()
        if scope.cancelled_caught:
            raise LeaseLost(f"session {claim.session!r} is driven no more; it is taken up again from the log")

    def _pause(self, session: str) -> int:
        """In ms, twice as long with each failure."""
        pause = self._pauses[session] = min(self._pauses.get(session, 0.5) * 2, MOST_PATIENT)
        return int(pause * 1000)

    async def _give_back(self) -> None:
        """Release what is driven no more. Tried again with each renewal: what the store did not let us give
        back would stay ours, driven by nobody, as long as we live."""
        for claim, due in tuple(self._done.items()):
            try:
                await self.world.release(claim.session, claim.epoch, due)
            except NotFound:
                pass  # it was deleted meanwhile
            except StorageUnavailable as trouble:
                log.warning("session %s could not be given back yet: %s", claim.session, trouble)
                return
            self._done.pop(claim, None)

    # -------------------------------------------------------------------------------------- lease

    async def _keep_lease(self) -> None:
        third = self.lease / 3
        renewed, pause = clock.monotonic(), third
        while True:
            await clock.sleep(pause)
            reach("lease.renewing")
            asked = clock.monotonic()
            try:
                with anyio.fail_after(third):
                    await self.world.renew(self.owner)
                renewed, pause = asked, third
                await self._give_back()
            except (StorageUnavailable, TimeoutError) as trouble:
                log.warning("the lease could not be renewed: %s", trouble)
                pause = third / 8
            if clock.monotonic() - renewed > 2 * third:
                await self._begin_anew(clock.monotonic() - renewed)
                renewed, pause = clock.monotonic(), third

    async def _begin_anew(self, silent: float) -> None:
        """Nobody heard of us for too long. Stop driving, leave the harnesses to whoever has their sessions by
        now, and come back as another worker."""
        log.warning("no renewal for %.0f s: this worker stops driving until the store is back", silent)
        for scope in tuple(self._drivers):
            scope.cancel()
        while self._drivers:
            await clock.sleep(0.05)
        pause = 0.1
        while True:
            fresh = _owner()
            try:
                await self.world.register(fresh, self.lease)
            except StorageUnavailable:
                await clock.sleep(pause)
                pause = min(pause * 2, MOST_PATIENT)
                continue
            before, self.owner = self.owner, fresh
            log.warning("the store is back; worker %s goes on as %s", before.worker[:8], fresh.worker[:8])
            return

    async def _unregister(self) -> None:
        try:
            await self.world.unregister(self.owner)
        except StorageUnavailable as trouble:
            log.warning("this worker could not say goodbye, its lease will end by itself: %s", trouble)


def _owner() -> Owner:
    return Owner(str(uuid.uuid4()), socket.gethostname(), os.getpid())
