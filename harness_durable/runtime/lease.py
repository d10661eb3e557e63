"""Keeping a worker's lease: the right to its sessions, as long as the store hears of it.

A worker that cannot renew its lease stops driving after two thirds of it, by its own monotonic clock, before
anybody else may think it dead. It then registers anew, as another worker, as soon as the store is back; until
then it claims nothing.
"""

from __future__ import annotations

import logging
import os
import random
import socket
import uuid
from collections.abc import Awaitable, Callable
from functools import partial

import anyio

from harness_durable import clock
from harness_durable.crashpoints import reach
from harness_durable.errors import LeaseLost, StorageUnavailable
from harness_durable.runtime.contact import Contact
from harness_durable.world import KeepsSessions, Owner, World

log = logging.getLogger("harness_durable.worker")

STORE_PAUSE = 2.0
"""Seconds. The longest pause between two tries at a store that is away: once it is back, no session shall
wait for its worker."""


class Lease:
    """``lost`` is called when driving has to stop, and returns when it has. From then on nothing may be
    claimed or driven, until ``held`` returns."""

    def __init__(
        self, world: World, seconds: float, contact: Contact, *, lost: Callable[[], Awaitable[None]]
    ) -> None:
        self.owner: Owner = _owner()
        self._world, self._contact, self._lost = world, contact, lost
        self._seconds, self._third = seconds, seconds / 3
        self._renewed = clock.monotonic()
        self._gate = anyio.Event()
        self._anew = anyio.Lock()

    @property
    def is_held(self) -> bool:
        return self._gate.is_set()

    async def held(self) -> None:
        """Return when sessions may be claimed as ``owner``."""
        while not self.is_held:
            await self._gate.wait()

    async def begin(self) -> None:
        """Make this worker known. Raises ``StorageUnavailable``."""
        await self._register(self.owner)
        self._renewed = clock.monotonic()
        self._gate.set()

    async def keep(self) -> None:
        """Renew for ever; a task of the worker. Whether the lease still holds is a question to our own clock,
        asked beside whatever the store is being asked."""
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._watch)
            await self._renew()

    async def end(self, *, stay: bool = False) -> None:
        """Say goodbye: whatever is still owned is free at once. With ``stay`` it is for whoever comes next on
        this host, as far as the World can see to that."""
        try:
            if not stay:
                await self._contact.ask(lambda: self._world.unregister(self.owner))
            elif isinstance(self._world, KeepsSessions):
                await self._contact.ask(partial(self._world.stay, self.owner))
        except StorageUnavailable as trouble:
            log.warning("this worker could not say goodbye, its lease will end by itself: %s", trouble)

    async def _renew(self) -> None:
        pause = self._third
        while True:
            await clock.sleep(pause)
            await self.held()
            reach("lease.renewing")
            owner, asked, pause = self.owner, clock.monotonic(), self._third
            try:
                await self._contact.ask(partial(self._world.renew, owner), self._third, need="lease")
            except LeaseLost as lost:
                await self._begin_anew(owner, str(lost))
            except StorageUnavailable as trouble:
                log.warning("the lease could not be renewed: %s", trouble)
                pause = self._third / 8
            else:
                if owner == self.owner and self.is_held:
                    self._renewed = self._contact.renewed = asked

    async def _watch(self) -> None:
        while True:
            owner, silent = self.owner, clock.monotonic() - self._renewed
            if silent < 2 * self._third:
                await clock.sleep(2 * self._third - silent)
            else:
                await self._begin_anew(owner, f"no renewal for {silent:.0f} s")

    async def _begin_anew(self, owner: Owner, why: str) -> None:
        """Nobody heard of us for too long, or the store forgot us. Stop driving, leave the harnesses to
        whoever has their sessions by now, and come back as another worker."""
        async with self._anew:
            if owner != self.owner:
                return  # it was done meanwhile
            log.warning("%s: this worker stops driving until the store takes it", why)
            self._gate = anyio.Event()
            await self._lost()
            fresh = await self._registered_anew()
            await self._forget(owner)
            self.owner = fresh
            self._gate.set()
            log.warning("the store is back; worker %s goes on as %s", owner.worker[:8], fresh.worker[:8])

    async def _registered_anew(self) -> Owner:
        pause = 0.1
        while True:
            fresh, asked = _owner(), clock.monotonic()
            try:
                await self._register(fresh)
            except StorageUnavailable:
                await clock.sleep(pause * random.uniform(0.5, 1.0))
                pause = min(pause * 2, STORE_PAUSE)
            else:
                self._renewed = self._contact.renewed = asked
                return fresh

    async def _forget(self, before: Owner) -> None:
        """What we drove before, nobody drives any more: so whoever takes it up displaces nobody."""
        try:
            await self._contact.ask(partial(self._world.unregister, before), self._third / 2)
        except StorageUnavailable as trouble:
            log.warning("worker %s will be forgotten when its lease ends: %s", before.worker[:8], trouble)

    async def _register(self, owner: Owner) -> None:
        await self._contact.ask(lambda: self._world.register(owner, self._seconds), need="lease")


def _owner() -> Owner:
    return Owner(str(uuid.uuid4()), socket.gethostname(), os.getpid())
