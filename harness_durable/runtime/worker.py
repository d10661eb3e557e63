"""A worker: claims sessions and drives them under its lease. The process may die at any point of it.

It serves programs (``api``) as well as the worker service (``service``): they say which session, it drives.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from functools import partial
from typing import TypeVar

import anyio

from harness_durable import clock
from harness_durable.errors import LeaseLost, NotFound, StorageUnavailable
from harness_durable.journal import Known
from harness_durable.runtime.contact import Contact
from harness_durable.runtime.driver import UNTIL_IDLE, Driver, Terms
from harness_durable.runtime.equipment import Equipment
from harness_durable.runtime.groups import beside, heaviest
from harness_durable.runtime.lease import Lease
from harness_durable.world import Claim, Owner, World

log = logging.getLogger("harness_durable.worker")

GIVE_BACK_SECONDS = 5.0
"""How often what could not be given back is tried again."""

Claims = TypeVar("Claims", Claim, list[Claim])


class Worker:
    """Use it within ``Worker.open``. One per process and World. ``driving`` are the sessions that it drives
    just now; ``contact`` tells whether the store answers."""

    def __init__(self, world: World, equipment: Equipment) -> None:
        self.world, self.equipment = world, equipment
        self.contact = Contact()
        self.driving: dict[str, Driver] = {}
        seconds = equipment.settings.lease_seconds
        self._lease = Lease(world, seconds, self.contact, lost=self._stop_driving)
        self._ours: set[Claim] = set()
        self._scopes: set[anyio.CancelScope] = set()
        self._done: dict[Claim, int | None] = {}
        self._keeps = False

    @property
    def holds_lease(self) -> bool:
        """Whether it may claim just now."""
        return self._lease.is_held

    @property
    def owner(self) -> Owner:
        """Who we are in the store; another one after a lease was lost."""
        return self._lease.owner

    @classmethod
    @asynccontextmanager
    async def open(cls, world: World, equipment: Equipment) -> AsyncGenerator[Worker]:
        """Register, keep the lease while the body runs, and leave."""
        worker = cls(world, equipment)
        await worker._lease.begin()
        try:
            async with beside() as tasks:
                tasks.start_soon(worker._lease.keep)
                tasks.start_soon(worker._keep_giving_back)
                yield worker
        finally:
            with anyio.CancelScope(shield=True):
                await worker._lease.end(stay=worker._keeps)

    async def drive(
        self,
        session: str,
        *,
        equipment: Equipment | None = None,
        take_over: bool = False,
        known: Known | None = None,
    ) -> None:
        """Claim one session by name and drive it until it is idle. ``equipment`` is this session's, if it
        needs other tools than the worker's own; ``known`` is what the process knows of it already.

        Raises ``SessionBusy``, what ``Driver.open`` and ``Driver.run`` raise, and ``LeaseLost``.
        """
        await self._lease.held()
        claim = await self._claimed(
            lambda owner: self.world.claim_session(owner, session, take_over=take_over)
        )
        self._ours.add(claim)
        await self.drive_claimed(claim, equipment or self.equipment, known=known)

    async def claim(self, limit: int) -> list[Claim]:
        """Sessions that are due, at most ``limit``; none while there is no lease to hold them by. Raises
        ``StorageUnavailable``."""
        if not self.holds_lease:
            return []
        claims = await self._claimed(
            lambda owner: self.contact.ask(lambda: self.world.claim(owner, limit), need="queue")
        )
        self.contact.claimed = clock.monotonic()
        self._ours.update(claims)
        return claims

    async def _claimed(self, claim: Callable[[Owner], Awaitable[Claims]]) -> Claims:
        """What was claimed under a lease that was lost meanwhile is not driven: nobody renews it."""
        owner = self.owner
        claims = await claim(owner)
        if owner != self.owner or not self.holds_lease:
            raise LeaseLost("what was just claimed is not driven; it is taken up again from the log")
        return claims

    async def drive_claimed(
        self, claim: Claim, equipment: Equipment, terms: Terms = UNTIL_IDLE, known: Known | None = None
    ) -> None:
        """Drive a session that was claimed."""
        if claim not in self._ours:
            raise _lost(claim)
        due: int | None = None
        driver: Driver | None = None
        with anyio.CancelScope() as scope:
            self._scopes.add(scope)
            try:
                driver = await Driver.open(
                    self.world, claim, self.owner, equipment, lambda: scope.cancel_called, terms, known
                )
                self.driving[claim.session] = driver
                await driver.run()
            except Exception as trouble:
                cause = heaviest(trouble) if isinstance(trouble, BaseExceptionGroup) else trouble
                due = terms.later(cause) if isinstance(cause, Exception) else None
                if cause is trouble:
                    raise
                raise cause from trouble
            except BaseExceptionGroup as group:
                raise heaviest(group) from group
            finally:
                self._scopes.discard(scope)
                self._ours.discard(claim)
                self.driving.pop(claim.session, None)
                if driver is not None and driver.kept:
                    self._keeps = True
                else:
                    self._done[claim] = due
                with anyio.CancelScope(shield=True):
                    await self._give_back([claim])
        if scope.cancelled_caught:
            raise _lost(claim)

    async def _keep_giving_back(self) -> None:
        """A task beside the lease's. What the store did not let us give back would stay ours, driven by
        nobody, as long as we live."""
        while True:
            await clock.sleep(GIVE_BACK_SECONDS)
            await self._give_back(tuple(self._done))

    async def _give_back(self, claims: Sequence[Claim]) -> None:
        """Release what is driven no more."""
        for claim in claims:
            if claim not in self._done:
                continue
            due = self._done[claim]
            try:
                await self.contact.ask(partial(self.world.release, claim.session, claim.epoch, due))
            except NotFound:
                pass  # it was deleted meanwhile
            except StorageUnavailable as trouble:
                log.warning("session %s could not be given back yet: %s", claim.session, trouble)
                return
            self._done.pop(claim, None)

    async def _stop_driving(self) -> None:
        self._ours.clear()
        for scope in tuple(self._scopes):
            scope.cancel()
        while self._scopes:
            await clock.sleep(0.05)


def _lost(claim: Claim) -> LeaseLost:
    return LeaseLost(f"session {claim.session!r} is driven no more; it is taken up again from the log")
