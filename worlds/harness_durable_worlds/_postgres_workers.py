"""The workers of this process: their rows, which say until when they live and by which connection."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import cast

from harness_durable.errors import HarnessDurableError, LeaseLost
from harness_durable.world import Owner
from harness_durable_worlds._postgres_clock import ServerClock
from harness_durable_worlds._postgres_db import Connection, Identity
from harness_durable_worlds._postgres_lane import Lane
from harness_durable_worlds._postgres_liveness import Judge, this_process

_FORGET_MS = 30 * 24 * 3_600_000
"""How long the row of a worker that died is kept: until then, whoever takes its sessions knows of it."""


class Workers:
    """``identity`` gives the connection that ends with this process, if there is one now."""

    def __init__(
        self, app: str, lane: Lane, identity: Callable[[], Identity | None], clock: ServerClock
    ) -> None:
        self._app, self._lane, self._identity, self._clock = app, lane, identity, clock
        self._leases: dict[str, float] = {}

    async def register(self, owner: Owner, lease: float) -> None:
        self._leases[owner.worker] = lease
        try:
            await self._lane.do(lambda db: db.write("forget_workers", self._app, _FORGET_MS))
            await self._lane.do(lambda db: self._write(db, "register", owner.worker))
        except BaseException:
            self._leases.pop(owner.worker, None)  # it will try as another one; nobody shall renew this one
            raise

    async def renew(self, owner: Owner) -> None:
        """Raises ``LeaseLost`` for a worker that this World did not register, or whose row is gone."""
        known = owner.worker in self._leases
        if not known or not await self._lane.do(lambda db: self._write(db, "renew", owner.worker)):
            self._leases.pop(owner.worker, None)
            raise LeaseLost(f"{owner} is not known here; register as another worker and go on")

    async def unregister(self, owner: Owner) -> None:
        self._leases.pop(owner.worker, None)
        await self._lane.do(lambda db: db.write("unregister", self._app, [owner.worker]))

    async def stay(self, owner: Owner) -> None:
        """See ``harness_durable.world.KeepsSessions``: its row stays, and names no connection whose
        end would tell other hosts that it is dead."""
        lease = self._leases.pop(owner.worker, None)
        if lease is not None:
            row = (self._app, owner.worker, this_process(), round(lease * 1000), None, None, None)
            await self._lane.do(lambda db: db.write("renew", *row))

    async def all_leave(self) -> bool:
        """At the end; whether any has. A server that is away will see their leases end."""
        workers, self._leases = list(self._leases), {}
        if workers:
            try:
                await self._lane.do(lambda db: db.write("unregister", self._app, workers))
            except HarnessDurableError:
                return False
        return bool(workers)

    async def forget_dead(self, judge: Judge) -> None:
        """Remove the rows of workers that are not alive."""

        async def work(db: Connection) -> None:
            found = judge.verdicts(await db.read("workers", self._app))
            dead = [worker for worker, verdict in found.items() if not verdict.alive]
            await db.write("unregister", self._app, dead)

        await self._lane.do(work)

    def soon(self) -> None:
        """Write all rows anew, as soon as possible: their connection has changed."""
        for worker in list(self._leases):
            self._lane.soon(partial(self._write, statement="renew", worker=worker))

    async def _write(self, db: Connection, statement: str, worker: str) -> bool:
        """Whether there is such a worker."""
        lease = self._leases.get(worker)
        if lease is None:
            return False  # it has left meanwhile
        identity = self._identity()
        backend = (identity.pid, identity.start, identity.server_start) if identity else (None, None, None)
        rows = await db.write(statement, self._app, worker, this_process(), round(lease * 1000), *backend)
        if rows:
            self._clock.met(cast(int, rows[0][0]))
        return bool(rows)
