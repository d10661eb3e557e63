"""How the conformance suite hurts a Postgres World, without hurting anybody else who uses the server.

What surprises: nothing here touches the server itself. The store is broken for this process alone: its
connections are cut and no new one is made; a full disk is the server's own error 53100, raised in place of
each write. A torn append is the last one, taken back and written once more on a connection that dies before
COMMIT.
"""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from typing import cast

from harness_durable_worlds import _postgres_log as log
from harness_durable_worlds import _postgres_pages as pages
from harness_durable_worlds._postgres_claims import transaction
from harness_durable_worlds._postgres_db import Connection, Trouble, sever_all
from harness_durable_worlds._postgres_errors import TROUBLE
from harness_durable_worlds._postgres_line import Store
from harness_durable_worlds._postgres_sql import statements
from harness_durable_worlds._postgres_url import target_of


class PostgresFaults:
    """Implements ``Faults`` and ``FillsUp`` for ``postgresql://…``."""

    def __init__(self, url: str) -> None:
        self._url = url

    @contextmanager
    def apart(self) -> Generator[tuple[str, PostgresFaults]]:
        """This store: a tear reaches one session of one app."""
        yield self._url, self

    async def break_store(self) -> None:
        Trouble.gone = True
        sever_all()

    async def heal_store(self) -> None:
        Trouble.gone = False

    async def fill_store(self) -> None:
        Trouble.full = True

    async def empty_store(self) -> None:
        Trouble.full = False

    async def tear(self, app: str, session: str) -> bool:
        db = await self._connect()
        seqs = [cast(int, row[0]) for row in await db.read("last_append", app, session)]
        page = await pages.alone(db, (app, session))(pages.Wanted(session, seqs[0] - 1, len(seqs)))
        await db.write("undo_append", app, session, seqs[0])
        try:
            async with transaction(db):
                await db.write(
                    "restore_events", app, *log.columns(app, [(session, record) for record in page.records])
                )
                db.sever()
        except TROUBLE:
            return True
        raise AssertionError("a transaction was committed on a connection that was cut")

    async def damage(self, app: str, session: str, seq: int) -> bool:
        """Through SQL, for a flipped byte of the server's files may hit anything; the checksum stays."""
        db = await self._connect()
        try:
            return bool(await db.write("spoil", app, session, seq))
        finally:
            await db.close()

    async def _connect(self) -> Connection:
        target = target_of(self._url)
        return await Store(target, statements(target.schema)).connect()
