"""A World that is slow and plainly right: everything in one pickle, under one lock.

It is what the conformance suite itself is tested with. ``plain:DIR?MUTANT`` opens it with one promise broken
on purpose, in this process and in the suite's second processes alike; the suite has to notice.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import pickle
import time
import uuid
from collections.abc import AsyncIterator, Collection, Generator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from harness_durable import clock
from harness_durable.errors import (
    BadInput,
    Conflict,
    LeaseLost,
    NotFound,
    SessionBusy,
    StorageUnavailable,
    WriterFenced,
)
from harness_durable.world import (
    LEASE_SECONDS,
    Claim,
    Description,
    Owner,
    Record,
    RowUpdate,
    Salvage,
    SessionRow,
    StoredRecord,
    check_session_id,
    claim_record,
    stamped,
)

OPENER = "tests.worlds.reference:open_world"


@dataclass
class _Session:
    row: RowUpdate
    log: list[StoredRecord] = field(default_factory=list[StoredRecord])
    epoch: int = 0
    owner: Owner | None = None
    created: int = 0
    updated: int = 0
    blobs: dict[str, bytes] = field(default_factory=dict[str, bytes])
    snapshot: tuple[int, bytes] | None = None
    progress: bytes | None = None

    @property
    def head(self) -> int:
        return len(self.log)

    def add(self, epoch: int, records: Sequence[Record]) -> int:
        for one in records:
            seq = len(self.log) + 1
            self.log.append(StoredRecord(seq, epoch, one.id, one.kind, one.time, one.body))
        self.updated = clock.now_ms()
        return self.head


@dataclass
class _Store:
    """``leases``: worker to (length, end on the monotonic clock). ``ahead``: blobs before their session, by
    app and session."""

    apps: dict[str, dict[str, _Session]] = field(default_factory=dict[str, dict[str, _Session]])
    leases: dict[str, tuple[float, float]] = field(default_factory=dict[str, tuple[float, float]])
    ahead: dict[tuple[str, str], dict[str, bytes]] = field(
        default_factory=dict[tuple[str, str], dict[str, bytes]]
    )


class PlainWorld:
    """See ``harness_durable.world.World``. ``mutant`` names what is wrong with it, if anything."""

    def __init__(self, folder: Path, app: str, mutant: str) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._folder, self._app, self._mutant = folder, app, mutant
        self._held: dict[str, int] = {}

    @property
    def app(self) -> str:
        return "everyone" if self._mutant == "one-app" else self._app

    # ------------------------------------------------------------------------------- the store

    @contextlib.contextmanager
    def _store(self, write: bool = True) -> Generator[_Store]:
        lock = os.open(self._folder / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX)
            store = self._load()
            yield store
            if write:
                self._save(store)
        except OSError as error:
            if self._mutant == "raw-errors":
                raise
            raise StorageUnavailable(f"{self._folder}: {error.strerror}; make room") from error
        finally:
            os.close(lock)

    def _load(self) -> _Store:
        path = self._folder / "store"
        return pickle.loads(path.read_bytes()) if path.exists() else _Store()

    def _save(self, store: _Store) -> None:
        fresh = self._folder / "store.new"
        fresh.write_bytes(pickle.dumps(store))
        fresh.replace(self._folder / "store")

    def _find(self, store: _Store, session: str) -> _Session:
        found = store.apps.get(self.app, {}).get(session)
        if found is None:
            raise NotFound(f"no session {session!r}; list them with `harness-durable sessions`")
        return found

    # --------------------------------------------------------------------------------- the log

    async def create(self, session: str, records: Sequence[Record], row: RowUpdate) -> bool:
        check_session_id(session)
        with self._store() as store:
            sessions = store.apps.setdefault(self.app, {})
            if session in sessions:
                return self._mutant == "create-always"
            made = sessions[session] = _Session(self._kept(row), created=clock.now_ms())
            made.blobs = store.ahead.pop((self.app, session), {})
            made.add(0, records)
            return True

    async def append(
        self,
        session: str,
        *,
        expected_head: int,
        epoch: int,
        records: Sequence[Record],
        blobs: Mapping[str, bytes] | None = None,
        row: RowUpdate | None = None,
    ) -> int:
        with self._store() as store:
            found = self._find(store, session)
            if found.head != expected_head and self._mutant != "no-cas":
                self._moved(found, session, expected_head, epoch, records)
                return expected_head + len(records)
            if epoch and epoch != found.epoch and self._mutant != "no-fence":
                raise WriterFenced(session, epoch, found.epoch)
            for name, body in (blobs or {}).items():
                found.blobs.setdefault(name, body)
            if not records and self._mutant == "rows-need-records":
                row = None
            if row is not None and self._mutant != "no-outbox":
                found.row = self._kept(row)
            if self._mutant == "text-only":
                records = [Record(r.id, r.kind, r.time, r.body.replace(b"\r\n", b"\n")) for r in records]
            if self._mutant == "half-batch" and len(records) > 1:
                found.add(epoch, records[:1])
                self._save(store)
                time.sleep(0.01)  # noqa: ASYNC251 - room for a kill; the lock stays ours
                return found.add(epoch, records[1:])
            return found.add(epoch, records)

    def _moved(self, found: _Session, session: str, head: int, epoch: int, records: Sequence[Record]) -> None:
        """Raise, unless the records are there already."""
        there = [one.id for one in found.log[head : head + len(records)]]
        if there and there == [one.id for one in records] and self._mutant != "no-healing":
            return
        if epoch and epoch != found.epoch:
            raise WriterFenced(session, epoch, found.epoch)
        between = found.log[head:]
        raise Conflict(session, head, between[:1] if self._mutant == "short-conflict" else between)

    async def read(self, session: str, after: int = 0, limit: int | None = None) -> list[StoredRecord]:
        with self._store(write=False) as store:
            rest = self._find(store, session).log[after:]
            return rest if limit is None else rest[:limit]

    async def salvage(self, session: str) -> Salvage:
        return Salvage(await self.read(session), [])

    async def wait(self, session: str, after: int, timeout: float) -> int:
        end = clock.monotonic() + timeout
        while True:
            with self._store(write=False) as store:
                head = self._find(store, session).head
            if head > after or clock.monotonic() > end:
                return head
            slow = self._mutant == "slow-wait"
            await clock.sleep(min(0.3 if slow else 0.005, max(0.0, end - clock.monotonic())))

    async def session(self, session: str) -> SessionRow:
        with self._store(write=False) as store:
            return self._row(store, session, self._find(store, session))

    async def sessions(self, after: str = "", limit: int = 1000) -> list[SessionRow]:
        with self._store(write=False) as store:
            rows = sorted(store.apps.get(self.app, {}).items())
            return [self._row(store, name, s) for name, s in rows if name > after][:limit]

    def _kept(self, row: RowUpdate) -> RowUpdate:
        return row if self._mutant == "now-is-no-time" else stamped(row, clock.now_ms())

    def _row(self, store: _Store, name: str, found: _Session) -> SessionRow:
        return SessionRow(
            name,
            found.head,
            found.epoch,
            found.row.status,
            found.row.due,
            found.created,
            found.updated,
            found.owner,
            self._alive(store, found.owner),
        )

    # --------------------------------------------------------------------------------- workers

    def _lock_path(self, owner: Owner) -> Path:
        return self._folder / f"worker-{owner.worker}"

    def _alive(self, store: _Store, owner: Owner | None) -> bool:
        if owner is None or owner.worker not in store.leases:
            return False
        if self._mutant == "immortal":
            return True
        if store.leases[owner.worker][1] < clock.monotonic():
            return False
        return not self._is_dead(owner)

    def _is_dead(self, owner: Owner) -> bool:
        return owner.worker not in self._held and self._can_lock(owner)

    def _can_lock(self, owner: Owner) -> bool:
        probe = os.open(self._lock_path(owner), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC)
        try:
            fcntl.flock(probe, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        finally:
            os.close(probe)
        return True

    async def register(self, owner: Owner, lease: float = LEASE_SECONDS) -> None:
        held = os.open(self._lock_path(owner), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC)
        fcntl.flock(held, fcntl.LOCK_EX)
        self._held[owner.worker] = held
        with self._store() as store:
            store.leases[owner.worker] = (lease, clock.monotonic() + lease)

    async def renew(self, owner: Owner) -> None:
        if self._mutant == "no-renewal":
            return
        with self._store() as store:
            if owner.worker not in store.leases:
                if self._mutant == "renews-anybody":
                    return
                raise LeaseLost(f"{owner} is not known here; register as another worker")
            lease, _ = store.leases[owner.worker]
            store.leases[owner.worker] = (lease, clock.monotonic() + lease)

    async def unregister(self, owner: Owner) -> None:
        with self._store() as store:
            store.leases.pop(owner.worker, None)
            for found in store.apps.get(self.app, {}).values():
                if found.owner == owner:
                    found.owner = None
        if owner.worker in self._held:
            os.close(self._held.pop(owner.worker))
            self._lock_path(owner).unlink()

    async def claim(self, owner: Owner, limit: int) -> list[Claim]:
        with self._store() as store:
            due = [
                (found.row.due if found.row.due is not None else 0, name)
                for name, found in store.apps.get(self.app, {}).items()
                if (found.row.due is not None or self._mutant == "wakes-parked")
                and (found.row.due or 0) <= clock.now_ms()
                and (not self._alive(store, found.owner) or self._mutant == "two-owners")
            ]
            names = [name for _, name in sorted(due)][:limit]
            return [self._take(store, name, owner) for name in names]

    def _take(self, store: _Store, name: str, owner: Owner) -> Claim:
        found = self._find(store, name)
        previous, found.owner = found.owner, owner
        found.epoch += 0 if self._mutant == "same-epoch" and found.epoch else 1
        head = found.add(found.epoch, [claim_record(owner, found.epoch, uuid.uuid4().hex)])
        alive = previous is not None and previous.worker in store.leases and not self._is_dead(previous)
        return Claim(name, found.epoch, head, previous, alive and self._mutant != "never-displaced")

    async def claim_session(self, owner: Owner, session: str, *, take_over: bool = False) -> Claim:
        with self._store() as store:
            found = self._find(store, session)
            mine = found.owner == owner
            if not take_over and not mine and found.owner and self._alive(store, found.owner):
                raise self._busy(store, session, found.owner)
            return self._take(store, session, owner)

    def _busy(self, store: _Store, session: str, owner: Owner) -> SessionBusy:
        left = store.leases[owner.worker][1] - clock.monotonic()
        return SessionBusy(session, str(owner), left)

    async def release(self, session: str, epoch: int, due: int | None = None) -> None:
        with self._store() as store:
            found = self._find(store, session)
            if found.epoch == epoch or self._mutant == "release-any":
                found.owner = None
                if due is not None and found.row.due is not None and self._mutant != "no-back-off":
                    found.row = self._kept(RowUpdate(found.row.status, due))

    async def wait_due(self, timeout: float) -> None:
        end = clock.monotonic() + timeout
        while clock.monotonic() < end:
            with self._store(write=False) as store:
                rows = store.apps.get(self.app, {}).values()
                if any(s.row.due is not None and s.row.due <= clock.now_ms() for s in rows):
                    return
            await clock.sleep(0.005)

    # ---------------------------------------------------------------------------------- the rest

    async def blob(self, session: str, sha: str) -> bytes:
        with self._store(write=False) as store:
            blobs = self._find(store, session).blobs
            if sha not in blobs:
                raise NotFound(f"no blob {sha} in session {session!r}; was it pruned?")
            return blobs[sha]

    async def put_snapshot(self, session: str, seq: int, data: bytes) -> None:
        with self._store() as store:
            self._find(store, session).snapshot = (seq, data)

    async def snapshot(self, session: str) -> tuple[int, bytes] | None:
        with self._store(write=False) as store:
            return self._find(store, session).snapshot

    async def put_progress(self, session: str, data: bytes) -> None:
        with self._store() as store:
            self._find(store, session).progress = data

    async def progress(self, session: str) -> bytes | None:
        with self._store(write=False) as store:
            return self._find(store, session).progress

    async def blobs(self, session: str) -> AsyncIterator[tuple[str, bytes]]:
        with self._store(write=False) as store:
            blobs = sorted(self._find(store, session).blobs.items())
        for each in blobs:
            yield each

    async def put_blobs(self, session: str, blobs: Mapping[str, bytes]) -> None:
        with self._store() as store:
            kept = self._blobs(store, session)
            for name, body in blobs.items():
                kept.setdefault(name, body)

    async def missing_blobs(self, session: str, names: Collection[str]) -> set[str]:
        with self._store(write=False) as store:
            return set(names).difference(self._blobs(store, session))

    def _blobs(self, store: _Store, session: str) -> dict[str, bytes]:
        """Those of the session, or those that came before it."""
        found = store.apps.get(self.app, {}).get(session)
        return store.ahead.setdefault((self.app, session), {}) if found is None else found.blobs

    async def restore(
        self,
        session: str,
        records: Sequence[StoredRecord],
        blobs: Mapping[str, bytes],
        row: RowUpdate,
    ) -> None:
        with self._store() as store:
            sessions = store.apps.setdefault(self.app, {})
            if session in sessions:
                raise BadInput(f"session {session!r} exists; import it under another name")
            epoch = max((record.epoch for record in records), default=0)
            log = list(records)
            came = {} if self._mutant == "lost-ahead" else store.ahead.pop((self.app, session), {})
            kept = {} if self._mutant == "lost-blobs" else {**blobs, **came}
            sessions[session] = _Session(self._kept(row), log, epoch, None, clock.now_ms(), 0, kept)

    async def delete(self, session: str) -> None:
        with self._store() as store:
            ahead = store.ahead.pop((self.app, session), {})
            if ahead and session not in store.apps.get(self.app, {}):
                return
            found = self._find(store, session)
            if found.owner and self._alive(store, found.owner):
                raise self._busy(store, session, found.owner)
            del store.apps[self.app][session]

    async def describe(self) -> Description:
        return Description("plain", f"plain:{self._folder}", "none", "polling", "one host")

    async def aclose(self) -> None:
        while self._held:
            os.close(self._held.popitem()[1])


async def open_world(url: str, app: str) -> PlainWorld:
    """``plain:DIR`` or ``plain:DIR?MUTANT``."""
    folder, _, mutant = url.removeprefix("plain:").partition("?")
    return PlainWorld(Path(folder), app, mutant)
