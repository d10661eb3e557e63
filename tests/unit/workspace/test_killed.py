"""Cases 8 and 15c, as far as files go: SIGKILL at any blob or write, and the next try is clean and right."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from harness_durable.workspace import restore, roll_back
from tests.unit.workspace.kit import WHEN, Kept, Watched, inside, tree, write

PROGRAM = """
import os, signal, sys
from pathlib import Path
import anyio
from harness_durable.errors import NotFound
from harness_durable.workspace import Limits, Tracker, restore, roll_back, sink

what, place, store, root, at, *more = sys.argv[1:]
left, store, place = int(at), Path(store), Path(place)
sink.BATCH = sink.WITH_EVENT = 2000

def die():
    global left
    left -= 1
    if left == 0:
        os.kill(os.getpid(), signal.SIGKILL)

def counting(module, name):
    real = getattr(module, name)
    def counted(*words, **named):
        die()
        return real(*words, **named)
    setattr(module, name, counted)

async def read(name):
    die()
    try:
        return (store / name).read_bytes()
    except FileNotFoundError:
        raise NotFound(name) from None

async def put(blobs):
    for name, stored in blobs.items():
        die()
        beside = store / (name + ".new")
        beside.write_bytes(stored)
        beside.rename(store / name)

async def missing(names):
    die()
    return [name for name in names if not (store / name).exists()]

async def main():
    if what == "restore":
        for name in ("mkdir", "fchmod", "rename"):
            counting(os, name)
        await restore(root, place, read, at_ms=1)
    elif what == "back":
        for name in ("rename", "unlink", "mkdir", "rmdir"):
            counting(os, name)
        await roll_back(place, root, more[0], read)
    else:
        counting(os, "replace")
        counting(os, "open")
        tracker = Tracker(place, Limits(), cache=store / "cache", put=put, missing=missing, read=read)
        scanned = await tracker.scan(root)
        await put(scanned.blobs)
        die()
        tracker.landed(scanned)
        await tracker.remember()

anyio.run(main)
"""

POINTS = [1, 2, 3, 5, 8, 13, 21, 34]


def run(what: str, place: Path, store: Path, root: str, at: int, *more: str) -> bool:
    """Whether it was killed at that point (else it was done before)."""
    words = [sys.executable, "-c", PROGRAM, what, os.fspath(place), os.fspath(store), root, str(at), *more]
    done = subprocess.run(words, capture_output=True, check=False)
    assert done.returncode in (0, -signal.SIGKILL), done.stderr.decode()
    return done.returncode != 0


def stored(folder: Path) -> Kept:
    """What the program left, as this process sees it."""
    kept = Kept()
    kept.blobs = {path.name: path.read_bytes() for path in folder.iterdir() if len(path.name) == 64}
    return kept


async def begun(place: Path, store: Path) -> Watched:
    write(place, {f"d{n % 3}/f{n}": os.urandom(300) for n in range(12)})
    watched = Watched(place, kept := Kept())
    await watched.step()
    write(store, kept.blobs)
    return watched


@pytest.mark.parametrize("at", POINTS)
async def test_a_restore_that_was_killed_leaves_nothing_in_place_and_the_next_is_whole(
    tmp_path: Path, at: int
) -> None:
    watched = await begun(tmp_path / "w", tmp_path / "store")
    dest = tmp_path / "there" / "r"
    assert run("restore", dest, tmp_path / "store", watched.root, at)
    assert not dest.exists()
    await restore(watched.root, dest, watched.kept.read, at_ms=WHEN)
    assert tree(dest) == tree(tmp_path / "w") and inside(tmp_path / "there") == ["r"]


@pytest.mark.parametrize("at", POINTS)
async def test_a_snapshot_that_was_killed_harms_none_before_it_and_the_next_is_right(
    tmp_path: Path, at: int
) -> None:
    place, store = tmp_path / "w", tmp_path / "store"
    watched = await begun(place, store)
    before, files = watched.root, tree(place)
    write(place, {f"d{n % 3}/f{n}": os.urandom(900) for n in range(6)})
    wanted = tree(place)
    assert run("scan", place, store, before, at)
    kept = stored(store)
    await restore(before, tmp_path / "old", kept.read, at_ms=WHEN)
    assert tree(tmp_path / "old") == files
    # The next process: with whatever the stat cache is now, on what the World has.
    following = Watched(place, kept, cache=store / "cache")
    following.root = before
    scanned = await following.step()
    assert scanned.counts.modified == 6
    await restore(following.root, tmp_path / "new", kept.read, at_ms=WHEN)
    assert tree(tmp_path / "new") == wanted == tree(place)
    assert not [name for name in inside(store) if name == "cache.new"]


@pytest.mark.parametrize("at", [1, 3, 8, 12, 20])
async def test_a_roll_back_that_was_killed_is_finished_by_the_next(tmp_path: Path, at: int) -> None:
    place, store = tmp_path / "w", tmp_path / "store"
    watched = await begun(place, store)
    first, files = watched.root, tree(place)
    for number in range(0, 12, 2):
        (place / f"d{number % 3}/f{number}").unlink()
    write(place, {"d1/f1": "2", "new/x": "1", "other/y": "1"})
    await watched.step()
    write(store, watched.kept.blobs)
    run("back", place, store, watched.root, at, first)
    await watched.step()
    done = await roll_back(place, watched.root, first, watched.kept.read)
    assert done.kept == () and tree(place) == files
