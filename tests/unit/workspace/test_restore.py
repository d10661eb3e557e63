"""Cases 14 and 15 as far as files go: a folder made anew is the whole or nothing, and forks are apart."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

import pytest

from harness_durable.errors import BadInput, DamagedWorkspace, SandboxUnavailable
from harness_durable.payload import compress
from harness_durable.workspace import content, diff, manifest, names, pieces, restore
from tests.unit.workspace.kit import WHEN, Kept, Watched, inside, tree, write

FILES = {"a": "1", "d/b": "2", "d/e/c": "3", "big": os.urandom(700_000)}


async def begun(place: Path) -> tuple[Watched, Kept]:
    write(place, FILES)
    watched = Watched(place, kept := Kept())
    await watched.step()
    return watched, kept


async def ref_of(watched: Watched, path: str) -> str:
    changes = await diff("", watched.root, watched.kept.read)
    return next(change.new for change in changes if change.path == path)


async def test_a_lost_folder_comes_back_with_the_same_root(tmp_path: Path) -> None:
    watched, kept = await begun(tmp_path / "w")
    before = tree(tmp_path / "w")
    (tmp_path / "w").rename(tmp_path / "lost")
    restored = await restore(watched.root, tmp_path / "w", kept.read, at_ms=WHEN)
    assert tree(tmp_path / "w") == before
    assert (restored.files, restored.bytes) == (4, 700_003)
    assert (await watched.step()).counts.total == 0
    assert inside(tmp_path) == ["lost", "w"]


async def test_an_empty_folder_is_filled_and_one_that_holds_anything_is_refused(tmp_path: Path) -> None:
    watched, kept = await begun(tmp_path / "w")
    (tmp_path / "empty").mkdir(mode=0o710)
    await restore(watched.root, tmp_path / "empty", kept.read, at_ms=WHEN)
    assert tree(tmp_path / "empty") == tree(tmp_path / "w")
    assert (tmp_path / "empty").stat().st_mode & 0o777 == 0o710
    write(tmp_path / "full", {"mine": "1"})
    (tmp_path / "link").symlink_to("gone")
    for place in ("full", "link", "full/mine"):
        with pytest.raises(BadInput, match=r"not empty|is a link"):
            await restore(watched.root, tmp_path / place, kept.read, at_ms=WHEN)
    assert inside(tmp_path / "full") == ["mine"]


async def test_a_fork_at_a_step_has_its_own_files(tmp_path: Path) -> None:
    watched, kept = await begun(tmp_path / "w")
    roots, trees = [watched.root], [tree(tmp_path / "w")]
    for number in range(3):
        write(tmp_path / "w", {"a": f"step {number}", f"new{number}": "x"})
        await watched.step()
        roots.append(watched.root)
        trees.append(tree(tmp_path / "w"))
    await restore(roots[1], tmp_path / "fork", kept.read, at_ms=WHEN)
    assert tree(tmp_path / "fork") == trees[1]
    fork = Watched(tmp_path / "fork", kept)
    fork.root = roots[1]
    write(tmp_path / "fork", {"a": "the fork's"})
    assert [change.path for change in (await fork.step()).changes] == ["a"]
    assert (await watched.step()).counts.total == 0


async def test_the_blobs_of_a_root_are_what_it_needs_and_no_more(tmp_path: Path) -> None:
    watched, kept = await begun(tmp_path / "w")
    first = watched.root
    write(tmp_path / "w", {"a": "later", "big": os.urandom(300_000)})
    await watched.step()
    needed = await names(first, kept.read)
    other = Kept()
    other.blobs = {name: kept.blobs[name] for name in needed}
    await restore(first, tmp_path / "copy", other.read, at_ms=WHEN)
    assert (tmp_path / "copy/a").read_text() == "1"
    assert len(await names(watched.root, kept.read) | needed) == len(kept.blobs)
    for name in needed:
        less = Kept()
        less.blobs = {each: stored for each, stored in other.blobs.items() if each != name}
        with pytest.raises(DamagedWorkspace):
            await restore(first, tmp_path / f"less-{name[:8]}", less.read, at_ms=WHEN)


async def test_the_content_of_a_change_can_be_read(tmp_path: Path) -> None:
    (tmp_path / "w").mkdir()
    (tmp_path / "w/link").symlink_to("to here")
    watched, kept = await begun(tmp_path / "w")
    assert await content(await ref_of(watched, "big"), kept.read) == FILES["big"]
    assert await content(await ref_of(watched, "link"), kept.read) == b"to here"
    assert await content("", kept.read) == b""
    sizes = [len(piece) async for piece in pieces(await ref_of(watched, "big"), kept.read)]
    assert sizes == [256 << 10, 256 << 10, 700_000 - (512 << 10)]


@pytest.mark.parametrize("harm", ["missing", "other content", "cut"])
async def test_damage_names_the_path_and_the_blob_and_the_rest_is_put_aside(
    tmp_path: Path, harm: str
) -> None:
    watched, kept = await begun(tmp_path / "w")
    name = await ref_of(watched, "d/b")
    stored = kept.blobs.pop(name)
    if harm != "missing":
        kept.blobs[name] = compress(b"other") if harm == "other content" else stored[:-1]
    for partial in ("r.partial", "r.partial-2"):
        with pytest.raises(DamagedWorkspace, match=rf"d/b \(blob {name}\)") as caught:
            await restore(watched.root, tmp_path / "r", kept.read, at_ms=WHEN)
        assert caught.value.damaged == (("d/b", name),) and caught.value.partial == tmp_path / partial
        assert set(tree(tmp_path / partial)) == set(tree(tmp_path / "w")) - {b"d/b"}
    assert not (tmp_path / "r").exists()


async def test_a_damaged_folder_and_a_damaged_piece_are_named_too(tmp_path: Path) -> None:
    watched, kept = await begun(tmp_path / "w")
    pieces_of_big = kept.raw((await ref_of(watched, "big"))[1:]).decode().split("\n")
    folder = manifest.entries(watched.root, kept.raw)[b"d"].ref
    del kept.blobs[pieces_of_big[1]], kept.blobs[folder]
    with pytest.raises(DamagedWorkspace) as caught:
        await restore(watched.root, tmp_path / "r", kept.read, at_ms=WHEN)
    assert set(caught.value.damaged) == {("big", pieces_of_big[1]), ("d/", folder)}
    assert inside(tmp_path / "r.partial/d") == [] and not (tmp_path / "r.partial/big").exists()


async def test_a_manifest_that_leads_out_of_the_folder_is_refused(tmp_path: Path) -> None:
    kept = Kept()
    file = manifest.file_line(b"f", 0o644, 0, manifest.EMPTY, b"x").replace(b" x", rb" \x2e\x2e\x2fx")
    raw = file.replace(b" x", rb" ..")
    root = hashlib.sha256(raw).hexdigest()
    kept.blobs = {root: compress(raw), manifest.EMPTY: compress(b"")}
    with pytest.raises(DamagedWorkspace):
        await restore(root, tmp_path / "in" / "r", kept.read, at_ms=WHEN)
    assert inside(tmp_path / "in") == ["r.partial"] and inside(tmp_path) == ["in"]


async def test_a_disk_that_is_full_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    watched, kept = await begun(tmp_path / "w")
    real = os.write

    def full(fd: int, raw: bytes) -> int:
        if len(raw) > 100_000:
            raise OSError(28, "No space left on device")
        return real(fd, raw)

    with monkeypatch.context() as patch:
        patch.setattr(os, "write", full)
        with pytest.raises(SandboxUnavailable, match="No space left"):
            await restore(watched.root, tmp_path / "r", kept.read, at_ms=WHEN)
    assert inside(tmp_path) == ["w"]
