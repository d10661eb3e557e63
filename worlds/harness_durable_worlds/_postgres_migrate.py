"""Bringing a database to the newest schema, by whichever of many processes comes first.

What surprises: nothing is created that is there already, and no right is needed for it. So a role that may
only read and write rows is enough, once somebody else has applied ``worlds migrate --print``.
"""

from __future__ import annotations

import shlex
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import cast

from harness_durable.errors import BadSetting, LogTooNew
from harness_durable_worlds._postgres_claims import transaction
from harness_durable_worlds._postgres_db import Connection, driver
from harness_durable_worlds._postgres_errors import TROUBLE, explain, setting_of, state_of
from harness_durable_worlds._postgres_line import Store
from harness_durable_worlds._postgres_sql import MIGRATION_LOCK, SCHEMA, bookkeeping, migration

_WAIT = "60s"
_NO_RIGHT = "42501"


@asynccontextmanager
async def connected(store: Store) -> AsyncGenerator[Connection]:
    """A connection for a moment. Raises ``BadSetting`` and ``StorageUnavailable``."""
    try:
        connection = await store.connect()
        try:
            yield connection
        finally:
            await connection.close()
    except TROUBLE as error:
        raise setting_of(error, store.shown) or explain(error, store.shown) from error


async def migrate(db: Connection, store: Store) -> None:
    """Apply what is missing. Raises ``LogTooNew`` for a schema of a newer version and ``BadSetting`` if the
    role lacks the rights; nothing is changed then."""
    try:
        if await _found(db, store) < SCHEMA:
            async with transaction(db):
                await db.run(f"set local lock_timeout = '{_WAIT}'; set local statement_timeout = 0")
                await db.run(f"select pg_advisory_xact_lock({MIGRATION_LOCK})", seconds=90)
                await _apply(db, store)
    except driver.PostgresError as error:
        if state_of(error) == _NO_RIGHT:
            raise _forbidden(db, store, error) from error
        raise


async def _apply(db: Connection, store: Store) -> None:
    """Within the lock: another process may have been faster."""
    schema = store.target.schema
    found = await _found(db, store)
    if not found:
        known = await db.read("schema_known", schema)
        await db.run(bookkeeping(schema, create=not known))
    for version in range(found + 1, SCHEMA + 1):
        await db.run(migration(schema, version), seconds=3600)


async def _found(db: Connection, store: Store) -> int:
    """The database's schema number, 0 if there is none."""
    schema = store.target.schema
    # By a query and not by name: what a session has once not found by name, it may not find later.
    if not (await db.read("schema_exists", schema))[0][0]:
        return 0
    found = cast(int, (await db.read("schema_version"))[0][0])
    if found > SCHEMA:
        raise LogTooNew(f"schema {schema} of {store.shown}", found, SCHEMA)
    return found


def _forbidden(db: Connection, store: Store, error: BaseException) -> BadSetting:
    role, database = db.identity.role, db.identity.database
    return BadSetting(
        f"World URL {store.shown!r}: role {role!r} may not set up schema {store.target.schema!r} in database "
        f"{database!r} ({error}); let one who may apply what `harness-durable worlds migrate --print "
        f"{shlex.quote(store.shown)}` prints, and grant {role!r} usage of the schema and select, insert, "
        "update, delete on its tables"
    )
