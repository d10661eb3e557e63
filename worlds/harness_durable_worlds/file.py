"""The file World, ``file:DIR``: a folder per session, plain files that ``grep`` and ``tail -f`` understand.

It serves many processes of one host, with nothing to install. What surprises: nothing here decides who may
write. The files do, in ``_file_log`` and ``_file_append``; this class only brings the callers together.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Collection, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TypeVar

import anyio
import anyio.to_thread

from harness_durable import clock
from harness_durable.errors import (
    BadInput,
    BadSetting,
    DamagedLog,
    LogTooNew,
    SessionBusy,
    StorageUnavailable,
    UsageError,
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
)
from harness_durable_worlds import _file_rows as rows
from harness_durable_worlds import _file_system
from harness_durable_worlds._file_append import append
from harness_durable_worlds._file_faults import FileFaults
from harness_durable_worlds._file_frames import Damage
from harness_durable_worlds._file_lock import LockHeldError, holder_of
from harness_durable_worlds._file_log import Log, damaged
from harness_durable_worlds._file_logs import Logs
from harness_durable_worlds._file_store import Store, check_blobs, check_records
from harness_durable_worlds._file_tail import torn
from harness_durable_worlds._file_watch import DueLook, SegmentLook, Watch
from harness_durable_worlds._liveness import HostLiveness

T = TypeVar("T")

variables = (_file_system.ALLOW,)
"""What this World reads from the environment, for ``doctor``."""

LOCK_SECONDS = 3.0
"""How long an append waits for another process's, before it says who holds the lock."""
_TAILS = 20
"""So many torn tails are told one by one; ``describe`` has their number."""
RECONCILE_SECONDS = 30.0
"""How often a claiming worker makes the index of due sessions agree with the logs."""


async def open_world(url: str, app: str) -> FileWorld:
    """``file:DIR``; the folder is made if need be.

    Raises ``BadSetting``, ``StorageUnavailable`` or ``LogTooNew``, before anything is written."""
    root = _file_system.root_of(url)
    try:
        check_session_id(app)
    except BadInput:
        raise BadSetting(
            f"app {app!r} cannot name a folder; use letters, digits and any of . _ @ : + -"
        ) from None
    if app == "VERSION":
        raise BadSetting("app 'VERSION' is the name of a file of the World; choose another name")
    kind = _file_system.kind_of(root)
    warnings = _file_system.check(root, kind)
    store = Store(root, app)
    await anyio.to_thread.run_sync(store.prepare, url)
    return FileWorld(url, app, store, kind, warnings)


async def exists(url: str) -> bool:
    """Whether there is a World in that folder already."""
    return await anyio.to_thread.run_sync(Store(_file_system.root_of(url), "").made)


def places(url: str) -> tuple[Path, ...]:
    """Where it keeps what it has."""
    return (_file_system.root_of(url),)


def faults(url: str) -> FileFaults:
    """How the conformance suite hurts this World."""
    return FileFaults(url, _file_system.root_of(url))


class FileWorld:
    """See ``harness_durable.world.World``. ``repairs`` has a sentence for each torn tail that was cut off."""

    def __init__(self, url: str, app: str, store: Store, kind: str, warnings: tuple[str, ...]) -> None:
        self._url, self._app, self._store, self._kind, self._warnings = url, app, store, kind, warnings
        self._near = _file_system.is_near(kind)
        self._logs = Logs(store)
        self._liveness = HostLiveness(store.workers)
        self._watch = Watch()
        self._bell = store.due / ".bell"
        self._reconciled: float | None = None
        self._next_due: int | None = None
        self.repairs: list[str] = []

    @property
    def app(self) -> str:
        return self._app

    # ------------------------------------------------------------------------------------ the log

    async def create(self, session: str, records: Sequence[Record], row: RowUpdate) -> bool:
        check_records(records)
        batches = [(0, records)] if records else []
        made = await self._logs.on(session, lambda _: self._store.create(session, batches, {}, row))
        if made and row.due is not None:
            await self._ring()
        return made

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
        check_records(records)
        check_blobs(blobs or {})

        def work(log: Log) -> tuple[int, bool]:
            store_blobs = partial(self._store.put_blobs_beside, log, blobs) if blobs else None
            before = log.top.row if log.chain else None
            head = append(log, expected_head, epoch, records, row, self.repairs.append, store_blobs)
            earlier = row is not None and row.due is not None and (before is None or before.due != row.due)
            return head, earlier

        head, earlier = await self._patiently(session, work)
        self._watch.poke(session)
        if earlier:
            await self._ring()
        return head

    async def read(self, session: str, after: int = 0, limit: int | None = None) -> list[StoredRecord]:
        found = self._logs.glance(session, lambda log: log.glance(after, limit)) if self._near else None
        return await self._logs.on(session, lambda log: log.read(after, limit)) if found is None else found

    async def salvage(self, session: str) -> Salvage:
        def work(log: Log) -> Salvage:
            found = Salvage([], [])
            for segment, item in log.items(0):
                if isinstance(item, Damage):
                    found.damages.append(damaged(segment, item))
                else:
                    found.records.extend(item)
            return found

        return await self._logs.on(session, work)

    async def wait(self, session: str, after: int, timeout: float) -> int:
        head = await self._head(session)
        if head > after or timeout <= 0:
            return head
        with self._watch.on(SegmentLook(self._store.folder(session)), session) as changed:
            with anyio.move_on_after(timeout):
                while (head := await self._head(session)) <= after:
                    await changed.wait()
                    changed.clear()
        return head

    # ------------------------------------------------------------------------- rows and ownership

    async def session(self, session: str) -> SessionRow:
        return await self._logs.on(session, lambda log: rows.row_of(log, self._liveness.alive))

    async def sessions(self, after: str = "", limit: int = 1000) -> list[SessionRow]:
        names = [name for name in await self._thread(self._store.names) if name > after]
        return await self._rows(names[:limit])

    async def register(self, owner: Owner, lease: float = LEASE_SECONDS) -> None:
        await self._thread(partial(self._liveness.register, owner, lease))

    async def renew(self, owner: Owner) -> None:
        await self._thread(partial(self._liveness.renew, owner))

    async def unregister(self, owner: Owner) -> None:
        await self._thread(partial(self._liveness.unregister, owner))
        await self._ring()

    async def claim(self, owner: Owner, limit: int) -> list[Claim]:
        await self._reconcile()
        now = clock.now_ms()
        found = await self._rows(await self._thread(self._store.names_due))
        waiting = [row for row in found if row.due is not None and not row.owner_alive]
        self._next_due = min((row.due for row in waiting if row.due and row.due > now), default=None)
        claims: list[Claim] = []
        for row in sorted(waiting, key=lambda row: row.due or 0):
            if len(claims) >= limit or (row.due or 0) > now:
                break
            claim = await self._try_claim(owner, row.session, now, keep_going=bool(claims))
            if claim is not None:
                claims.append(claim)
        return claims

    async def claim_session(self, owner: Owner, session: str, *, take_over: bool = False) -> Claim:
        claim = await self._claim(owner, session, None, take_over)
        if claim is None:
            raise SessionBusy(session, "nobody that can be named", None)
        return claim

    async def release(self, session: str, epoch: int, due: int | None = None) -> None:
        if await self._patiently(session, lambda log: rows.release(log, epoch, due, self.repairs.append)):
            await self._ring()

    async def wait_due(self, timeout: float) -> None:
        if self._next_due is not None:
            timeout = min(timeout, max(0.0, (self._next_due - clock.now_ms()) / 1000))
        with self._watch.on(DueLook(self._bell, self._liveness), "") as changed:
            with anyio.move_on_after(timeout):
                await changed.wait()

    # ------------------------------------------------------------------ blobs, snapshot, progress

    async def blob(self, session: str, sha: str) -> bytes:
        return await self._thread(partial(self._store.blob, session, sha))

    async def blobs(self, session: str) -> AsyncIterator[tuple[str, bytes]]:
        for name in await self._thread(partial(self._store.blob_names, session)):
            yield name, await self.blob(session, name)

    async def put_blobs(self, session: str, blobs: Mapping[str, bytes]) -> None:
        check_blobs(blobs)
        await self._thread(partial(self._store.put_blobs_of, session, blobs))

    async def missing_blobs(self, session: str, names: Collection[str]) -> set[str]:
        return await self._thread(partial(self._store.missing_blobs, session, names))

    async def put_snapshot(self, session: str, seq: int, data: bytes) -> None:
        record = await self._logs.on(session, lambda log: log.read(seq - 1, 1))
        if record and record[0].seq == seq:
            put = partial(self._store.put_snapshot, session, seq, record[0].id.encode(), data)
            await self._thread(put)

    async def snapshot(self, session: str) -> tuple[int, bytes] | None:
        stored = await self._thread(partial(self._store.snapshot, session))
        if stored is None:
            return None
        seq, name, data = stored
        try:
            record = await self._logs.on(session, lambda log: log.read(seq - 1, 1))
        except DamagedLog:
            return None
        return (seq, data) if record and record[0].seq == seq and record[0].id.encode() == name else None

    async def put_progress(self, session: str, data: bytes) -> None:
        await self._thread(partial(self._store.put_progress, session, data))

    async def progress(self, session: str) -> bytes | None:
        return await self._thread(partial(self._store.progress, session))

    # ------------------------------------------------------------------- whole sessions, the World

    async def restore(
        self,
        session: str,
        records: Sequence[StoredRecord],
        blobs: Mapping[str, bytes],
        row: RowUpdate,
    ) -> None:
        check_records(records)
        check_blobs(blobs)
        if [record.seq for record in records] != list(range(1, len(records) + 1)):
            raise BadInput(f"session {session!r} cannot be restored: its records are not numbered 1, 2, 3 …")
        batches = [(r.epoch, [Record(r.id, r.kind, r.time, r.body)]) for r in records]
        if not await self._logs.on(session, lambda _: self._store.create(session, batches, blobs, row)):
            raise BadInput(f"session {session!r} exists already; import it with `--as NAME`")
        await self._ring()

    async def delete(self, session: str) -> None:
        def work(log: Log) -> None:
            if self._store.remove_ahead(session):
                return
            rows.fence_for_delete(log, self._liveness)
            log.forget()
            self._store.remove(session)

        await self._logs.on(session, work)
        self._watch.poke(session)

    async def remove_app(self) -> None:
        """Remove what is left of an app without sessions and live workers. The next call is ``aclose``."""
        await self._thread(self._store.remove_app)

    async def describe(self) -> Description:
        names = await self._thread(self._store.names)
        tails = [found for found in await self._logs.each(names, torn) if found]
        details = {
            "folder": str(self._store.root),
            "file system": self._kind,
            "repairs since opening": str(len(self.repairs)),
            "repairs to come": str(len(tails)),
        }
        return Description(
            name="file",
            url=self._url,
            durability="fdatasync before every acknowledgement, folders synced when files are made",
            notification="direct in this process; others look at file sizes every 20 ms",
            reach="many processes of one host",
            details=details,
            warnings=(*self._warnings, *self.repairs[-5:], *tails[:_TAILS]),
        )

    async def remarks(self, session: str) -> list[str]:
        """A sentence about a torn tail that is not repaired yet."""
        found = await self._logs.on(session, torn)
        return [found] if found else []

    async def aclose(self) -> None:
        """Let running writes end, and close all files. Workers that were registered here are dead then."""
        await self._logs.aclose()
        self._liveness.close()
        self._watch.close()

    # ----------------------------------------------------------------------------------- internal

    async def _head(self, session: str) -> int:
        def work(log: Log) -> int:
            log.refresh()
            return log.head

        return await self._logs.on(session, work)

    async def _claim(self, owner: Owner, session: str, due: int | None, take_over: bool) -> Claim | None:
        def work(log: Log) -> Claim | None:
            return rows.claim(log, owner, self._liveness, self.repairs.append, due, take_over=take_over)

        claim = await self._logs.on(session, work)
        self._watch.poke(session)
        return claim

    async def _try_claim(self, owner: Owner, session: str, now: int, *, keep_going: bool) -> Claim | None:
        try:
            return await self._claim(owner, session, now, False)
        except (SessionBusy, UsageError, DamagedLog, LogTooNew):
            return None
        except StorageUnavailable:
            if keep_going:  # those that were claimed before must not be lost
                return None
            raise

    async def _rows(self, names: Sequence[str]) -> list[SessionRow]:
        known: dict[str, bool] = {}

        def alive(worker: str) -> bool:
            if worker not in known:
                known[worker] = self._liveness.alive(worker)
            return known[worker]

        return await self._logs.each(names, lambda log: rows.listed_row(log, alive))

    async def _reconcile(self) -> None:
        now = clock.monotonic()
        if self._reconciled is not None and now - self._reconciled < RECONCILE_SECONDS:
            return
        self._reconciled = now
        await self._thread(self._liveness.sweep)
        names = await self._thread(self._store.names)
        listed = set(await self._thread(self._store.names_due))
        await self._thread(partial(self._store.forget_due, listed.difference(names)))
        await self._logs.each(names, lambda log: rows.reconcile(log, log.session in listed))

    async def _patiently(self, session: str, work: Callable[[Log], T]) -> T:
        until = clock.monotonic() + LOCK_SECONDS
        while True:
            try:
                return await self._logs.on(session, work)
            except LockHeldError as held:
                if clock.monotonic() > until:
                    raise StorageUnavailable(
                        f"{holder_of(held.path)} holds the lock of {held.path} and does not go on; "
                        "continue or end that process, or take the session over"
                    ) from None
            await clock.sleep(0.003)

    async def _ring(self) -> None:
        self._watch.poke("")
        await self._thread(self._store.ring)

    async def _thread(self, work: Callable[[], T]) -> T:
        return await anyio.to_thread.run_sync(work)
