"""Logs that a released version wrote must fold for ever, in every World, to what they folded to then."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
import pytest

from harness_durable import fold, recovery
from harness_durable.journal import Inbox, Reader
from harness_durable.recovery import Facts
from harness_durable.transfer import export_session, import_session
from harness_durable.world import World
from harness_durable.worlds import open_world
from tests.histories.summary import summary
from tests.unit.memory_world import MemoryWorld

HERE = Path(__file__).parent
HISTORIES = sorted(HERE.glob("*.jsonl"))
MOST_BYTES = 400_000

WORLDS: dict[str, Callable[[Path], str]] = {
    "file": lambda folder: f"file:{folder / 'logs'}",
    "memory": lambda folder: "",
    "sqlite": lambda folder: f"sqlite:{folder / 'world.db'}",
}

history = pytest.mark.parametrize("path", HISTORIES, ids=lambda path: path.stem)


async def chunks(path: Path) -> AsyncIterator[bytes]:
    data = await anyio.Path(path).read_bytes()
    for start in range(0, len(data), 64 << 10):
        yield data[start : start + (64 << 10)]


@asynccontextmanager
async def imported(path: Path, url: str) -> AsyncGenerator[tuple[World, str]]:
    world: World = await open_world(url) if url else MemoryWorld()
    try:
        yield world, await import_session(world, chunks(path))
    finally:
        await world.aclose()


def test_there_is_a_history_of_the_first_format_and_each_has_its_summary() -> None:
    assert {"format-1-claude-code", "format-1-claude-code-files"} <= {path.stem for path in HISTORIES}
    assert all(path.with_suffix(".json").exists() for path in HISTORIES)


@history
def test_a_history_is_small_and_names_no_machine(path: Path) -> None:
    data = path.read_bytes()
    assert len(data) < MOST_BYTES
    assert b"/tmp/" not in data and b"/root/" not in data


@history
@pytest.mark.parametrize("kind", WORLDS)
async def test_a_history_folds_to_what_it_folded_to_when_it_was_written(
    tmp_path: Path, path: Path, kind: str
) -> None:
    expected = json.loads(path.with_suffix(".json").read_text())
    async with imported(path, WORLDS[kind](tmp_path)) as (world, session):
        assert await summary(Reader(world, session)) == expected


@history
async def test_a_history_comes_out_as_it_went_in(tmp_path: Path, path: Path) -> None:
    async with imported(path, WORLDS["sqlite"](tmp_path)) as (world, session):
        lines = [line async for line in export_session(world, session)]
    assert sorted(lines) == sorted((await anyio.Path(path).read_bytes()).splitlines(keepends=True))


@history
async def test_every_prefix_of_a_history_folds_and_has_a_plan(path: Path) -> None:
    """As if the worker had died there: whatever is planned, it is planned without an error."""
    async with imported(path, "") as (world, session):
        state = fold.fold([])
        rungs: set[str] = set()
        async for entry in Reader(world, session).entries():
            fold.apply(state, entry)
            rungs.add(recovery.plan(state, Facts(keeper_alive=False)).rung)
            assert fold.load(fold.dump(state)) == state
    assert {"idle", "start", "continue"} <= rungs


@history
async def test_a_conversation_from_a_history_can_go_on(tmp_path: Path, path: Path) -> None:
    async with imported(path, WORLDS["sqlite"](tmp_path)) as (world, session):
        inbox = await Inbox.open(world, session)
        assert await inbox.accept("a-new-message", "and now?")
        state = await inbox.refresh()
        assert recovery.plan(state, Facts(keeper_alive=False)).message == "a-new-message"
        assert (await world.session(session)).due is not None
