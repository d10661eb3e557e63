"""A scripted second process on a file World, for tests that hurt it between two system calls.

``python file_child.py FOLDER MODE`` claims session ``s`` and appends batches; it prints one line for each
thing that it was told is durable. After a refusal it says so, and tries again with the same records.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
import sys
from collections.abc import Awaitable, Callable
from functools import partial
from typing import TypeVar

from harness_durable.errors import HarnessDurableError, StorageUnavailable
from harness_durable.world import Owner, Record, RowUpdate
from harness_durable_worlds.file import open_world

T = TypeVar("T")
BATCHES = 4
RUNNING = RowUpdate("running", 1)


def batch(number: int) -> list[Record]:
    """The records of the ``number``-th append; also known to the tests."""
    return [Record(f"b{number}.{i}", "check.note", 1, b"%d" % i * 60) for i in range(1 + number % 3)]


def blob(number: int) -> dict[str, bytes]:
    data = b"r" + b"%d" % number * 500
    return {hashlib.sha256(data[1:]).hexdigest(): data} if number % 2 else {}


def say(*words: object) -> None:
    print(*words, flush=True)


async def insist(name: str, attempt: Callable[[], Awaitable[T]]) -> T:
    """Once more after each refusal, on the same World object, as the runtime does."""
    for _ in range(5):
        try:
            return await attempt()
        except StorageUnavailable as error:
            say("refused", name, "unclear" if error.unclear else "clear")
    raise SystemExit(3)


async def main(folder: str, mode: str) -> None:
    """``mode``: ``new`` creates the session, ``step`` takes one that exists and waits for a line of input
    before each append."""
    say("pid", os.getpid())
    world = await insist("open", lambda: open_world(f"file:{folder}", "a"))
    owner = Owner(f"{os.getpid()}-child", "host", os.getpid())
    await insist("register", lambda: world.register(owner, 60.0))
    if mode == "new":
        first = [Record("c", "check.begun", 1, b"begun")]
        await insist("create", lambda: world.create("s", first, RUNNING))
        say("created")
    claim = await insist("claim", lambda: world.claim_session(owner, "s"))
    say("claimed", claim.epoch, claim.head)
    head = claim.head
    for number in range(BATCHES):
        if mode == "step":
            sys.stdin.readline()
        append = partial(world.append, expected_head=head, epoch=claim.epoch, records=batch(number))
        try:
            head = await insist(str(number), lambda: append("s", blobs=blob(number), row=RUNNING))  # noqa: B023
        except HarnessDurableError as error:
            say("ended", type(error).__name__, error)
            break
        say("acked", number, head)
    await world.aclose()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], sys.argv[2]))
