"""Case 15d: a roll-back in place deletes and overwrites only what a snapshot recorded."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from harness_durable.errors import DamagedWorkspace
from harness_durable.workspace import RolledBack, roll_back
from tests.unit.workspace.kit import Kept, Watched, tree, write


async def two_steps(place: Path) -> tuple[Watched, str, dict[bytes, tuple[object, ...]]]:
    """A workspace that went from one state to another; the root and the files of the first."""
    write(
        place,
        {
            "same": "1",
            "edited": "1",
            "gone/deep/er": "1",
            "kind": "a file",
            "mode": "1",
            "big": bytes(600_000),
        },
    )
    (place / "link").symlink_to("same")
    (place / "hollow").mkdir()
    watched = Watched(place, Kept())
    await watched.step()
    first, files = watched.root, tree(place)
    write(place, {"edited": "2", "new/deep/er": "1", "big": os.urandom(600_000)})
    (place / "gone/deep/er").unlink()
    for name in ("gone/deep", "gone", "hollow"):
        (place / name).rmdir()
    for name in ("kind", "link"):
        (place / name).unlink()
    write(place, {"kind/of/folder": "1"})
    (place / "link").symlink_to("edited")
    (place / "mode").chmod(0o600)
    await watched.step()
    return watched, first, files


async def back(watched: Watched, target: str) -> RolledBack:
    return await roll_back(watched.place, watched.root, target, watched.kept.read)


async def test_the_files_are_those_of_the_step(tmp_path: Path) -> None:
    watched, first, files = await two_steps(tmp_path / "w")
    second, later = watched.root, tree(tmp_path / "w")
    done = await back(watched, first)
    assert done.kept == () and tree(tmp_path / "w") == files
    assert (await watched.step()).root == first
    assert (await back(watched, second)).kept == () and tree(tmp_path / "w") == later


async def test_what_the_snapshot_did_not_record_is_kept_and_said(tmp_path: Path) -> None:
    place = tmp_path / "w"
    write(place, {".gitignore": "*.log\ncache/\n", "a": "1", "old": "1"})
    watched = Watched(place, Kept())
    await watched.step()
    first = watched.root
    (place / "old").unlink()
    write(place, {"new/x": "1", "new/x.log": "mine", "new/cache/y": "mine", "a": "2", "a.log": "mine"})
    await watched.step()
    write(place, {"new/made": "since", "a": "changed since", "old": "made since"})
    done = await back(watched, first)
    assert {left.path: left.reason for left in done.kept} == {
        "a": "was changed since the snapshot",
        "new/": "holds files that the snapshot does not have",
        "old": "was made since, and is not in the snapshot",
    }
    found = {name: state[1] for name, state in tree(place).items()}
    assert found[b"new/x.log"] == found[b"new/cache/y"] == found[b"a.log"] == b"mine"
    assert found[b"new/made"] == b"since" and found[b"a"] == b"changed since"
    assert found[b"old"] == b"made since" and b"new/x" not in found


async def test_a_file_with_credentials_is_not_touched(tmp_path: Path) -> None:
    place, config = tmp_path / "w", '[http]\n\textraheader = "secret"\n'
    write(
        place,
        {".git/HEAD": "ref: refs/heads/a\n", ".git/config": config, ".git/objects/x": "", ".git/refs/x": ""},
    )
    watched = Watched(place, Kept())
    await watched.step()
    first = watched.root
    write(place, {".git/HEAD": "ref: refs/heads/b\n", ".git/config": config + "[core]\n\tx = 1\n"})
    await watched.step()
    done = await back(watched, first)
    assert [left.path for left in done.kept] == [".git/config"]
    assert (place / ".git/config").read_text() == config + "[core]\n\tx = 1\n"
    assert (place / ".git/HEAD").read_text() == "ref: refs/heads/a\n"


async def test_a_folder_that_was_swapped_for_a_link_leads_nowhere(tmp_path: Path) -> None:
    place, outside = tmp_path / "w", tmp_path / "outside"
    write(place, {"d/a": "1", "d/b": "1"})
    write(outside, {"a": "2", "b": "1"})
    watched = Watched(place, Kept())
    await watched.step()
    first = watched.root
    write(place, {"d/a": "2"})
    (place / "d/b").unlink()
    await watched.step()
    (place / "d").rename(place / "e")
    (place / "d").symlink_to(outside)
    before = tree(outside, times=True)
    done = await back(watched, first)
    assert [left.path for left in done.kept] == ["d"] and tree(outside, times=True) == before


async def test_damage_is_met_before_anything_changes(tmp_path: Path) -> None:
    watched, first, files = await two_steps(tmp_path / "w")
    before = tree(tmp_path / "w")
    lost = next(name for name in watched.kept.blobs if watched.kept.raw(name) == b"a file")
    del watched.kept.blobs[lost]
    with pytest.raises(DamagedWorkspace) as caught:
        await back(watched, first)
    assert caught.value.damaged == (("kind", lost),) and caught.value.partial is None
    assert tree(tmp_path / "w") == before != files


async def test_what_a_killed_roll_back_left_is_no_part_of_a_snapshot_and_goes_with_the_next(
    tmp_path: Path,
) -> None:
    watched, first, files = await two_steps(tmp_path / "w")
    write(tmp_path / "w", {".hd-rollback/0000": "half"})
    assert (await watched.step()).counts.total == 0
    await back(watched, first)
    assert tree(tmp_path / "w") == files
