"""A scripted second process on a file World, for tests that hurt it between two system calls.

``python file_child.py FOLDER`` waits for a line on its input, then creates session ``s``, claims it and
appends batches; it prints one line for each thing that it was told is durable. With ``drive`` as second
argument it claims a session that exists. After a refusal it says so and goes on with the same records.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
import sys

from harness_durable.errors import HarnessDurableError, StorageUnavailable
from harness_durable.world import Owner, Record, RowUpdate
from harness_durable_worlds.file import FileWorld, open_world

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


async def claimed(world: FileWorld, owner: Owner) -> tuple[int, int]:
    for _ in range(5):
        try:
            claim = await world.claim_session(owner, "s")
            say("claimed", claim.epoch, claim.head)
            return claim.epoch, claim.head
        except StorageUnavailable as error:
            say("refused", "claim", error)
    raise SystemExit(3)


async def appended(world: FileWorld, number: int, head: int, epoch: int) -> int:
    for _ in range(5):
        try:
            head = await world.append(
                "s",
                expected_head=head,
                epoch=epoch,
                records=batch(number),
                blobs=blob(number),
                row=RUNNING,
            )
            say("acked", number, head)
            return head
        except StorageUnavailable as error:
            say("refused", number, "unclear" if error.unclear else "clear")
    raise SystemExit(3)


async def main(folder: str, mode: str) -> None:
    world = await open_world(f"file:{folder}", "a")
    owner = Owner("00000000-child", "host", os.getpid())
    await world.register(owner, 60.0 if mode != "short" else 0.05)
    if mode == "new":
        await world.create("s", [Record("c", "check.begun", 1, b"begun")], RUNNING)
        say("created")
    epoch, head = await claimed(world, owner)
    for number in range(BATCHES):
        if mode == "step":
            sys.stdin.readline()
        try:
            head = await appended(world, number, head, epoch)
        except HarnessDurableError as error:
            say("ended", type(error).__name__, error)
            break
    await world.aclose()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], sys.argv[2]))
