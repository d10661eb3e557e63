"""Case 10: the stat cache is only a cache. Lost, damaged or foreign, it costs a full read and no more."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from pathlib import Path

import anyio
import pytest

from harness_durable.workspace import Limits, known, tracker
from tests.runtime.kit import until
from tests.unit.workspace.kit import Kept, Watched, inside, write

FILES = {f"d{number % 7}/f{number}": str(number) for number in range(50)}


def again(watched: Watched, cache: Path | None, place: Path | None = None) -> Watched:
    """Another process, later, on the same log."""
    other = Watched(place or watched.place, watched.kept, cache=cache)
    other.root = watched.root
    return other


async def test_another_process_opens_no_file_if_nothing_changed(tmp_path: Path) -> None:
    write(tmp_path / "w", FILES)
    watched = Watched(tmp_path / "w", Kept(), cache=tmp_path / "cache")
    assert (await watched.step()).opened == 50
    scanned = await again(watched, tmp_path / "cache").step()
    assert (scanned.opened, scanned.root) == (0, watched.root)


def _lose(cache: Path) -> None:
    cache.unlink()


def _empty(cache: Path) -> None:
    cache.write_bytes(b"")


def _cut(cache: Path) -> None:
    cache.write_bytes(cache.read_bytes()[:-10])


def _flip(cache: Path) -> None:
    raw = bytearray(cache.read_bytes())
    raw[len(raw) // 2] ^= 1
    cache.write_bytes(raw)


def _version(cache: Path) -> None:
    cache.write_bytes(cache.read_bytes().replace(b"cache 1\n", b"cache 2\n", 1))


def _folder(cache: Path) -> None:
    cache.unlink()
    cache.mkdir()


@pytest.mark.parametrize("harm", [_lose, _cut, _flip, _version, _folder, _empty])
async def test_a_lost_or_damaged_cache_costs_one_read_and_gives_the_same_root(
    tmp_path: Path, harm: Callable[[Path], object]
) -> None:
    write(tmp_path / "w", FILES)
    watched = Watched(tmp_path / "w", kept := Kept(), cache=tmp_path / "cache")
    await watched.step()
    harm(tmp_path / "cache")
    blobs = dict(kept.blobs)
    scanned = await (other := again(watched, tmp_path / "cache")).step()
    assert (scanned.opened, scanned.root, scanned.new_bytes) == (50, watched.root, 0)
    assert scanned.counts.total == 0 and kept.blobs == blobs
    assert (await other.step()).opened == 0


async def test_a_cache_of_another_host_or_place_is_not_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path / "w", FILES)
    watched = Watched(tmp_path / "w", Kept(), cache=tmp_path / "cache")
    await watched.step()
    (tmp_path / "w").rename(tmp_path / "elsewhere")
    moved = again(watched, tmp_path / "cache", tmp_path / "elsewhere")
    assert (await moved.step()).opened == 50
    here = os.uname()
    monkeypatch.setattr(os, "uname", lambda: os.uname_result((here[0], "other-host", *here[2:])))
    there = again(watched, tmp_path / "cache", tmp_path / "elsewhere")
    scanned = await there.step()
    assert (scanned.opened, scanned.root) == (50, watched.root)


async def test_a_cache_of_another_root_is_not_used_and_the_change_is_told_from_the_log(
    tmp_path: Path,
) -> None:
    write(tmp_path / "w", FILES)
    watched = Watched(tmp_path / "w", kept := Kept(), cache=tmp_path / "cache")
    await watched.step()
    first = watched.root
    write(tmp_path / "w", {"new": "1"})
    await watched.step()
    behind = again(watched, tmp_path / "cache")
    behind.root = first  # the append of the second one never happened
    scanned = await behind.step()
    assert [(change.op, change.path) for change in scanned.changes] == [("added", "new")]
    assert scanned.root == watched.root and kept.blobs


async def test_a_manifest_that_the_world_lost_is_stored_again(tmp_path: Path) -> None:
    write(tmp_path / "w", FILES)
    watched = Watched(tmp_path / "w", kept := Kept())
    await watched.step()
    whole = dict(kept.blobs)
    kept.blobs.clear()
    other = again(watched, None)
    write(tmp_path / "w", {"new": "1"})
    await other.step()
    (tmp_path / "w/new").unlink()
    assert (await other.step()).root == watched.root
    assert whole.keys() <= kept.blobs.keys()


async def test_a_cache_that_cannot_be_written_is_done_without(tmp_path: Path) -> None:
    write(tmp_path / "w", FILES)
    (tmp_path / "no").write_text("a file, where the folder should be")
    watched = Watched(tmp_path / "w", Kept(), cache=tmp_path / "no" / "cache")
    await watched.step()
    assert (await watched.step()).opened == 0


async def test_other_settings_are_other_rules(tmp_path: Path) -> None:
    write(tmp_path / "w", {"a": "1", "secret/b": "1"})
    watched = Watched(tmp_path / "w", kept := Kept(), cache=tmp_path / "cache")
    await watched.step()
    other = Watched(tmp_path / "w", kept, Limits(exclude=("secret/",)), cache=tmp_path / "cache")
    other.root = watched.root
    scanned = await other.step()
    assert [(change.op, change.path) for change in scanned.changes] == [("removed", "secret/b")]


async def test_a_file_of_the_cache_holds_what_is_known_and_no_more(tmp_path: Path) -> None:
    write(tmp_path / "w", {"a": "1"})
    watched = Watched(tmp_path / "w", Kept(), cache=tmp_path / "in" / "cache")
    await watched.step()
    assert inside(tmp_path / "in") == ["cache"]
    assert known.CacheFile(tmp_path / "in/cache", "somebody else").load() is None
    first = (tmp_path / "in/cache").stat()
    await watched.step()  # nothing new: it is not written again
    assert (tmp_path / "in/cache").stat().st_ino == first.st_ino


async def test_writing_it_holds_up_nobody_else_and_not_for_ever_who_waits_for_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path / "w", FILES)
    watched = Watched(tmp_path / "w", Kept(), cache=tmp_path / "cache")
    watched.land(await watched.scan())
    begun, enough, seen = threading.Event(), threading.Event(), list[bool]()
    real = known.CacheFile.save

    def stuck(*words: object) -> None:
        begun.set()
        seen.append(enough.wait(20))
        real(*words)  # type: ignore[arg-type]  # as they came

    async def is_begun() -> bool:
        return begun.is_set()

    monkeypatch.setattr(known.CacheFile, "save", stuck)
    with anyio.fail_after(10), anyio.CancelScope() as scope:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(watched.tracker.remember)
            await until(is_begun)  # the loop goes round meanwhile
            scope.cancel()  # whoever is cancelled has it written all the same
            tasks.cancel_scope.shield = True
            enough.set()
    assert seen == [True] and inside(tmp_path) == ["cache", "w"]

    monkeypatch.setattr(tracker, "REMEMBER_SECONDS", 0.01)
    enough.clear()
    write(tmp_path / "w", {"new": "1"})
    watched.land(await watched.scan())
    with anyio.fail_after(10):
        await watched.tracker.remember()
    enough.set()
    following = again(watched, tmp_path / "cache")

    async def written() -> bool:
        return following.tracker.remembered() == watched.root

    await until(written)


async def test_an_older_one_that_comes_late_does_not_replace_a_newer_one(tmp_path: Path) -> None:
    file = known.CacheFile(tmp_path / "cache", "here")
    file.save(known.Known("second"), 2)
    file.save(known.Known("first"), 1)
    assert file.load() == known.Known("second")
    file.save(
        known.Known("third", "said", {b"a/": known.Folder("ref", b"", True, {b"x": (None, True, b"l")})}), 3
    )
    found = file.load()
    assert found is not None and found.folders[b"a/"].entries == {b"x": (None, True, b"l")}
    assert (found.root, found.said, inside(tmp_path)) == ("third", "said", ["cache"])
