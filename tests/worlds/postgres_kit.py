"""What the tests of the Postgres World share, beside the servers of ``postgres_support``."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from importlib import import_module
from typing import Protocol, cast

import anyio

from harness_durable.errors import StorageUnavailable
from harness_durable.world import Claim, Owner, Record, RowUpdate, StoredRecord
from harness_durable_worlds.postgres import PostgresWorld, open_world
from tests.worlds.postgres_support import Cluster

APP = "tests"
PARKED = RowUpdate("parked", None)
DUE = RowUpdate("ready", 1)
DEADLINE = 30.0


class Sql(Protocol):
    """A plain connection of asyncpg."""

    async def fetch(self, query: str, *args: object) -> list[tuple[object, ...]]: ...
    async def execute(self, query: str) -> str: ...
    async def close(self) -> None: ...


def record(name: str, body: bytes = b"body") -> Record:
    return Record(name, "test.note", 1, body)


def owner(name: str = "") -> Owner:
    return Owner(f"{name}{uuid.uuid4().hex}", "here", 1)


def ids(log: list[StoredRecord]) -> list[str]:
    assert [each.seq for each in log] == list(range(1, len(log) + 1))
    return [each.id for each in log]


async def begin(world: PostgresWorld, session: str = "s", row: RowUpdate = PARKED) -> int:
    assert await world.create(session, [record("first")], row)
    return 1


async def add(world: PostgresWorld, name: str, head: int, epoch: int = 0, session: str = "s") -> int:
    return await world.append(session, expected_head=head, epoch=epoch, records=[record(name)])


async def until(true: Callable[[], Awaitable[bool]], seconds: float = DEADLINE) -> None:
    """Wait until it is true, or fail."""
    with anyio.fail_after(seconds):
        while not await true():  # noqa: ASYNC110 - what is waited for is in another process
            await anyio.sleep(0.01)


async def insist(call: Callable[[], Awaitable[object]]) -> None:
    """As a caller does who is told that the store is away: once more with the same records."""
    with anyio.fail_after(DEADLINE):
        while True:
            try:
                await call()
                return
            except StorageUnavailable:
                await anyio.sleep(0.02)


async def claim_due(world: PostgresWorld, who: Owner) -> Claim:
    """As a worker does: wait, claim, wait."""
    with anyio.fail_after(DEADLINE):
        while True:
            try:
                for claim in await world.claim(who, 1):
                    return claim
                await world.wait_due(1.0)
            except StorageUnavailable:
                await anyio.sleep(0.02)


@asynccontextmanager
async def opened(url: str, count: int = 1, app: str = APP) -> AsyncGenerator[list[PostgresWorld]]:
    async with AsyncExitStack() as stack:
        worlds: list[PostgresWorld] = []
        for _ in range(count):
            worlds.append(await open_world(url, app))
            stack.push_async_callback(worlds[-1].aclose)
        yield worlds


@asynccontextmanager
async def plain(server: Cluster, **settings: object) -> AsyncGenerator[Sql]:
    """A connection of the superuser, beside any World."""
    connect = import_module("asyncpg").connect
    place = {"host": str(server.folder), "port": server.port, "user": server.user, "database": "postgres"}
    connection = cast(Sql, await connect(**{**place, **settings}))
    try:
        yield connection
    finally:
        await connection.close()


async def backends(sql: Sql, schema: str, where: str = "true") -> list[int]:
    """The server processes of the World whose application name is the schema's."""
    rows = await sql.fetch(
        f"select pid from pg_stat_activity where application_name = $1 and {where}", schema
    )
    return [cast(int, row[0]) for row in rows]


class Proxy:
    """Stands between a World and its server, and lets go wrong what networks let go wrong."""

    def __init__(self, port: int) -> None:
        self.port, self._server_port = 0, port
        self._cut: tuple[bytes, bool] | None = None
        self.cuts = 0
        self._frozen = False
        self._writers: set[asyncio.StreamWriter] = set()
        self._tasks: set[asyncio.Task[None]] = set()

    def cut_at(self, words: bytes, *, arrives: bool) -> None:
        """The next time that a client sends these words, its connection is cut: before they arrive at the
        server, or after the server has answered."""
        self._cut = (words, arrives)

    def freeze(self) -> None:
        """Whatever is open stays open, and nothing passes any more, either way; nor through anything new."""
        self._frozen = True

    def thaw(self) -> None:
        """New connections work again; what was frozen stays so."""
        self._frozen = False

    async def _client(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        up_reader, up_writer = await asyncio.open_connection("127.0.0.1", self._server_port)
        self._writers |= {writer, up_writer}
        link = _Link(self)
        up = asyncio.create_task(link.up(reader, up_writer))
        down = asyncio.create_task(link.down(up_reader, writer))
        self._tasks |= {up, down}
        await asyncio.wait({up, down}, return_when=asyncio.FIRST_COMPLETED)
        for each in (writer, up_writer):
            each.transport.abort()

    async def __aenter__(self) -> Proxy:
        self._server = await asyncio.start_server(self._client, "127.0.0.1", 0)
        self.port = int(self._server.sockets[0].getsockname()[1])
        return self

    async def __aexit__(self, *_: object) -> None:
        self._server.close()
        for writer in self._writers:
            writer.transport.abort()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await asyncio.sleep(0)

    def take_cut(self, data: bytes) -> bool | None:
        """Whether what a client sends is to be cut off now: ``arrives``, or ``None``."""
        if self._cut is None or self._cut[0] not in data:
            return None
        arrives, self._cut = self._cut[1], None
        self.cuts += 1
        return arrives

    @property
    def frozen(self) -> bool:
        return self._frozen


class _Link:
    def __init__(self, proxy: Proxy) -> None:
        self._proxy, self._dead, self._last_answer = proxy, False, False

    async def up(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(1 << 16):
            if self._swallowed():
                continue
            arrives = self._proxy.take_cut(data)
            if arrives is False:
                return
            self._last_answer = arrives is True
            writer.write(data)
            await writer.drain()

    async def down(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(1 << 16):
            if self._swallowed():
                continue
            if self._last_answer:
                return
            writer.write(data)
            await writer.drain()

    def _swallowed(self) -> bool:
        self._dead = self._dead or self._proxy.frozen
        return self._dead
