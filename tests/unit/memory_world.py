"""A World in memory, for unit tests of the core: the contract without the disk.

``dead`` are workers whose process has ended. ``fail_next`` makes the next appends raise
``StorageUnavailable``; ``lose_answer`` makes the next one happen and then raise; ``between`` runs just
before an append is looked at, as another writer would."""

from __future__ import annotations

import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Mapping, Sequence

import anyio

from harness_durable import clock
from harness_durable.errors import BadInput, Conflict, NotFound, SessionBusy, StorageUnavailable, WriterFenced
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
    claim_record,
    stamped,
)

OWNER = Owner("worker-a", "here", 1)
OTHER = Owner("worker-b", "here", 2)


class _Stored:
    def __init__(self, row: RowUpdate) -> None:
        self.records: list[StoredRecord] = []
        self.blobs: dict[str, bytes] = {}
        self.row, self.epoch, self.created = stamped(row, clock.now_ms()), 0, clock.now_ms()
        self.owner: Owner | None = None
        self.snapshot: tuple[int, bytes] | None = None
        self.progress: bytes | None = None


class MemoryWorld:
    app = "default"

    def __init__(self) -> None:
        self.stored: dict[str, _Stored] = {}
        self.ahead: dict[str, dict[str, bytes]] = {}
        self.fail_next = 0
        self.lose_answer = False
        self.dead: set[Owner] = set()
        self.between: Callable[[], Awaitable[None]] | None = None
        self.appends = 0
        self._changed = anyio.Event()

    async def create(self, session: str, records: Sequence[Record], row: RowUpdate) -> bool:
        if session in self.stored:
            return False
        self._make(session, row)
        self._add(session, 0, records)
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
        hook, self.between = self.between, None
        if hook is not None:
            await hook()
        self.appends += 1
        if self.fail_next:
            self.fail_next -= 1
            raise StorageUnavailable("the disk is full; free some space")
        found = self._get(session)
        since = found.records[expected_head:]
        ours = [record.id for record in records]
        if since and [record.id for record in since[: len(ours)]] == ours:
            return expected_head + len(ours)
        if epoch and found.epoch != epoch:
            raise WriterFenced(session, epoch, found.epoch)
        if since:
            raise Conflict(session, expected_head, since)
        self._add(session, epoch, records)
        found.blobs = {**(blobs or {}), **found.blobs}
        found.row = stamped(row or found.row, clock.now_ms())
        if self.lose_answer:
            self.lose_answer = False
            raise StorageUnavailable("the answer was lost; try again", unclear=True)
        return len(found.records)

    async def read(self, session: str, after: int = 0, limit: int | None = None) -> list[StoredRecord]:
        records = self._get(session).records[after:]
        return records if limit is None else records[:limit]

    async def salvage(self, session: str) -> Salvage:
        return Salvage(list(self._get(session).records), [])

    async def wait(self, session: str, after: int, timeout: float) -> int:
        with anyio.move_on_after(timeout):
            while len(self._get(session).records) <= after:
                await self._changed.wait()
        return len(self._get(session).records)

    async def session(self, session: str) -> SessionRow:
        s = self._get(session)
        head, alive = len(s.records), s.owner is not None and s.owner not in self.dead
        return SessionRow(
            session, head, s.epoch, s.row.status, s.row.due, s.created, s.created, s.owner, alive
        )

    async def sessions(self, after: str = "", limit: int = 1000) -> list[SessionRow]:
        return [await self.session(name) for name in sorted(self.stored) if name > after][:limit]

    async def register(self, owner: Owner, lease: float = LEASE_SECONDS) -> None: ...
    async def renew(self, owner: Owner) -> None: ...
    async def unregister(self, owner: Owner) -> None:
        for found in self.stored.values():
            found.owner = None if found.owner == owner else found.owner

    async def claim(self, owner: Owner, limit: int) -> list[Claim]:
        now = clock.now_ms()
        free = [
            name
            for name, s in self.stored.items()
            if (s.owner is None or s.owner in self.dead) and s.row.due is not None and s.row.due <= now
        ]
        free.sort(key=lambda name: self.stored[name].row.due or 0)
        return [await self.claim_session(owner, name) for name in free[:limit]]

    async def claim_session(self, owner: Owner, session: str, *, take_over: bool = False) -> Claim:
        found = self._get(session)
        previous = found.owner
        alive = previous is not None and previous not in self.dead
        if alive and previous != owner and not take_over:
            raise SessionBusy(session, str(previous), None)
        found.owner, found.epoch = owner, found.epoch + 1
        self._add(session, found.epoch, [claim_record(owner, found.epoch, uuid.uuid4().hex, displaced=alive)])
        return Claim(session, found.epoch, len(found.records), previous, alive, clock.now_ms())

    async def release(self, session: str, epoch: int, due: int | None = None) -> None:
        found = self._get(session)
        if found.epoch == epoch:
            found.owner = None
            if due is not None and found.row.due is not None:
                found.row = stamped(RowUpdate(found.row.status, due), clock.now_ms())

    async def wait_due(self, timeout: float) -> None: ...

    async def blob(self, session: str, sha: str) -> bytes:
        if sha not in self._get(session).blobs:
            raise NotFound(f"no blob {sha}; see `trace`")
        return self._get(session).blobs[sha]

    async def put_snapshot(self, session: str, seq: int, data: bytes) -> None:
        self._get(session).snapshot = (seq, data)

    async def snapshot(self, session: str) -> tuple[int, bytes] | None:
        return self._get(session).snapshot

    async def put_progress(self, session: str, data: bytes) -> None:
        self._get(session).progress = data

    async def progress(self, session: str) -> bytes | None:
        return self._get(session).progress

    async def blobs(self, session: str) -> AsyncIterator[tuple[str, bytes]]:
        for pair in list(self._get(session).blobs.items()):
            yield pair

    async def put_blobs(self, session: str, blobs: Mapping[str, bytes]) -> None:
        kept = self.stored[session].blobs if session in self.stored else self.ahead.setdefault(session, {})
        for name, body in blobs.items():
            kept.setdefault(name, body)

    async def missing_blobs(self, session: str, names: Collection[str]) -> set[str]:
        kept = self.stored[session].blobs if session in self.stored else self.ahead.get(session, {})
        return set(names).difference(kept)

    async def restore(
        self, session: str, records: Sequence[StoredRecord], blobs: Mapping[str, bytes], row: RowUpdate
    ) -> None:
        if session in self.stored:
            raise BadInput("it exists; choose another name")
        made = self._make(session, row)
        made.records, made.blobs = list(records), {**blobs, **made.blobs}
        made.epoch = max((record.epoch for record in records), default=0)

    async def delete(self, session: str) -> None:
        if self.ahead.pop(session, None) is None or session in self.stored:
            del self.stored[session]

    async def describe(self) -> Description:
        return Description("memory", "memory:", "none", "direct", "this process")

    async def aclose(self) -> None: ...

    def _get(self, session: str) -> _Stored:
        if session not in self.stored:
            raise NotFound(f"no session {session!r}; see `sessions`")
        return self.stored[session]

    def _make(self, session: str, row: RowUpdate) -> _Stored:
        made = self.stored[session] = _Stored(row)
        made.blobs = self.ahead.pop(session, {})
        return made

    def _add(self, session: str, epoch: int, records: Sequence[Record]) -> None:
        log = self.stored[session].records
        for record in records:
            log.append(StoredRecord(len(log) + 1, epoch, record.id, record.kind, record.time, record.body))
        self._changed.set()
        self._changed = anyio.Event()
