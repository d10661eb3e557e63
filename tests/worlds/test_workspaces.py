"""Files of sessions on every World: killed at any call while they are saved, and gone with their session."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

import msgspec
import pytest

from harness_durable import workspace
from harness_durable.errors import NotFound, StorageUnavailable
from harness_durable.journal import Inbox, Reader
from harness_durable.journal.naming import needed
from harness_durable.transfer import export_session, import_session
from harness_durable.world import World
from harness_durable.worlds import open_world
from tests.unit.session_kit import AGENT
from tests.unit.workspace.kit import WHEN, tree, write
from tests.worlds import workspace_child
from tests.worlds.subjects import URLS
from tests.worlds.workspace_child import SESSION, save

POINTS = [
    ("missing_blobs", 1, "after"),
    ("put_blobs", 1, "before"),
    ("put_blobs", 1, "after"),
    ("missing_blobs", 2, "before"),
    ("put_blobs", 2, "after"),
    ("append", 1, "before"),
    ("append", 1, "after"),
]


@pytest.fixture(params=sorted(URLS))
def url(tmp_path: Path, request: pytest.FixtureRequest) -> str:
    return URLS[request.param](tmp_path)


@asynccontextmanager
async def begun(url: str, place: Path, *sessions: str) -> AsyncGenerator[World]:
    """A World with sessions that work in the same place."""
    world = await open_world(url)
    try:
        agent = msgspec.structs.replace(AGENT, workspace=str(place), files="durable")
        for session in sessions:
            await Inbox.create(world, session, agent)
        yield world
    finally:
        await world.aclose()


async def restored(world: World, dest: Path, session: str = SESSION) -> dict[bytes, tuple[object, ...]]:
    """What the last root in the log amounts to."""
    state = await Reader(world, session).load()
    await workspace.restore(state.files.root, dest, partial(world.blob, session), at_ms=WHEN)
    return tree(dest)


def killing(url: str, run: Path) -> subprocess.Popen[str]:
    words = [sys.executable, "-m", "tests.worlds.workspace_child", url, str(run)]
    return subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


async def test_a_worker_killed_at_any_call_leaves_the_last_files_usable_and_the_next_ones_right(
    tmp_path: Path, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Case 8."""
    monkeypatch.setattr(workspace_child.sink, "BATCH", 2000)
    monkeypatch.setattr(workspace_child.sink, "WITH_EVENT", 2000)
    place, run = tmp_path / "work", tmp_path / "run"
    write(place, {f"d{n % 3}/f{n}": os.urandom(300) for n in range(30)})
    async with begun(url, place, SESSION) as world:
        assert not await save(world, run, url)
        with killing(url, run) as killed:
            assert killed.stdin is not None and killed.stdout is not None
            recorded = tree(place)
            for number, (call, nth, when) in enumerate(POINTS):
                write(place, {f"d{n % 3}/f{n}": os.urandom(900) for n in range(9)})
                killed.stdin.write(f"{call} {nth} {when}\n")
                killed.stdin.flush()
                assert int(killed.stdout.readline()) == -signal.SIGKILL, (call, nth, when)
                if (call, when) == ("append", "after"):
                    recorded = tree(place)
                assert await restored(world, tmp_path / f"old{number}") == recorded
            killed.stdin.close()
        write(place, {"last": "1"})
        assert not await save(world, run, url)
        assert await restored(world, tmp_path / "new") == tree(place)
        needs = await needed(world, SESSION)
        assert needs is not None and needs < {name async for name, _ in world.blobs(SESSION)}
        await import_session(world, export_session(world, SESSION), name="swept")
        assert {name async for name, _ in world.blobs("swept")} == needs, "what nobody needs stays behind"
        assert await restored(world, tmp_path / "swept", "swept") == tree(place)
    assert not list(run.rglob("*.new"))


async def test_a_session_that_is_deleted_takes_its_files_along_and_no_other_ones(
    tmp_path: Path, url: str
) -> None:
    """Also lists of pieces and their pieces, and nodes of folders that are cut."""
    place = tmp_path / "work"
    write(place, {"large": os.urandom(600 << 10), **{f"many/f{n}": "same" for n in range(1100)}})
    async with begun(url, place, SESSION, "other") as world:
        for session in ("other", SESSION):
            assert not await save(world, tmp_path / "run", url, session)
        root = (await Reader(world, SESSION).load()).files.root
        named = await workspace.names([root], partial(world.blob, SESSION))
        assert len(named) > 8 and not await world.missing_blobs(SESSION, named)
        await world.delete("other")
        assert not await world.missing_blobs(SESSION, named), "they are of this session, too"
        with pytest.raises(NotFound):
            await world.blob("other", next(iter(named)))
        assert (await restored(world, tmp_path / "restored")) == tree(place)
        await world.delete(SESSION)
        assert await world.missing_blobs(SESSION, named) == named


async def test_a_store_that_fails_between_batch_and_event_leaves_no_root_without_its_blobs(
    tmp_path: Path, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Case 9: each call fails once, as on a full disk, or has done its work and its answer is lost; then the
    store is away for longer than anybody waits, and the changes come with the next look."""
    monkeypatch.setattr(workspace_child.sink, "BATCH", 2000)
    monkeypatch.setattr(workspace_child.sink, "WITH_EVENT", 2000)
    place = tmp_path / "work"
    write(place, {f"f{n}": os.urandom(900) for n in range(9)})
    async with begun(url, place, SESSION) as world:
        for call in ("missing_blobs", "put_blobs", "append"):
            for lost in (False, True):
                write(place, {f"f{n}": os.urandom(900) for n in range(6)})
                with monkeypatch.context() as patch:
                    troubled(patch, world, call, 2, lost=lost)
                    assert not await save(world, tmp_path / "run", url)
                assert await restored(world, tmp_path / f"{call}-{lost}") == tree(place)
        before = tree(place)
        write(place, {f"f{n}": os.urandom(900) for n in range(6)})
        with monkeypatch.context() as patch:
            patch.setattr("harness_durable.runtime.files.PATIENCE", 0.0)
            troubled(patch, world, "put_blobs", 99, lost=False)
            with pytest.raises(StorageUnavailable):
                await save(world, tmp_path / "run", url)
        assert await restored(world, tmp_path / "before") == before
        assert not await save(world, tmp_path / "run", url)
        assert await restored(world, tmp_path / "after") == tree(place)


def troubled(patch: pytest.MonkeyPatch, world: World, call: str, times: int, *, lost: bool) -> None:
    """The next calls fail; ``lost``: after they have done what they should."""
    real, left = getattr(world, call), [times]

    async def failing(*words: object, **named: object) -> object:
        if not left[0] or (call == "append" and not named.get("blobs")):
            return await real(*words, **named)
        left[0] -= 1
        if lost:
            await real(*words, **named)
        raise StorageUnavailable("the disk is full; make room", unclear=lost)

    patch.setattr(world, call, failing)
