"""Progress that goes together: what its callers hear when the write fails, or one of them gives up."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import cast

import pytest

from harness_durable.errors import NotFound, StorageUnavailable
from harness_durable_worlds._postgres_db import Connection
from harness_durable_worlds._postgres_lane import Lane, Work
from harness_durable_worlds._postgres_progress import Progress

AWAY = StorageUnavailable("the store is away")


class Server:
    """A lane and its connection. It knows the sessions a, b and c, and does as many ``writes`` as it may."""

    def __init__(self, failure: Exception | None = None) -> None:
        self.failure, self.writes = failure, asyncio.Semaphore(0)
        self.tried = 0
        self.written: list[dict[str, bytes]] = []

    def go_on(self, writes: int = 9) -> None:
        for _ in range(writes):
            self.writes.release()

    async def do(self, work: Work[set[str]]) -> set[str]:
        self.tried += 1
        await self.writes.acquire()
        if self.failure is not None:
            raise self.failure
        return await work(cast(Connection, self))

    async def write(self, name: str, app: str, names: list[str], bodies: list[bytes]) -> list[list[str]]:
        assert (name, app) == ("put_progress", "app")
        self.written.append(dict(zip(names, bodies, strict=True)))
        return [[each] for each in names if each in "abc"]


async def settle() -> None:
    """Until nobody can do anything but wait."""
    for _ in range(9):
        await asyncio.sleep(0)


async def asked(server: Server, *sessions: str) -> Sequence[asyncio.Task[None]]:
    """All of them have asked; the first one's write is under way."""
    progress = Progress(cast(Lane, server), "app")
    tasks = [asyncio.create_task(progress.put(each, each.encode())) for each in sessions]
    await settle()
    return tasks


async def test_what_comes_while_a_write_is_under_way_goes_together() -> None:
    server = Server()
    tasks = await asked(server, "a", "b", "c", "b")
    server.go_on()
    await asyncio.gather(*tasks)
    assert server.written == [{"a": b"a"}, {"b": b"b", "c": b"c"}]


async def test_only_who_named_no_session_hears_of_it() -> None:
    server = Server()
    tasks = await asked(server, "a", "none", "b")
    server.go_on()
    found = await asyncio.gather(*tasks, return_exceptions=True)
    assert [type(each) for each in found] == [type(None), NotFound, type(None)]


async def test_all_of_a_write_that_failed_hear_why_and_none_tries_it_again() -> None:
    server = Server(AWAY)
    tasks = await asked(server, "a", "b", "c")
    server.go_on()
    assert await asyncio.gather(*tasks, return_exceptions=True) == [AWAY, AWAY, AWAY]
    assert server.tried == 2, "each would wait as long as the store lets it"


async def test_after_a_write_that_failed_the_next_is_done() -> None:
    server = Server(AWAY)
    server.go_on()
    progress = Progress(cast(Lane, server), "app")
    with pytest.raises(StorageUnavailable):
        await progress.put("a", b"lost")
    server.failure = None
    await progress.put("a", b"again")
    assert server.written == [{"a": b"again"}]


async def test_who_has_it_done_and_gives_up_takes_nobody_along() -> None:
    server = Server()
    first, leading, other = await asked(server, "a", "b", "c")
    server.go_on(1)
    await first
    await settle()
    assert server.tried == 2
    leading.cancel()
    with pytest.raises(asyncio.CancelledError):
        await leading
    server.go_on()
    await other
    assert server.written[-1] == {"b": b"b", "c": b"c"}
