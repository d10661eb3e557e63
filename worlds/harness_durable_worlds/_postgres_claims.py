"""Who drives what: finding sessions that are due and free, taking them, and giving them back.

Looking locks nothing, so that an idle worker costs the server nothing. Taking locks the rows first, skipping
those that another claimer has locked, then appends the claim records at head + 1, in one transaction. What
surprises: a COMMIT whose answer was lost may still happen after a look that did not find it. So such claims
are given back, by their record's id, again and again for a while (``Doubts``).
"""

from __future__ import annotations

import uuid
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import NamedTuple, cast

import msgspec

from harness_durable import clock
from harness_durable.errors import HarnessDurableError, SessionBusy
from harness_durable.world import Claim, Owner, claim_record
from harness_durable_worlds import _postgres_log as log
from harness_durable_worlds._checks import no_session
from harness_durable_worlds._postgres_db import LOCK_SECONDS, Connection, Row, driver
from harness_durable_worlds._postgres_errors import TROUBLE
from harness_durable_worlds._postgres_liveness import Judge, Verdict

Verdicts = Mapping[str, Verdict]
NOBODY: Verdicts = {}
Planned = tuple[Claim, str]
"""A claim, and the id of its record."""

_DOUBT_SECONDS = 120.0
_BEGIN = (
    f"begin; set local lock_timeout = '{LOCK_SECONDS:.0f}s'; "
    f"set local idle_in_transaction_session_timeout = '{LOCK_SECONDS:.0f}s'"
)


class Doubts:
    """Claims of which nobody knows whether they happened, and that nobody drives."""

    def __init__(self) -> None:
        self._claims: dict[str, tuple[Claim, float]] = {}

    def add(self, planned: Sequence[Planned]) -> None:
        until = clock.monotonic() + _DOUBT_SECONDS
        self._claims |= {record: (claim, until) for claim, record in planned}

    async def give_back(self, db: Connection, app: str) -> None:
        """Free those that have happened. Called before each claim and with each renewal."""
        if not self._claims:
            return
        claims = [(claim.session, claim.head, record) for record, (claim, _) in self._claims.items()]
        await db.write("give_back", app, *map(list, zip(*claims, strict=True)))
        now = clock.monotonic()
        self._claims = {name: each for name, each in self._claims.items() if each[1] > now}


@asynccontextmanager
async def transaction(db: Connection) -> AsyncGenerator[None]:
    """Begun and committed around the body; rolled back if it raises. A process that is stopped within it
    loses it after a while, so that its locks do not outlive anybody's patience."""
    await db.run(_BEGIN)
    try:
        yield
    except (HarnessDurableError, driver.PostgresError):
        if db.usable:
            try:
                await db.run("rollback")
            except TROUBLE:
                db.sever()
        raise
    except BaseException:  # no answer, or nobody waits for one: the server rolls back by itself
        db.sever()
        raise
    await db.run("commit")


# ------------------------------------------------------------------------------------------- looking


async def verdicts(db: Connection, app: str, judge: Judge) -> Verdicts:
    return judge.verdicts(await db.read("workers", app))


async def dead_owners(db: Connection, app: str, judge: Judge) -> list[str]:
    """Owners of due sessions that are not alive; without a row, they have left."""
    owners = [cast(str, row[0]) for row in await db.read("owners", app)]
    if not owners:
        return []
    found = await verdicts(db, app, judge)
    return [owner for owner in owners if owner not in found or not found[owner].alive]


class Look(NamedTuple):
    """``left``: seconds until a session can be claimed, 0 or less if one can be now; ``None`` if none is."""

    left: float | None
    dead: list[str]


async def look(db: Connection, app: str, judge: Judge) -> Look:
    waits = [await db.read("free_due", app)]
    if dead := await dead_owners(db, app, judge):
        waits.append(await db.read("owned_due", app, dead))
    found = [cast(int, rows[0][0]) for rows in waits if rows[0][0] is not None]
    return Look(min(found) / 1000 if found else None, dead)


async def waiting(db: Connection, app: str, limit: int, judge: Judge) -> list[tuple[str, int]]:
    """See ``harness_durable.world.TellsWaiting``."""
    rows = await db.read("waiting_free", app, limit)
    if dead := await dead_owners(db, app, judge):
        rows = [*rows, *await db.read("waiting_owned", app, limit, dead)]
    return [(cast(str, row[0]), cast(int, row[1])) for row in _longest_due(rows)[:limit]]


def _longest_due(rows: Sequence[Row]) -> Sequence[Row]:
    """Rows whose last column is ``due_at`` and whose first is the session."""
    return sorted(rows, key=lambda row: (cast(int, row[-1]), cast(str, row[0])))


def check_free(session: str, owner: Owner | None, found: Verdicts) -> None:
    """Raises ``SessionBusy`` if a live worker holds the session."""
    if owner is not None and (verdict := found.get(owner.worker)) and verdict.alive:
        raise SessionBusy(session, str(owner), verdict.left)


# -------------------------------------------------------------------------------------------- taking


class Taker:
    """One call of ``claim`` or ``claim_session``, which may be tried several times."""

    def __init__(self, app: str, owner: Owner, judge: Judge, doubts: Doubts) -> None:
        self._app, self._owner, self._judge, self._doubts = app, owner, judge, doubts
        self._committing: list[Planned] = []

    async def due(self, db: Connection, limit: int) -> list[Claim]:
        """Up to ``limit`` sessions that are due and free, longest due first."""
        if (settled := await self._settled(db)) is not None:
            return settled
        left, dead = await look(db, self._app, self._judge)
        if left is None or left > 0:
            return []

        async def lock() -> Sequence[Row]:
            rows = await db.write("lock_free", self._app, limit)
            if dead:
                rows = [*rows, *await db.write("lock_owned", self._app, limit, dead)]
            return _longest_due(rows)[:limit]

        return await self._take(db, lock)

    async def one(self, db: Connection, session: str, *, take_over: bool) -> list[Claim]:
        """This session. Raises ``NotFound`` and ``SessionBusy``."""
        if settled := await self._settled(db):
            return settled

        async def lock() -> Sequence[Row]:
            rows = await db.write("lock_one", self._app, session)
            if not rows:
                raise no_session(session)
            owner = log.owner_of(rows[0][3:6])
            if not take_over and owner is not None and owner.worker != self._owner.worker:
                check_free(session, owner, await verdicts(db, self._app, self._judge))
            return rows

        return await self._take(db, lock)

    async def _take(self, db: Connection, lock: Callable[[], Awaitable[Sequence[Row]]]) -> list[Claim]:
        async with transaction(db):
            rows = await lock()
            planned = self._plan(rows, await verdicts(db, self._app, self._judge)) if rows else []
            taken = await self._write(db, planned)
            self._committing = taken
        self._committing = []
        return [claim for claim, _ in taken]

    def _plan(self, rows: Sequence[Row], found: Verdicts) -> list[Planned]:
        planned: list[Planned] = []
        for row in rows:
            session, head, epoch = cast("tuple[str, int, int]", tuple(row[:3]))
            previous = log.owner_of(row[3:6])
            verdict = None if previous is None else found.get(previous.worker)
            displaced = verdict is not None and not verdict.dead
            claim = Claim(session, epoch + 1, head + 1, previous, displaced)
            planned.append((claim, uuid.uuid4().hex))
        return planned

    async def _write(self, db: Connection, planned: Sequence[Planned]) -> list[Planned]:
        """Those that were written: all of them, since their rows are locked."""
        if not planned:
            return []
        records = [
            (claim.session, stored)
            for claim, name in planned
            for stored in log.numbered(
                [claim_record(self._owner, claim.epoch, name, displaced=claim.displaced)],
                claim.head - 1,
                claim.epoch,
            )
        ]
        owner = self._owner
        rows = await db.write(
            "take", self._app, *log.columns(self._app, records), owner.worker, owner.host, owner.pid
        )
        times = {cast(str, row[0]): cast(int, row[1]) for row in rows}
        return [
            (msgspec.structs.replace(claim, now=times[claim.session]), name)
            for claim, name in planned
            if claim.session in times
        ]

    async def _settled(self, db: Connection) -> list[Claim] | None:
        """What an earlier try has committed, if its answer was lost; ``None`` if nothing. Gives back what
        nobody drives, on the way."""
        planned, self._committing = self._committing, []
        if planned:
            keys = [(claim.session, claim.head, name) for claim, name in planned]
            landed = await db.read("landed", self._app, *map(list, zip(*keys, strict=True)))
            if {row[0] for row in landed} == {claim.session for claim, _ in planned}:
                return [claim for claim, _ in planned]
            self._doubts.add(planned)
        await self._doubts.give_back(db, self._app)
        return None

    def give_up(self) -> None:
        """Nobody will hear of what may have been committed."""
        self._doubts.add(self._committing)


async def put_back(db: Connection, app: str, claims: Sequence[Claim]) -> None:
    """Release claims that nobody heard of."""
    for claim in claims:
        await db.write("release", app, claim.session, claim.epoch, None, None)
