"""The limits: a file a session with a thread each, and the plainest use of SQLite and PostgreSQL that is as
durable: one INSERT and one commit a step, a connection for each session, and a SELECT of it for ``step``."""

from __future__ import annotations

import asyncio
import json
import os
import sqlite3
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack, closing
from importlib import import_module
from pathlib import Path
from typing import Any

from common import Work, repeated, result_of, serve

asyncpg: Any = import_module("asyncpg")  # it has no types
MOST = 64


def in_threads(stack: AsyncExitStack, session: Callable[[int, float], int]) -> Work:
    """A thread for each session."""
    pool = stack.enter_context(ThreadPoolExecutor(MOST))

    async def work(number: int, end: float) -> int:
        return await asyncio.get_running_loop().run_in_executor(pool, session, number, end)

    return work


def files(folder: Path, body: bytes) -> Callable[[int, float], int]:
    folder.mkdir()

    def session(number: int, end: float) -> int:
        done = 0
        with (folder / f"s{number}.log").open("ab", buffering=0) as file:
            while time.perf_counter() < end:
                file.write(body)
                os.fdatasync(file.fileno())
                done += 1
        return done

    return session


def sqlite(path: Path, body: bytes, back: bool) -> Callable[[int, float], int]:
    def session(number: int, end: float) -> int:
        done = 0
        with closing(sqlite3.connect(path, timeout=60, isolation_level=None)) as db:
            db.execute("pragma synchronous = full")
            while time.perf_counter() < end:
                row = db.execute("insert into log (sid, body) values (?, ?)", (number, body)).lastrowid
                if back:
                    (found,) = db.execute("select body from log where id = ?", (row,)).fetchone()
                    assert json.loads(found)
                done += 1
        return done

    return session


async def postgres(stack: AsyncExitStack, url: str, body: bytes) -> dict[str, Work]:
    links = [await asyncpg.connect(url) for _ in range(MOST)]
    for link in links:
        stack.push_async_callback(link.close)
    await links[0].execute("create table log (sid int, seq int, body bytea, primary key (sid, seq))")
    await links[0].execute("alter table log alter body set storage external")
    puts = [await link.prepare("insert into log values ($1, $2, $3)") for link in links]
    gets = [await link.prepare("select body from log where sid = $1 and seq = $2") for link in links]
    heads = [0] * MOST

    async def append(number: int) -> None:
        heads[number] += 1
        await puts[number].fetch(number, heads[number], body)

    async def step(number: int) -> None:
        await append(number)
        assert json.loads(await gets[number].fetchval(number, heads[number]))

    return {"append": repeated(append), "step": repeated(step)}


async def opened(stack: AsyncExitStack, store: str, size: int) -> dict[str, Work]:
    kind, _, place = store.partition(":")
    body = json.dumps(result_of(size)).encode()
    if kind == "postgresql":
        return await postgres(stack, store, body)
    if kind == "file":
        return {"append": in_threads(stack, files(Path(place), body))}
    path = Path(place)
    with closing(sqlite3.connect(path)) as db:
        db.execute("pragma journal_mode = wal")
        db.execute("create table log (id integer primary key, sid int, body blob)")
    return {
        "append": in_threads(stack, sqlite(path, body, False)),
        "step": in_threads(stack, sqlite(path, body, True)),
    }


if __name__ == "__main__":
    serve(opened)
