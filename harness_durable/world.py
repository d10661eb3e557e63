"""The contract of a World: where the logs of sessions live.

A log is a list of records, numbered 1, 2, 3 … without gaps. **The log fences itself**: ``append`` is
compare-and-set on the head, and a takeover's first act is to append a claim record with the next epoch at
head + 1. Whoever was slower finds the place taken. Leases only decide *when* somebody may try.

What surprises: a session's row is its own queue message. ``RowUpdate`` is written in the same commit as
the records, so that accepting a message and waking a worker can never come apart.

The numbered promises W1 to W14 are in ``harness_durable.testing.worlds``, with a check for each. All
methods raise ``StorageUnavailable`` when the store is out of reach, full or failing, ``NotFound`` for a
session that does not exist in this app, and ``LogTooNew`` for a store written by a newer version.

Every method but ``wait`` and ``wait_due``, which take as long as they are told, answers or raises within a
bounded time: a store that stalls is ``StorageUnavailable``, ``unclear`` for an append whose answer never
came. ``renew`` of a worker that the store does not know any more raises ``LeaseLost``.
"""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Collection, Mapping, Sequence
from typing import NamedTuple, Protocol, runtime_checkable

import msgspec

from harness_durable import clock
from harness_durable.errors import BadInput, DamagedLog

LEASE_SECONDS = 15.0
"""How long a worker that nobody hears of keeps its sessions. Renewed every third of it; a worker that could
not renew stops itself after two thirds, by its own monotonic clock."""

ANSWER_SECONDS = 30.0
"""How long a World may take for an answer. Far above any that works: after that it counts as away, and nobody
knows whether it has done what was asked."""

MAX_RECORD = 1 << 20
"""Largest body of one record. The journal moves whatever is over 32 KiB into blobs, so that this is far."""

MAX_BLOB = 256 << 20
"""Largest blob. Below the 1 GB field of Postgres and the 2 GB of SQLite, above any model's context."""

NOW = 0
"""In place of a time: at once. The store stamps it with its own clock, so that no writer's clock puts off
what it has accepted, and what is due at once is served in the order in which it came."""

_SESSION_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._@:+-]{0,127}")


class Record(msgspec.Struct, frozen=True):
    """What a writer hands in. ``id`` is unique and made by the writer: a record found in the log under the
    same id is the writer's own, which is how a lost answer heals. ``time`` is in ms, by its wall clock."""

    id: str
    kind: str
    time: int
    body: bytes


class StoredRecord(msgspec.Struct, frozen=True):
    """A record in the log. ``epoch`` is its writer's; 0 for a writer that does not drive the session."""

    seq: int
    epoch: int
    id: str
    kind: str
    time: int
    body: bytes


class Owner(msgspec.Struct, frozen=True):
    """A worker process. ``worker`` is a fresh UUID per boot of the process, never a host or pod name."""

    worker: str
    host: str
    pid: int

    def __str__(self) -> str:
        return f"pid {self.pid} on {self.host} (worker {self.worker[:8]})"


class RowUpdate(msgspec.Struct, frozen=True):
    """What the session's row says from now on, written in the same commit as the records.

    ``status`` is a word for lists. ``due`` is when a worker should look at the session (ms, wall clock), or
    ``NOW``; ``None`` parks it: no worker is woken, no restart touches it.
    """

    status: str
    due: int | None


class SessionRow(msgspec.Struct, frozen=True):
    """``owner`` is the worker that claimed last and has not released; ``owner_alive`` whether it is live."""

    session: str
    head: int
    epoch: int
    status: str
    due: int | None
    created: int
    updated: int
    owner: Owner | None
    owner_alive: bool


class Claim(msgspec.Struct, frozen=True):
    """The right to drive: ``epoch`` is ours, the claim record stands at ``head``.

    ``previous`` is the worker that claimed before and had not released. ``displaced``: it may still be alive,
    because its lease ended or the session was taken over by name, and its process is not known to be dead
    (this worker, if it claimed its own session again). What it started may still be acting. ``now`` is the
    time (ms) of the claim by the clock that the store judges by; 0 if it tells none.
    """

    session: str
    epoch: int
    head: int
    previous: Owner | None
    displaced: bool = False
    now: int = 0


class Salvage(NamedTuple):
    """What can still be read of a damaged log, and what cannot, in order."""

    records: list[StoredRecord]
    damages: list[DamagedLog]


class Description(msgspec.Struct, frozen=True):
    """What this World really guarantees here. ``warnings`` are whole sentences for ``doctor``."""

    name: str
    url: str
    durability: str
    notification: str
    reach: str
    details: Mapping[str, str] = {}
    warnings: tuple[str, ...] = ()


@runtime_checkable
class Remarks(Protocol):
    """What a World may offer beside the contract, for people who look at a session."""

    async def remarks(self, session: str) -> Sequence[str]:
        """Whole sentences about what is odd in the store and loses nothing, such as a repair to come."""
        ...


@runtime_checkable
class TellsWaiting(Protocol):
    """What a World may offer beside the contract, for the health of workers. Without it they look through all
    sessions now and then."""

    async def waiting(self, limit: int) -> list[tuple[str, int]]:
        """What ``claim`` would offer now, with the time (ms) since when each is due. Claims nothing."""
        ...


@runtime_checkable
class KeepsSessions(Protocol):
    """What a World may offer beside the contract, for workers that end and leave their harnesses to keepers.
    Without it their sessions are free for all hosts as soon as the World is closed."""

    async def stay(self, owner: Owner) -> None:
        """The worker ends and does not leave: its sessions stay its own for one more lease, also when the
        World is closed. But not on its own host once its process is gone: whoever comes there may attach."""
        ...


class World(Protocol):
    """One open store, seen by one app. Safe to use from many tasks of one event loop."""

    @property
    def app(self) -> str: ...

    async def create(self, session: str, records: Sequence[Record], row: RowUpdate) -> bool:
        """Begin a log with ``records`` (epoch 0). False, and nothing written, if the session exists."""
        ...

    async def append(
        self,
        session: str,
        *,
        expected_head: int,
        epoch: int,
        records: Sequence[Record],
        blobs: Mapping[str, bytes] = ...,
        row: RowUpdate | None = None,
    ) -> int:
        """Write all of it or nothing, durable on return; ``expected_head + len(records)``. Called by the
        journal only. Without records, it is the row (and the blobs) that is written.

        ``blobs`` (sha256 hex -> bytes; an existing name is kept) are durable no later than the records.

        Records found right after ``expected_head`` under the same ids are ours: the append has happened, and
        its own end is returned, also if others have appended since, and also if the writer has been fenced
        since. (A call that a claim overtakes while it runs raises ``WriterFenced`` all the same.)

        Otherwise raises ``WriterFenced`` if ``epoch`` > 0 is not the session's newest: it has been claimed
        anew, or deleted and made anew. (A release alone fences nobody: until the next claim, what the last
        driver still has to say is taken.) Otherwise raises ``Conflict`` with the records in between if the
        head has moved. ``StorageUnavailable.unclear`` means: call again with the same records.
        """
        ...

    async def read(self, session: str, after: int = 0, limit: int | None = None) -> list[StoredRecord]:
        """Records with seq > ``after``, in order: a prefix of what follows, never with a hole.

        A record that fails its checksum ends it: the call gives the good ones before it, and raises
        ``DamagedLog`` if there are none. What follows the damage is read with ``after`` at its last seq."""
        ...

    async def salvage(self, session: str) -> Salvage:
        """All that can be read, before and after damage, and what is damaged. Called by people who repair or
        export a log; the numbers of the records tell where the holes are."""
        ...

    async def wait(self, session: str, after: int, timeout: float) -> int:
        """Return the head once it is > ``after``, or after ``timeout`` seconds. Never misses an append."""
        ...

    async def session(self, session: str) -> SessionRow: ...

    async def sessions(self, after: str = "", limit: int = 1000) -> list[SessionRow]:
        """Rows by session id, those > ``after``."""
        ...

    async def register(self, owner: Owner, lease: float = LEASE_SECONDS) -> None:
        """Make a worker known and live. Once per boot of a worker, before it claims."""
        ...

    async def renew(self, owner: Owner) -> None:
        """Prolong the lease of the worker, and so of all its sessions. Also after it has run out, as long
        as nobody has taken them. Raises ``LeaseLost`` for a worker that the store does not know (any more):
        it has to begin anew, as another one."""
        ...

    async def unregister(self, owner: Owner) -> None:
        """The worker leaves; whatever it still owns is free at once."""
        ...

    async def claim(self, owner: Owner, limit: int) -> list[Claim]:
        """Up to ``limit`` sessions of this app that are due and free, longest due first, each with its
        claim record appended. Free: no owner, or one that is dead or whose lease has ended."""
        ...

    async def claim_session(self, owner: Owner, session: str, *, take_over: bool = False) -> Claim:
        """Claim one session by name, due or not. Raises ``SessionBusy`` if another live worker holds it,
        unless ``take_over``. The holder itself gets a new epoch; its old one is fenced."""
        ...

    async def release(self, session: str, epoch: int, due: int | None = None) -> None:
        """Give the session back. Nothing happens, and no error, if the epoch is no longer the session's.

        With ``due`` (ms, wall clock, or ``NOW``), a session that is not parked is due only then: for one that
        cannot be driven now. Whoever sends a message meanwhile makes it due as ever."""
        ...

    async def wait_due(self, timeout: float) -> None:
        """Return when a session may have become claimable, or after ``timeout`` seconds. A hint."""
        ...

    async def blob(self, session: str, sha: str) -> bytes:
        """Raises ``NotFound``."""
        ...

    async def put_snapshot(self, session: str, seq: int, data: bytes) -> None:
        """A cache of the fold of the first ``seq`` records. Losing it must cost time only."""
        ...

    async def snapshot(self, session: str) -> tuple[int, bytes] | None: ...

    async def put_progress(self, session: str, data: bytes) -> None:
        """Replace the session's progress: state, not history; need not survive a crash."""
        ...

    async def progress(self, session: str) -> bytes | None: ...

    def blobs(self, session: str) -> AsyncIterator[tuple[str, bytes]]:
        """Every blob of a session, for export."""
        ...

    async def put_blobs(self, session: str, blobs: Mapping[str, bytes]) -> None:
        """Store blobs without a record, durable on return; an existing name is kept. For what is large and
        is named by a later append or ``restore``, so also for a session that does not exist yet: it has them
        from its first moment on. ``delete`` removes them, with the session or without one."""
        ...

    async def missing_blobs(self, session: str, names: Collection[str]) -> set[str]:
        """Those of ``names`` that are not stored for this session, which need not exist."""
        ...

    async def restore(
        self,
        session: str,
        records: Sequence[StoredRecord],
        blobs: Mapping[str, bytes],
        row: RowUpdate,
    ) -> None:
        """Import: a new session with exactly these records. Raises ``BadInput`` if it exists."""
        ...

    async def delete(self, session: str) -> None:
        """Remove the session, its blobs, snapshot and progress; or blobs whose session never came. Raises
        ``SessionBusy`` if it is driven."""
        ...

    async def describe(self) -> Description: ...

    async def aclose(self) -> None: ...


def check_session_id(session: str) -> str:
    """The id as it is, or ``BadInput``. Ids become file names and URLs, hence the narrow alphabet."""
    if not _SESSION_ID.fullmatch(session):
        raise BadInput(
            f"{session[:140]!r} cannot name a session: use 1 to 128 letters, digits and any of . _ @ : + -, "
            "beginning with a letter or digit"
        )
    return session


def stamped(row: RowUpdate, now: int) -> RowUpdate:
    """The row as a store keeps it that judges by a clock which says ``now``. Called by Worlds."""
    return msgspec.structs.replace(row, due=now) if row.due == NOW else row


def claim_record(owner: Owner, epoch: int, record_id: str, *, displaced: bool = False) -> Record:
    """The record with which a World makes ``owner`` the session's driver. ``displaced`` as in ``Claim``: it
    is in the log, since whoever comes after this owner must know of it, too."""
    from harness_durable import codec, events  # who only lists sessions need not wait for their import

    event = events.SessionClaimed(epoch, owner.worker, owner.host, owner.pid, displaced)
    return Record(record_id, codec.kind_of(event), clock.now_ms(), codec.encode(event))
