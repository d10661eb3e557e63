"""The Postgres World: all sessions in one database, safe for many processes on many hosts.

``postgresql://…`` opens it, with everything that libpq users expect of a URL (``_postgres_url``), and
``schema=NAME`` for the schema. Four connections a process, whatever the number of sessions: one writes the
appends of all sessions together (``_postgres_writer``), one reads, one claims and renews, one notifies and is
notified (``_postgres_listen``). What surprises: a lost connection is no error. What was under way is done
once more on a new one, since everything here can be; a caller hears of it only if the server stays away.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Mapping, Sequence
from functools import partial
from types import MappingProxyType
from typing import cast

import anyio

from harness_durable import clock
from harness_durable.errors import BadSetting
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
from harness_durable_worlds import _postgres_blobs as blob_rows
from harness_durable_worlds import _postgres_claims as claims
from harness_durable_worlds import _postgres_log as log
from harness_durable_worlds import _postgres_news as hints
from harness_durable_worlds import _postgres_pages as pages
from harness_durable_worlds._checks import check_dense, check_sizes, no_session
from harness_durable_worlds._postgres_clock import ServerClock
from harness_durable_worlds._postgres_db import URGENT_SECONDS, Connection, Identity, reading
from harness_durable_worlds._postgres_describe import describe
from harness_durable_worlds._postgres_faults import PostgresFaults
from harness_durable_worlds._postgres_lane import Lane
from harness_durable_worlds._postgres_line import Store
from harness_durable_worlds._postgres_listen import Listener, channel_of
from harness_durable_worlds._postgres_liveness import Judge
from harness_durable_worlds._postgres_migrate import connected, migrate
from harness_durable_worlds._postgres_progress import Progress
from harness_durable_worlds._postgres_reader import Reader
from harness_durable_worlds._postgres_sql import migrations_sql, statements
from harness_durable_worlds._postgres_url import target_of, variables
from harness_durable_worlds._postgres_whole import delete_session, restore_session
from harness_durable_worlds._postgres_workers import Workers
from harness_durable_worlds._postgres_writer import Append, Writer

_LOOK_AGAIN = 15.0
"""Seconds after which a waiting task looks for itself, whatever notifications and polling say."""
_SWEEP = 0.5
"""Seconds between two looks for sessions that are due and for owners that have died."""
_FIRST_LOOK = 0.02
_TRIED_SECONDS = 5.0
_NO_BLOBS: Mapping[str, bytes] = MappingProxyType({})


async def open_world(url: str, app: str) -> PostgresWorld:
    """Connect, bring the schema up to date, and open it for one app.

    Raises ``BadSetting`` for a URL, a login or a role that cannot be used, ``StorageUnavailable`` if the
    server cannot be reached, ``LogTooNew`` for the schema of a newer version.
    """
    target = target_of(url)
    if not app or "\0" in app:
        raise BadSetting("the app's name is empty; give it one, such as 'default'")
    store = Store(target, statements(target.schema))
    async with connected(store) as connection:
        await migrate(connection, store)
    return PostgresWorld(store, app)


async def exists(url: str) -> bool:
    """Whether there is a World already. Nothing is made. Raises as ``open_world`` does."""
    target = target_of(url)
    store = Store(target, statements(target.schema))
    async with connected(store) as connection:
        return bool((await connection.read("schema_exists", target.schema))[0][0])


def migrations(url: str) -> str:
    """What ``psql`` has to run where the role of ``url`` may not set up its schema. Connects to nothing."""
    return migrations_sql(target_of(url).schema)


def faults(url: str) -> PostgresFaults:
    """How the conformance suite hurts this World."""
    return PostgresFaults(url)


class PostgresWorld:
    """See ``harness_durable.world.World``; what is said there is not repeated here."""

    def __init__(self, store: Store, app: str) -> None:
        self._store, self._app = store, app
        self._clock, self._judge, self._doubts = ServerClock(), Judge(), claims.Doubts()
        store.met = self._met
        self._news = hints.PostgresNews()
        self._log = Writer(store, "log", app)
        self._side = Reader(store, "side", app)
        self._progress = Progress(self._side, app)
        self._claims = Lane(store, "claims", URGENT_SECONDS)
        channel = channel_of(store.target.schema, app)
        self._listener = Listener(store, self._news, channel, self._side, self._moved)
        self._workers = Workers(app, self._claims, lambda: self._listener.identity, self._clock)
        self._tasks = [
            asyncio.create_task(self._listener.main(), name=f"{store.shown} listener"),
            asyncio.create_task(self._poll(), name=f"{store.shown} poll"),
        ]

    @property
    def app(self) -> str:
        return self._app

    # ----------------------------------------------------------------------------------- the log

    async def create(self, session: str, records: Sequence[Record], row: RowUpdate) -> bool:
        key = self._key(session)
        check_sizes(records, {})
        stored = log.columns(self._app, [(session, each) for each in log.numbered(records, 0, 0)])
        values = (len(records), *log.due_of(row, self._clock.translate), clock.now_ms())
        tries = 0

        async def work(db: Connection) -> bool:
            nonlocal tries
            tries += 1
            if await db.write("create", *key, *values, *stored):
                return True
            return tries > 1 and bool(records) and await pages.holds(db, key, records)

        made = await self._side.do(work)
        self._told(session, row, free=made)
        return made

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
        due_at = None if row is None else log.due_of(row, self._clock.translate)[2]
        rows = await blob_rows.prepare(self._side, key, blobs) if blobs else []
        append = Append(session, expected_head, epoch, records, rows, row, due_at)
        if blobs:
            async with blob_rows.named(self._side, key, rows):
                done = await self._log.append(append)
        else:
            done = await self._log.append(append)
        self._told(session, row, free=done.free)
        return done.head

    async def read(self, session: str, after: int = 0, limit: int | None = None) -> list[StoredRecord]:
        return await pages.read(self._side.page, self._key(session), after, limit)

    async def salvage(self, session: str) -> Salvage:
        return await pages.salvage(self._side.page, self._key(session))

    async def wait(self, session: str, after: int, timeout: float) -> int:
        key = self._key(session)
        return await self._news.head_after(session, after, timeout, lambda: self._head(key), _LOOK_AGAIN)

    # ------------------------------------------------------------------------------------- rows

    async def session(self, session: str) -> SessionRow:
        rows = await self._rows("row", *self._key(session))
        if not rows:
            raise no_session(session)
        return rows[0]

    async def sessions(self, after: str = "", limit: int = 1000) -> list[SessionRow]:
        return await self._rows("rows", self._app, after, limit)

    async def _rows(self, statement: str, *args: object) -> list[SessionRow]:
        async def work(db: Connection) -> list[SessionRow]:
            rows = await db.read(statement, *args)
            owned = any(row[7] is not None for row in rows)
            found = await claims.verdicts(db, self._app, self._judge) if owned else claims.NOBODY
            return [log.row_of(row, lambda one: one in found and found[one].alive) for row in rows]

        return await self._side.do(work)

    # ----------------------------------------------------------------------------------- workers

    async def register(self, owner: Owner, lease: float = LEASE_SECONDS) -> None:
        await self._workers.register(owner, lease)

    async def renew(self, owner: Owner) -> None:
        await self._workers.renew(owner)
        self._claims.soon(lambda db: self._doubts.give_back(db, self._app))

    async def unregister(self, owner: Owner) -> None:
        await self._workers.unregister(owner)
        self._told(None, None, free=True)

    async def stay(self, owner: Owner) -> None:
        """See ``harness_durable.world.KeepsSessions``."""
        await self._workers.stay(owner)

    async def claim(self, owner: Owner, limit: int) -> list[Claim]:
        if limit <= 0:
            return []
        taker = claims.Taker(self._app, owner, self._judge, self._doubts)
        return await self._claim(taker, lambda db: taker.due(db, limit))

    async def claim_session(self, owner: Owner, session: str, *, take_over: bool = False) -> Claim:
        self._key(session)
        taker = claims.Taker(self._app, owner, self._judge, self._doubts)
        [claim] = await self._claim(taker, lambda db: taker.one(db, session, take_over=take_over))
        return claim

    async def _claim(
        self, taker: claims.Taker, take: Callable[[Connection], Awaitable[list[Claim]]]
    ) -> list[Claim]:
        """A claim that nobody hears of would keep its session for as long as this worker lives; so it is
        given back."""

        def unheard(taken: list[Claim]) -> None:
            self._claims.soon(lambda db: claims.put_back(db, self._app, taken))

        taken = await self._claims.do(take, lost=unheard, failed=taker.give_up)
        for claim in taken:
            self._told(claim.session, None, free=False)
        return taken

    async def waiting(self, limit: int) -> list[tuple[str, int]]:
        """See ``harness_durable.world.TellsWaiting``."""
        return await self._claims.do(lambda db: claims.waiting(db, self._app, limit, self._judge))

    async def release(self, session: str, epoch: int, due: int | None = None) -> None:
        key = self._key(session)
        due_at = None if due is None else self._clock.translate(due)

        async def work(db: Connection) -> bool:
            done = await db.write("release", *key, epoch, due, due_at)
            if not done and not await db.read("row", *key):
                raise no_session(session)
            return any(row[0] for row in done)

        if await self._claims.do(work):
            self._told(None, None, free=True)

    async def wait_due(self, timeout: float) -> None:
        look = partial(claims.look, app=self._app, judge=self._judge)
        with anyio.move_on_after(timeout):
            event, pause = self._news.due_event(), _FIRST_LOOK
            while not event.is_set():
                with anyio.move_on_after(pause):
                    await event.wait()
                    return
                left = (await self._claims.do(look)).left
                if left is not None and left <= 0:
                    return
                sweep = _SWEEP * random.uniform(0.8, 1.2)
                pause = sweep if left is None else min(sweep, max(0.001, left))

    # ------------------------------------------------------------------- blobs, snapshot, progress

    async def blob(self, session: str, sha: str) -> bytes:
        return await blob_rows.get(self._side, self._key(session), sha)

    async def put_blobs(self, session: str, blobs: Mapping[str, bytes]) -> None:
        check_sizes([], blobs)
        await blob_rows.put(self._side, self._key(session), blobs)

    async def missing_blobs(self, session: str, names: Collection[str]) -> set[str]:
        return await blob_rows.missing(self._side, self._key(session), names)

    async def blobs(self, session: str) -> AsyncIterator[tuple[str, bytes]]:
        key, last = self._key(session), ""
        await self._head(key)
        while names := await self._side.do(partial(_names, key=key, after=last)):
            for name in names:
                yield name, await self.blob(session, name)
            last = names[-1]

    async def put_snapshot(self, session: str, seq: int, data: bytes) -> None:
        await self._side.do(partial(blob_rows.put_snapshot, key=self._key(session), seq=seq, data=data))

    async def snapshot(self, session: str) -> tuple[int, bytes] | None:
        return await self._side.do(partial(blob_rows.snapshot, key=self._key(session)))

    async def put_progress(self, session: str, data: bytes) -> None:
        await self._progress.put(check_session_id(session), data)

    async def progress(self, session: str) -> bytes | None:
        return await self._progress.get(check_session_id(session))

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
        await restore_session(self._side, key, records, blobs, log.due_of(row, self._clock.translate))
        self._told(session, row, free=True)

    async def delete(self, session: str) -> None:
        await delete_session(self._side, self._key(session), self._judge)
        self._told(session, None, free=False)

    async def remove_app(self) -> None:
        """Remove what is left of an app without sessions: the rows of workers that are dead."""
        await self._workers.forget_dead(self._judge)

    async def describe(self) -> Description:
        with anyio.move_on_after(_TRIED_SECONDS):
            await self._listener.tried.wait()
        settings = (await self._side.do(reading("settings")))[0]
        ahead = self._clock.ahead()
        return describe(self._store, settings, notified=self._listener.works, ahead=ahead)

    async def aclose(self) -> None:
        """Finish what is queued, let our workers leave, and close every connection."""
        with anyio.CancelScope(shield=True):
            if await self._workers.all_leave():
                self._told(None, None, free=True)
            await asyncio.gather(self._log.close(), self._claims.close())
            await self._listener.last_words()
            for task in self._tasks:
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)
            await self._side.close()

    # ------------------------------------------------------------------------------------ inside

    def _key(self, session: str) -> log.Key:
        return self._app, check_session_id(session)

    def _met(self, identity: Identity) -> None:
        self._clock.met(identity.clock)

    def _moved(self) -> None:
        """The connection that stands for this process's life is another one now."""
        self._workers.soon()

    def _told(self, session: str | None, row: RowUpdate | None, *, free: bool) -> None:
        """Something has happened: tell those who wait here, and soon those elsewhere."""
        due = free and (row is None or row.due is not None) and (session is None or row is not None)
        if session is not None:
            self._news.appended(session)
        if due:
            self._news.became_due()
        self._listener.tell(session, due=due)

    async def _poll(self) -> None:
        await hints.poll(self._news, self._app, self._side.do, lambda: self._listener.works)

    async def _head(self, key: log.Key) -> int:
        rows = await self._side.do(reading("heads", self._app, [key[1]]))
        if not rows:
            raise no_session(key[1])
        return cast(int, rows[0][1])


async def _names(db: Connection, key: log.Key, after: str) -> list[str]:
    return [cast(str, row[0]) for row in await db.read("blob_names", *key, after)]


__all__ = (
    "PostgresWorld",
    "exists",
    "faults",
    "migrations",
    "migrations_sql",
    "open_world",
    "variables",
)
