"""One connection to a server, through asyncpg: the part of it that we use, with types.

What surprises: whether a pooler stands between is seen by a pid. The server tells its own when a connection
begins, and when asked; a pooler makes one up. Behind one there are no prepared statements and no settings of
the session, since the next statement may be another server process's.
"""

from __future__ import annotations

import math
import weakref
from collections.abc import Awaitable, Callable, Mapping, Sequence
from importlib import import_module
from typing import Protocol, cast

import anyio
import msgspec

from harness_durable import clock
from harness_durable_worlds._postgres_url import Target

Value = int | str | bytes | bool | None
Row = Sequence[Value]
Listener = Callable[[object, int, str, str], None]

STATEMENT_SECONDS = 20.0
URGENT_SECONDS = 4.0
"""For what a lease depends on."""
LOCK_SECONDS = 3.0


class _Raw(Protocol):
    """asyncpg's connection."""

    async def fetch(self, query: str, *args: object, timeout: float | None = None) -> list[Row]: ...
    async def execute(self, query: str) -> str: ...
    async def close(self, *, timeout: float | None = None) -> None: ...
    async def add_listener(self, channel: str, callback: Listener) -> None: ...
    def add_termination_listener(self, callback: Callable[[object], None]) -> None: ...
    def terminate(self) -> None: ...
    def is_closed(self) -> bool: ...
    def get_server_pid(self) -> int: ...


class _Driver(Protocol):
    InterfaceError: type[Exception]
    InternalClientError: type[Exception]
    PostgresError: type[Exception]
    ClientConfigurationError: type[Exception]
    TargetServerAttributeNotMatched: type[Exception]

    async def connect(
        self,
        dsn: str,
        *,
        timeout: float,
        statement_cache_size: int,
        max_cached_statement_lifetime: int,
        server_settings: Mapping[str, str],
    ) -> _Raw: ...


driver = cast(_Driver, import_module("asyncpg"))  # it has no types of its own


class Identity(msgspec.Struct, frozen=True):
    """The server process behind a connection. ``pooled``: another one than the server says. ``clock`` is the
    server's, in ms."""

    pid: int
    server_start: str
    start: str | None
    clock: int
    standby: bool
    role: str
    database: str
    pooled: bool


class Trouble:
    """What the conformance suite makes go wrong in this process: see ``_postgres_faults.py``."""

    gone = False
    full = False


_open: weakref.WeakSet[Connection] = weakref.WeakSet()


class Connection:
    """Used by one task at a time. Every call ends within ``seconds``, and before ``until`` by the monotonic
    clock, by a ``TimeoutError`` if need be. After an error that is not the server's answer it is of no more
    use."""

    def __init__(self, raw: _Raw, sql: Mapping[str, str], identity: Identity, seconds: float) -> None:
        self._raw, self._sql, self.identity, self._seconds = raw, sql, identity, seconds
        self.until = math.inf
        _open.add(self)

    async def read(self, name: str, *args: object) -> list[Row]:
        """The rows of a statement that changes nothing."""
        return await self._raw.fetch(self._sql[name], *args, timeout=self._left())

    async def write(self, name: str, *args: object) -> list[Row]:
        if Trouble.full:
            await self.run(self._sql["fail_full"])
        return await self._raw.fetch(self._sql[name], *args, timeout=self._left())

    def _left(self, seconds: float | None = None) -> float:
        """asyncpg's own limit costs a seventh of a cancel scope, for each statement."""
        return min(seconds or self._seconds, self.until - clock.monotonic())

    async def run(self, script: str, seconds: float | None = None) -> str:
        """Run statements without arguments; what the server says of the last one."""
        with anyio.fail_after(self._left(seconds)):
            return await self._raw.execute(script)

    async def listen(self, channel: str, heard: Callable[[str], None], lost: Callable[[], None]) -> None:
        self._raw.add_termination_listener(lambda _: lost())
        with anyio.fail_after(self._seconds):
            await self._raw.add_listener(channel, lambda _, __, ___, payload: heard(payload))

    async def unlisten(self, channel: str) -> None:
        """Take it back: behind a pooler, others would be notified."""
        await self.run(f"unlisten {channel}")

    @property
    def usable(self) -> bool:
        return not self._raw.is_closed()

    def sever(self) -> None:
        """Cut it, without a word."""
        _open.discard(self)
        self._raw.terminate()

    async def close(self) -> None:
        _open.discard(self)
        try:
            await self._raw.close(timeout=2.0)
        except (OSError, TimeoutError, driver.InterfaceError, driver.PostgresError):
            self._raw.terminate()


def reading(name: str, *args: object) -> Callable[[Connection], Awaitable[list[Row]]]:
    """``Connection.read`` as a job for a lane."""
    return lambda db: db.read(name, *args)


def writing(name: str, *args: object) -> Callable[[Connection], Awaitable[list[Row]]]:
    return lambda db: db.write(name, *args)


def sever_all() -> None:
    """Cut all connections of this process."""
    for connection in list(_open):
        connection.sever()


async def connect(target: Target, sql: Mapping[str, str], *, prepare: bool, seconds: float) -> Connection:
    """Open one. ``prepare`` only where no pooler is known to stand between.

    Raises what asyncpg raises, ``OSError`` and ``TimeoutError``.
    """
    if Trouble.gone:
        raise ConnectionRefusedError("the store was broken on purpose")
    with anyio.fail_after(target.connect_seconds + 1):
        raw = await driver.connect(
            target.dsn,
            timeout=target.connect_seconds,
            statement_cache_size=100 if prepare else 0,
            max_cached_statement_lifetime=60,
            server_settings=target.server_settings,
        )
        try:
            identity = _identity(raw, (await raw.fetch(sql["identify"]))[0])
            if not identity.pooled:
                await raw.fetch(sql["limits"], f"{seconds * 1000:.0f}ms", f"{LOCK_SECONDS * 1000:.0f}ms")
        except BaseException:
            raw.terminate()
            raise
    return Connection(raw, sql, identity, seconds)


def _identity(raw: _Raw, row: Row) -> Identity:
    pid, server_start, start, clock, standby, role, database = row
    return Identity(
        cast(int, pid),
        cast(str, server_start),
        cast("str | None", start),
        cast(int, clock),
        bool(standby),
        str(role),
        str(database),
        pooled=pid != raw.get_server_pid(),
    )
