"""What can be said of a life from outside, by whatever holds it."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
import pytest
from anyio.abc import SocketStream

from harness_durable.sandbox import LifeRef
from harness_durable_sandboxes.client import encode_line
from harness_durable_sandboxes.keeper import PROTOCOL
from harness_durable_sandboxes.lives import Lives, run_of


@asynccontextmanager
async def listening(tmp_path: Path, says: bytes) -> AsyncGenerator[tuple[Lives, LifeRef]]:
    """A life at whose socket somebody says that, and hangs up."""
    lives = Lives(tmp_path, "x")
    ref = lives.locate("l")
    run_of(ref).mkdir(parents=True)
    (Path(ref.run_dir) / "token").write_text("token")

    async def say(stream: SocketStream) -> None:
        async with stream:
            if says:
                await stream.receive()
                await stream.send(says)

    door = await anyio.create_unix_listener(run_of(ref) / "ctl.sock")
    async with door, anyio.create_task_group() as tasks:
        tasks.start_soon(door.serve, say)
        yield lives, ref
        tasks.cancel_scope.cancel()


async def test_a_keeper_that_is_being_killed_can_be_reached_and_does_not_answer(tmp_path: Path) -> None:
    async with listening(tmp_path, b"") as (lives, ref):
        assert await lives.alive(ref)
        assert not await lives.answers(ref)


@pytest.mark.parametrize(
    "says",
    [
        encode_line(v=PROTOCOL, ok=True),
        encode_line(v=PROTOCOL, ok=False, error="token"),
        encode_line(v=PROTOCOL + 1, ok=False, error="version"),
        b"no keeper of ours\n",
    ],
)
async def test_whoever_says_anything_is_there(tmp_path: Path, says: bytes) -> None:
    async with listening(tmp_path, says) as (lives, ref):
        assert await lives.answers(ref)


async def test_a_life_that_left_nothing_does_not_answer(tmp_path: Path) -> None:
    lives = Lives(tmp_path, "x")
    assert not await lives.answers(lives.locate("l"))
