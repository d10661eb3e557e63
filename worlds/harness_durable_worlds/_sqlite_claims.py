"""Who drives what: finding sessions that are due and free, and taking them.

Looking is done by readers and writes nothing, so that an idle worker costs the disk nothing. Taking is done
within ``begin immediate`` and looks again, so that of racing claimers exactly one finds the session free.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Sequence
from typing import cast

from harness_durable import clock
from harness_durable.errors import NotFound, SessionBusy
from harness_durable.world import NOW, Claim, Owner, claim_record
from harness_durable_worlds import _sqlite_log as log
from harness_durable_worlds._sqlite_db import Db
from harness_durable_worlds._sqlite_sql import SQL

LeaseLeft = Callable[[str], float | None]
"""Seconds that a worker's lease still has; ``None`` for a dead worker."""


def is_alive(lease_left: LeaseLeft, worker: str) -> bool:
    left = lease_left(worker)
    return left is not None and left > 0


def candidates(db: Db, app: str, limit: int, lease_left: LeaseLeft) -> list[str]:
    """Sessions that are due and free, longest due first."""
    return [session for session, _ in waiting(db, app, limit, lease_left)]


def waiting(db: Db, app: str, limit: int, lease_left: LeaseLeft) -> list[tuple[str, int]]:
    """The same, each with the time at which it was due."""
    now = clock.now_ms()
    found = db.execute(SQL["select_free_due"], (app, now, limit)).fetchall()
    for worker in _owners(db, app):
        if not is_alive(lease_left, worker):
            found += db.execute(SQL["select_owned_due"], (app, worker, now, limit)).fetchall()
    return sorted(cast(list[tuple[str, int]], found), key=lambda each: (each[1], each[0]))[:limit]


def next_due(db: Db, app: str) -> int | None:
    """When the next free session is due, in ms; ``None`` if there is none."""
    found = db.execute(SQL["next_due"], (app,)).fetchone()
    return cast(int | None, found[0]) if found else None


def take(db: Db, app: str, owner: Owner, sessions: Sequence[str], lease_left: LeaseLeft) -> list[Claim]:
    """Those of ``sessions`` that are still due and free, claimed."""
    now, claims = clock.now_ms(), list[Claim]()
    for session in sessions:
        try:
            fields = log.row_fields(db, (app, session))
        except NotFound:
            continue
        due, worker = fields[3], fields[6]
        free = worker is None or not is_alive(lease_left, worker)
        if free and due is not None and due <= now:
            claims.append(_claim(db, (app, session), owner, fields, lease_left))
    return claims


def take_one(db: Db, key: log.Key, owner: Owner, lease_left: LeaseLeft, *, take_over: bool) -> Claim:
    fields = log.row_fields(db, key)
    check_free(key, fields, lease_left, take_over=take_over or fields[6] == owner.worker)
    return _claim(db, key, owner, fields, lease_left)


def check_free(
    key: log.Key, fields: log.RowFields, lease_left: LeaseLeft, *, take_over: bool = False
) -> None:
    """Raises ``SessionBusy`` if a live worker holds the session."""
    owner = log.owner_of(fields)
    if owner is not None and not take_over:
        left = lease_left(owner.worker)
        if left is not None and left > 0:
            raise SessionBusy(key[1], str(owner), left)


def held(db: Db, app: str, claims: Sequence[Claim]) -> bool:
    """Whether these claims are the sessions' newest."""
    return all(
        (found := db.execute(SQL["select_head"], (app, claim.session)).fetchone()) is not None
        and found[1] == claim.epoch
        for claim in claims
    )


def release(db: Db, app: str, claims: Sequence[tuple[str, int]], due: int | None = None) -> None:
    """Give (session, epoch) back where that epoch is still the session's. With ``due``, those that are not
    parked are due then."""
    due = clock.now_ms() if due == NOW else due
    for session, epoch in claims:
        db.execute(SQL["release"], (due, app, session, epoch))


def _owners(db: Db, app: str) -> list[str]:
    """Workers that own due sessions; one step in the index for each, however many sessions they have."""
    owners: list[str] = []
    while found := db.execute(SQL["next_owner"], (app, owners[-1] if owners else "")).fetchone():
        owners.append(cast(str, found[0]))
    return owners


def _claim(db: Db, key: log.Key, owner: Owner, fields: log.RowFields, lease_left: LeaseLeft) -> Claim:
    head, epoch = fields[0] + 1, fields[1] + 1
    previous = log.owner_of(fields)
    displaced = previous is not None and lease_left(previous.worker) is not None
    record = claim_record(owner, epoch, uuid.uuid4().hex, displaced=displaced)
    log.add(db, key, head - 1, epoch, record)
    now = clock.now_ms()
    db.execute(SQL["claim"], (head, epoch, now, owner.worker, owner.host, owner.pid, *key))
    return Claim(key[1], epoch, head, previous, displaced, now)
