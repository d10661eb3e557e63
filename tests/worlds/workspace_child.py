"""A worker that saves the files of a session and is killed at a call to its World, again and again.

``python -m tests.worlds.workspace_child URL RUN`` reads lines ``CALL NUMBER WHEN``: with each it forks, and
the child saves the files and kills itself before or after that call. It answers with the exit code."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path

import anyio

from harness_durable.journal import Journal
from harness_durable.runtime.equipment import Equipment
from harness_durable.runtime.files import SessionFiles
from harness_durable.settings import resolve
from harness_durable.workspace import sink
from harness_durable.world import Owner, World
from harness_durable.worlds import open_world

SESSION = "s"


async def save(world: World, run_dir: Path, url: str, session: str = SESSION) -> str:
    """Claim a session, put its files into its log, and give it back; why they are not there, or nothing."""
    owner = Owner(f"{os.getpid()}-{os.urandom(4).hex()}", "here", os.getpid())
    await world.register(owner)
    claim = await world.claim_session(owner, session, take_over=True)
    settings = resolve().settings.model_copy(update={"run_dir": run_dir, "world": url})
    files = SessionFiles(world, session, Equipment(settings))
    journal = await Journal.open(world, claim, tracker=files)
    assert journal.state.agent is not None
    files.take(journal.state.agent)
    skipped = await journal.files_committed("found")
    await world.release(session, claim.epoch)
    return skipped


async def dying(url: str, run_dir: Path, call: str, number: int, when: str) -> None:
    world = await open_world(url)
    real, left = getattr(world, call), [number]

    async def counted(*words: object, **named: object) -> object:
        if call == "append" and not named.get("blobs"):
            return await real(*words, **named)
        left[0] -= 1
        if left[0] == 0 and when == "before":
            os.kill(os.getpid(), signal.SIGKILL)
        found = await real(*words, **named)
        if left[0] == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        return found

    setattr(world, call, counted)
    await save(world, run_dir, url)
    await world.aclose()


def in_a_child(work: Callable[[], Awaitable[None]]) -> int:
    """The exit code; of one that was killed the negative signal. Nothing has a thread before it forks."""
    child = os.fork()
    if not child:
        anyio.run(work)
        os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def main(url: str, run_dir: str) -> None:
    small_batches()
    for line in sys.stdin:
        call, number, when = line.split()

        async def work(call: str = call, number: int = int(number), when: str = when) -> None:
            await dying(url, Path(run_dir), call, number, when)

        print(in_a_child(work), flush=True)


def small_batches() -> None:
    """So that a few files are several batches."""
    sink.BATCH = sink.WITH_EVENT = 2000


if __name__ == "__main__":
    main(*sys.argv[1:])
