"""Case 9 as far as files go: only what landed is known, and no root is given without its content."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

import pytest

from harness_durable.errors import StorageUnavailable
from harness_durable.workspace import restore, sink
from tests.unit.workspace.kit import WHEN, Kept, Watched, tree, write


async def test_a_result_that_never_landed_is_found_again_with_what_came_since(tmp_path: Path) -> None:
    write(tmp_path / "w", {"a": "1"})
    watched = Watched(tmp_path / "w", kept := Kept())
    await watched.step()
    write(tmp_path / "w", {"b": "1"})
    lost = await watched.scan()  # its append failed
    write(tmp_path / "w", {"c": "1"})
    scanned = await watched.step()
    assert [change.path for change in scanned.changes] == ["b", "c"]
    assert lost.blobs.keys() <= kept.blobs.keys() | scanned.blobs.keys() | {lost.root}
    await restore(watched.root, tmp_path / "r", kept.read, at_ms=WHEN)
    assert tree(tmp_path / "r") == tree(tmp_path / "w")


async def test_an_append_whose_answer_was_lost_counts_if_the_log_has_it(tmp_path: Path) -> None:
    write(tmp_path / "w", {"a": "1"})
    watched = Watched(tmp_path / "w", kept := Kept())
    await watched.step()
    write(tmp_path / "w", {"b": "1"})
    scanned = await watched.scan()
    kept.blobs.update(scanned.blobs)
    watched.root = scanned.root  # it is in the log after all; nobody called landed
    write(tmp_path / "w", {"c": "1"})
    following = await watched.step()
    assert [change.path for change in following.changes] == ["c"] and following.opened == 1


async def test_a_root_is_never_given_without_its_content(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sink, "BATCH", 20_000)
    monkeypatch.setattr(sink, "WITH_EVENT", 40_000)
    write(tmp_path / "w", {f"f{n}": os.urandom(5_000) for n in range(40)})
    watched = Watched(tmp_path / "w", kept := Kept())
    scanned = await watched.scan()
    assert len(kept.puts) > 2 and max(kept.puts) <= 40_100
    assert sum(map(len, scanned.blobs.values())) <= 40_100
    watched.land(scanned)
    await restore(scanned.root, tmp_path / "r", kept.read, at_ms=WHEN)
    assert tree(tmp_path / "r") == tree(tmp_path / "w")


async def test_a_world_that_fails_between_two_batches_costs_only_the_rest(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sink, "BATCH", 20_000)
    monkeypatch.setattr(sink, "WITH_EVENT", 20_000)
    write(tmp_path / "w", {f"f{n}": os.urandom(5_000) for n in range(40)})

    class Failing(Kept):
        down = False

        async def put(self, blobs: Mapping[str, bytes]) -> None:
            if self.down and len(self.puts) == 3:
                raise StorageUnavailable("the disk is full; make room")
            await super().put(blobs)

    kept = Failing()
    kept.down = True
    watched = Watched(tmp_path / "w", kept)
    with pytest.raises(StorageUnavailable):
        await watched.scan()
    there = dict(kept.blobs)
    kept.down = False
    scanned = await watched.step()
    assert there and scanned.counts.added == 40
    assert scanned.new_bytes > 200_000 - len(there)
    await restore(watched.root, tmp_path / "r", kept.read, at_ms=WHEN)
    assert tree(tmp_path / "r") == tree(tmp_path / "w")


async def test_content_that_is_there_already_is_not_sent_again(tmp_path: Path) -> None:
    noise = os.urandom(50_000)
    write(tmp_path / "w", {"a": noise})
    watched = Watched(tmp_path / "w", Kept())
    await watched.step()
    write(tmp_path / "w", {"copy/of/a": noise})
    (tmp_path / "w/a").rename(tmp_path / "w/moved")
    scanned = await watched.step()
    assert scanned.new_bytes < 1000 and scanned.counts.added == 2
