"""How long sessions wait without an owner while they are due, measured from the database's rows.

What is looked at, ``EVERY`` so many seconds: the due rows of ``session``, each with its owner's row in
``worker``. A session has an owner if that row is there, its lease has not ended by the server's clock, and
the process is one that the supervisor sees alive. A wait is the time from the first look at which a due
session had none to the first at which it has one (or is not due), plus one interval, since it may have begun
right after the look before. While the database is away nobody can look; that time counts. What does not
count, and is told beside it, is the time in which every worker was dead, or started and not yet registered.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import cast

import anyio

from harness_durable import clock
from harness_durable_worlds._postgres_errors import TROUBLE
from tests.worlds.postgres_kit import Sql

EVERY = 0.2
_DUE = """
with now as (select (extract(epoch from clock_timestamp()) * 1000)::bigint as ms)
select s.session, s.pid, coalesce(w.lease_until > now.ms, false)
from now cross join {schema}.session s left join {schema}.worker w on w.id = s.owner and w.app = s.app
where s.app = $1 and s.due_at <= now.ms
"""
_WORKERS = "select process from {schema}.worker where app = $1"


class Waits:
    """``looks`` and ``missed`` count looks that succeeded and that did not; ``most`` is the largest number of
    sessions that had an owner at once; ``due`` those that are due as of the last look, ``busy`` the pids
    of their owners; ``nobody`` the seconds without any worker that was up, while sessions waited."""

    def __init__(
        self, socket: Path, port: int, user: str, schema: str, app: str, alive: Callable[[], set[int]]
    ) -> None:
        self._place = {"host": str(socket), "port": port, "user": user}
        self._queries = (_DUE.format(schema=schema), _WORKERS.format(schema=schema))
        self._app, self._alive = app, alive
        self._up, self._last = set[int](), clock.monotonic()
        self._since: dict[str, float] = {}
        self.ended: list[tuple[float, str]] = []
        self.looks = self.missed = self.most = 0
        self.due: set[str] = set()
        self.busy: set[int] = set()
        self.nobody = 0.0

    def all(self) -> list[tuple[float, str]]:
        """Every wait with its session, also those that go on; the longest first."""
        now = clock.monotonic()
        going_on = [(now - since + EVERY, session) for session, since in self._since.items()]
        return sorted([*self.ended, *going_on], reverse=True)

    async def run(self) -> None:
        """Look for ever."""
        connect = import_module("asyncpg").connect
        while True:
            try:
                sql = cast(Sql, await connect(**self._place, database="postgres", timeout=5))
            except TROUBLE:
                self.missed += 1
                await anyio.sleep(EVERY)
                continue
            try:
                while True:
                    rows, workers = [await sql.fetch(query, self._app) for query in self._queries]
                    self.seen(rows, {int(cast(str, row[0]).split()[-2]) for row in workers})
                    await anyio.sleep(EVERY)
            except TROUBLE:
                self.missed += 1
            finally:
                with anyio.move_on_after(1, shield=True), suppress(*TROUBLE):
                    await sql.close()

    def seen(self, rows: Sequence[tuple[object, ...]], registered: set[int]) -> None:
        """A look: session, the owner's pid, whether its lease holds, of each that is due; and the pids of all
        workers that the store knows."""
        now, alive = clock.monotonic(), self._alive()
        self._up = (self._up | registered) & alive
        if not self._up and self._since:
            self.nobody += now - self._last
            self._since = {name: since + now - self._last for name, since in self._since.items()}
        self._last = now
        self.looks += 1
        owned = {cast(str, row[0]) for row in rows if row[2] and row[1] in alive}
        self.due = {cast(str, row[0]) for row in rows}
        self.busy = {cast(int, row[1]) for row in rows if row[0] in owned}
        self.most = max(self.most, len(owned))
        for session in self._since.keys() - (self.due - owned):
            self.ended.append((now - self._since.pop(session) + EVERY, session))
        for session in self.due - owned:
            self._since.setdefault(session, now)
