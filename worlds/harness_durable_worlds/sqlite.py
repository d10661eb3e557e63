"""The SQLite World, the default: all sessions in one file, safe for many processes of one host.

``sqlite:PATH`` opens it. One thread writes and makes one transaction of what is queued (``_sqlite_writer``),
two read, one looks for other processes' appends (``_sqlite_watch``). What surprises: beside the database
there is a folder ``PATH-workers`` with a lock file per worker, because no row can tell that its process died.
"""

from __future__ import annotations

import random
from collections.abc import AsyncIterator, Callable, Collection, Mapping, Sequence
from contextlib import suppress
from functools import cache, partial
from pathlib import Path
from types import MappingProxyType
from typing import cast

import anyio
import anyio.to_thread
import apsw

from harness_durable import clock
from harness_durable.errors import BadSetting, DamagedLog
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
from harness_durable_worlds import _sqlite_caches as caches
from harness_durable_worlds import _sqlite_claims as claims
from harness_durable_worlds import _sqlite_file as file
from harness_durable_worlds import _sqlite_log as log
from harness_durable_worlds._checks import check_dense, check_sizes
from harness_durable_worlds._liveness import HostLiveness
from harness_durable_worlds._sqlite_db import Db
from harness_durable_worlds._sqlite_faults import SqliteFaults
from harness_durable_worlds._sqlite_lane import Job, Readers
from harness_durable_worlds._sqlite_sql import SCHEMA, SQL
from harness_durable_worlds._sqlite_watch import POLL_SECONDS, SqliteNews, Watcher
from harness_durable_worlds._sqlite_writer import Writer

READERS = 2
_SMALL = 100
"""So many records are read together with what others read; the rest of a longer log by itself."""
_LOOK_AGAIN = 2.0
"""Seconds after which a waiting task looks for itself, should the watcher have trouble."""
_CLAIM_TRIES = 5
_SWEEP = 0.25
"""Seconds between two looks for owners that have died."""
_NO_BLOBS: Mapping[str, bytes] = MappingProxyType({})


async def open_world(url: str, app: str) -> SqliteWorld:
    """Open or create the database that ``sqlite:PATH`` names, for one app.

    Raises ``BadSetting`` for a path or a file that cannot be a World, ``StorageUnavailable`` if it cannot be
    written, ``LogTooNew`` for a newer schema and ``DamagedLog`` for a damaged file.
    """
    path = file.path_of(url)
    if not app:
        raise BadSetting("the app's name is empty; give it one, such as 'default'")
    version = apsw.sqlite_lib_version()
    if file.affected(version):
        raise BadSetting(
            f"SQLite {version} can damage a database that two processes write (fixed in 3.51.3); "
            "install the apsw wheel from PyPI, which brings its own SQLite: pip install --upgrade apsw"
        )
    await anyio.to_thread.run_sync(file.create, path, url)
    world = SqliteWorld(url, path, app)
    try:
        await world.check()
    except BaseException:
        await world.aclose()
        raise
    return world


async def exists(url: str) -> bool:
    """Whether there is a database already. One that cannot be looked at counts: to open it says why not."""
    return not file.absent(file.path_of(url))


def places(url: str) -> tuple[Path, ...]:
    """Where it keeps what it has: in a folder of our own, that; in another one, the database and what SQLite
    and we put beside it."""
    path = file.path_of(url)
    if path.parent.name == ".harness-durable":
        return (path.parent,)
    return tuple(path.with_name(path.name + end) for end in ("", "-wal", "-shm", "-journal", "-workers"))


def faults(url: str) -> SqliteFaults:
    """How the conformance suite hurts this World."""
    return SqliteFaults(file.path_of(url))


class SqliteWorld:
    """See ``harness_durable.world.World``; what is said there is not repeated here."""

    def __init__(self, url: str, path: Path, app: str) -> None:
        self._url, self._path, self._app = url, path, app
        self._liveness = HostLiveness(path.with_name(f"{path.name}-workers"))
        self._news = SqliteNews()
        self._writer = Writer(path)
        self._readers = Readers(path, READERS)
        self._watcher = Watcher(path, app, self._news, self._is_due)
        self._read = self._readers.do

    @property
    def app(self) -> str:
        return self._app

    async def check(self) -> None:
        """Open the connections and make sure that the file can be written. Called by ``open_world``."""
        await self._writer.do(Job(lambda db: None))
        await self._read(lambda db: db.execute(SQL["last_id"]).fetchone())

    # ----------------------------------------------------------------------------------- the log

    async def create(self, session: str, records: Sequence[Record], row: RowUpdate) -> bool:
        key = self._key(session)
        check_sizes(records, {})
        return await self._writer.do(
            Job(
                lambda db: log.create(db, key, records, row),
                landed=lambda db: log.holds(db, key, 0, records),
                after=lambda _: self._told(session, row),
            )
        )

    async def append(
        self,
        session: str,
        *,
        expected_head: int,
        epoch: int,
        records: Sequence[Record],
        blobs: Mapping[str, bytes] = _NO_BLOBS,
        row: RowUpdate | None = None,
    ) -> int:
        key = self._key(session)
        check_sizes(records, blobs)
        return await self._writer.do(
            Job(
                lambda db: log.append(db, key, expected_head, epoch, records, blobs, row),
                landed=lambda db: bool(records) and log.holds(db, key, expected_head, records),
                after=lambda _: self._told(session, row),
            )
        )

    async def read(self, session: str, after: int = 0, limit: int | None = None) -> list[StoredRecord]:
        read = partial(log.read, key=self._key(session))
        few = _SMALL if limit is None else min(limit, _SMALL)
        found = await self._read(partial(read, after=after, limit=few))
        if len(found) < _SMALL or limit == _SMALL:
            return found
        more = None if limit is None else limit - _SMALL
        with suppress(DamagedLog):  # it is told to who asks for it; these records are good
            found += await self._read(partial(read, after=found[-1].seq, limit=more), big=True)
        return found

    async def salvage(self, session: str) -> Salvage:
        key = self._key(session)
        return await self._read(lambda db: log.salvage(db, key), big=True)

    async def wait(self, session: str, after: int, timeout: float) -> int:
        key = self._key(session)
        return await self._news.head_after(session, after, timeout, lambda: self._head(key), _LOOK_AGAIN)

    # ------------------------------------------------------------------------------------- rows

    async def session(self, session: str) -> SessionRow:
        key = self._key(session)
        fields = await self._read(lambda db: log.row_fields(db, key))
        return log.row_of(session, fields, self._is_alive)

    async def sessions(self, after: str = "", limit: int = 1000) -> list[SessionRow]:
        bindings = (self._app, after, limit)
        found = await self._read(lambda db: db.execute(SQL["select_sessions"], bindings).fetchall())
        alive = cache(self._is_alive)  # many sessions, few owners
        return [log.row_of(cast(str, each[0]), cast(log.RowFields, each[1:]), alive) for each in found]

    # ----------------------------------------------------------------------------------- workers

    async def register(self, owner: Owner, lease: float = LEASE_SECONDS) -> None:
        await anyio.to_thread.run_sync(self._liveness.sweep)
        await anyio.to_thread.run_sync(self._liveness.register, owner, lease)

    async def renew(self, owner: Owner) -> None:
        self._liveness.renew(owner)  # here and now: a busy thread pool must not cost a worker its lease

    async def unregister(self, owner: Owner) -> None:
        await anyio.to_thread.run_sync(self._liveness.unregister, owner)
        self._news.became_due()

    async def claim(self, owner: Owner, limit: int) -> list[Claim]:
        left = self._liveness.lease_left
        take = partial(claims.take, app=self._app, owner=owner, lease_left=left)
        while limit > 0 and (
            found := await self._read(lambda db: claims.candidates(db, self._app, limit, left))
        ):
            if taken := await self._claim(partial(take, sessions=found)):
                return taken  # otherwise others took all that we had found: look again
        return []

    async def waiting(self, limit: int) -> list[tuple[str, int]]:
        """See ``harness_durable.world.TellsWaiting``."""
        left = self._liveness.lease_left
        return await self._read(lambda db: claims.waiting(db, self._app, limit, left))

    async def claim_session(self, owner: Owner, session: str, *, take_over: bool = False) -> Claim:
        key, left = self._key(session), self._liveness.lease_left
        [claim] = await self._claim(lambda db: [claims.take_one(db, key, owner, left, take_over=take_over)])
        return claim

    async def _claim(self, take: Callable[[Db], list[Claim]]) -> list[Claim]:
        """A claim that nobody hears of would keep its session for as long as this worker lives; so it is
        given back."""
        taken: list[Claim] = []

        def run(db: Db) -> list[Claim]:
            taken[:] = take(db)
            return list(taken)

        def told(claimed: list[Claim]) -> None:
            for claim in claimed:
                self._news.appended(claim.session)

        def lost() -> None:
            given = [(claim.session, claim.epoch) for claim in taken]
            self._writer.chore(lambda db: claims.release(db, self._app, given))

        return await self._writer.do(
            Job(run, landed=lambda db: claims.held(db, self._app, taken), after=told, lost=lost)
        )

    async def release(self, session: str, epoch: int, due: int | None = None) -> None:
        key = self._key(session)

        def run(db: Db) -> None:
            log.head_and_epoch(db, key)
            claims.release(db, self._app, [(session, epoch)], due)

        await self._writer.do(Job(run, after=lambda _: self._news.became_due()))

    async def wait_due(self, timeout: float) -> None:
        with self._news.looking(), anyio.move_on_after(timeout):
            event, pause = self._news.due_event(), POLL_SECONDS
            while not event.is_set():
                with anyio.move_on_after(pause):
                    await event.wait()
                    return
                due_in = await self._read(self._due_in)
                if due_in == 0:
                    return
                pause = min(due_in, _SWEEP * random.uniform(0.8, 1.2))

    def _due_in(self, db: Db) -> float:
        """Seconds until a session can be claimed, as far as known."""
        if self._is_due(db):
            return 0
        due = claims.next_due(db, self._app)
        return _SWEEP if due is None else max(0.001, (due - clock.now_ms()) / 1000)

    def _is_due(self, db: Db) -> bool:
        return bool(claims.candidates(db, self._app, 1, self._liveness.lease_left))

    # ------------------------------------------------------------------- blobs, snapshot, progress

    async def blob(self, session: str, sha: str) -> bytes:
        key = self._key(session)
        return await self._read(lambda db: log.blob(db, key, sha), big=True)

    async def blobs(self, session: str) -> AsyncIterator[tuple[str, bytes]]:
        key, last = self._key(session), ""
        await self._head(key)
        while names := await self._read(partial(caches.blob_names, key=key, after=last)):
            for name in names:
                yield name, await self.blob(session, name)
            last = names[-1]

    async def put_blobs(self, session: str, blobs: Mapping[str, bytes]) -> None:
        key = self._key(session)
        check_sizes((), blobs)
        await self._writer.do(
            Job(
                lambda db: log.put_blobs(db, key, blobs),
                landed=lambda db: not caches.missing_blobs(db, key, blobs),
            )
        )

    async def missing_blobs(self, session: str, names: Collection[str]) -> set[str]:
        key = self._key(session)
        return await self._read(lambda db: caches.missing_blobs(db, key, names))

    async def put_snapshot(self, session: str, seq: int, data: bytes) -> None:
        key = self._key(session)
        await self._writer.do(Job(lambda db: caches.put_snapshot(db, key, seq, data), durable=False))

    async def snapshot(self, session: str) -> tuple[int, bytes] | None:
        key = self._key(session)
        return await self._read(lambda db: caches.snapshot(db, key))

    async def put_progress(self, session: str, data: bytes) -> None:
        key = self._key(session)
        await self._writer.do(Job(lambda db: caches.put_progress(db, key, data), durable=False))

    async def progress(self, session: str) -> bytes | None:
        key = self._key(session)
        return await self._read(lambda db: caches.progress(db, key))

    # --------------------------------------------------------------------------- whole sessions

    async def restore(
        self,
        session: str,
        records: Sequence[StoredRecord],
        blobs: Mapping[str, bytes],
        row: RowUpdate,
    ) -> None:
        key = self._key(session)
        check_sizes(records, blobs)
        check_dense(session, records)
        await self._writer.do(
            Job(
                lambda db: log.restore(db, key, records, blobs, row),
                landed=lambda db: log.holds(db, key, 0, records),
                after=lambda _: self._told(session, row),
            )
        )

    async def delete(self, session: str) -> None:
        key = self._key(session)

        def run(db: Db) -> None:
            if log.exists(db, key) or not caches.blob_names(db, key, ""):
                claims.check_free(key, log.row_fields(db, key), self._liveness.lease_left)
            log.delete(db, key)
            self._writer.reclaim()

        await self._writer.do(Job(run, after=lambda _: self._news.appended(session)))

    async def remove_app(self) -> None:
        """Remove what is left of an app without sessions: the lock files of workers that are dead."""
        await anyio.to_thread.run_sync(self._liveness.sweep)

    async def describe(self) -> Description:
        failure = self._writer.checkpoint_failure
        return Description(
            name="sqlite",
            url=self._url,
            durability="write-ahead log with synchronous=FULL: every commit is synced before it is told",
            notification=f"at once in this process; every {POLL_SECONDS * 1000:.0f} ms from other processes",
            reach="any number of processes on this host",
            details={
                "path": str(self._path),
                "sqlite": apsw.sqlite_lib_version(),
                "apsw": apsw.apsw_version(),
                "schema": str(SCHEMA),
                "file system": file.file_system(self._path),
            },
            warnings=tuple(file.warnings(self._path, failure)),
        )

    async def aclose(self) -> None:
        """Finish what is queued, then close every connection and let the workers' locks go."""
        with anyio.CancelScope(shield=True):
            self._watcher.close()
            await self._watcher.ended()
            await self._readers.close()
            self._writer.close()
            await self._writer.ended()
            self._liveness.close()

    # ------------------------------------------------------------------------------------ inside

    def _key(self, session: str) -> log.Key:
        return self._app, check_session_id(session)

    def _is_alive(self, worker: str) -> bool:
        return claims.is_alive(self._liveness.lease_left, worker)

    def _told(self, session: str, row: RowUpdate | None) -> None:
        self._news.appended(session)
        if row is not None and row.due is not None:
            self._news.became_due()

    async def _head(self, key: log.Key) -> int:
        return (await self._read(lambda db: log.head_and_epoch(db, key)))[0]
