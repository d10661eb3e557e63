"""Cases 14 and 15 as far as files go: a folder made anew is the whole or nothing, and forks are apart."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

import anyio.lowlevel
import anyio.to_thread
import pytest

from harness_durable.errors import (
    BadInput,
    DamagedLog,
    DamagedWorkspace,
    SandboxUnavailable,
    StorageUnavailable,
)
from harness_durable.payload import compress
from harness_durable.workspace import (
    content,
    diff,
    fetching,
    manifest,
    names,
    pieces,
    restore,
    restoring,
    roll_back,
)
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
    needed = await names([first], kept.read)
    other = Kept()
    other.blobs = {name: kept.blobs[name] for name in needed}
    await restore(first, tmp_path / "copy", other.read, at_ms=WHEN)
    assert (tmp_path / "copy/a").read_text() == "1"
    assert len(await names([watched.root], kept.read) | needed) == len(kept.blobs)
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


@pytest.mark.parametrize(
    ("line", "whole"),
    [
        (b"f 777777777777777777777 1 KEPT a", True),
        (rb"l 0 1 a\x00b a", False),
        (b"f 644 1 +LIST a", False),
        (b"n a", False),
        (b"f 644", False),
    ],
)
async def test_what_no_scanner_of_ours_writes_is_damage_and_no_accident(
    tmp_path: Path, line: bytes, whole: bool
) -> None:
    kept, put = Kept(), dict[bytes, bytes]()
    for word, raw in ((b"KEPT", b"1"), (b"LIST", b"\xff")):
        put[word] = hashlib.sha256(raw).hexdigest().encode()
        kept.blobs[put[word].decode()] = compress(raw)
    for word, name in put.items():
        line = line.replace(word, name)
    root = hashlib.sha256(line).hexdigest()
    kept.blobs |= {root: compress(line), manifest.EMPTY: compress(b"")}
    (tmp_path / "in").mkdir()
    if whole:
        await restore(root, tmp_path / "r", kept.read, at_ms=WHEN)
        return
    with pytest.raises(DamagedWorkspace):
        await restore(root, tmp_path / "r", kept.read, at_ms=WHEN)
    with pytest.raises(DamagedWorkspace):
        await roll_back(tmp_path / "in", manifest.EMPTY, root, kept.read)
    assert inside(tmp_path / "in") == []
    if not line.startswith(b"l"):
        with pytest.raises(DamagedLog):
            await names([root], kept.read)


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


class Slow(Kept):
    """A store that answers when as many as it can are waiting, or nobody else comes; ``most``: at once."""

    waiting = most = 0
    away = ""

    async def read(self, name: str) -> bytes:
        self.waiting += 1
        self.most = max(self.most, self.waiting)
        for _ in range(20):
            await anyio.lowlevel.checkpoint()
        self.waiting -= 1
        if name == self.away:
            raise StorageUnavailable("the store is away; wait until it is back")
        return await super().read(name)


async def slow(place: Path) -> tuple[str, Slow]:
    kept = Slow()
    write(place, {f"d{number % 5}/f{number}": str(number % 90) for number in range(200)})
    write(place, {"big": os.urandom(10 << 20), "twice": os.urandom(600_000) * 2})
    scanned = await Watched(place, kept).step()
    return scanned.root, kept


async def test_content_is_asked_for_many_at_once_and_comes_back_where_it_belongs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root, kept = await slow(tmp_path / "w")
    monkeypatch.setattr(fetching, "MOST", 30)
    monkeypatch.setattr(fetching, "MOST_BYTES", 1 << 20)
    await restore(root, tmp_path / "r", kept.read, at_ms=WHEN)
    assert tree(tmp_path / "r") == tree(tmp_path / "w")
    assert kept.most == fetching.AT_ONCE


async def test_a_store_that_goes_away_in_a_batch_is_no_damage_and_leaves_nothing(tmp_path: Path) -> None:
    root, kept = await slow(tmp_path / "w")
    kept.away = hashlib.sha256(b"7").hexdigest()
    with pytest.raises(StorageUnavailable):
        await restore(root, tmp_path / "r", kept.read, at_ms=WHEN)
    assert inside(tmp_path) == ["w"]


async def test_how_far_it_is_is_told_while_files_are_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root, kept = await slow(tmp_path / "w")
    monkeypatch.setattr(restoring, "TELL_SECONDS", -1.0)
    told: list[tuple[int, int]] = []
    done = await restore(
        root, tmp_path / "r", kept.read, at_ms=WHEN, progress=lambda files, size: told.append((files, size))
    )
    assert told == sorted(told) and len(set(told)) > 100
    assert told[-1] == (done.files, done.bytes)


@pytest.mark.parametrize("sizes", [[], [1], [9], [1, 9, 1], [4, 4, 4, 4], [1] * 7, [9, 9]])
def test_batches_are_whole_in_order_and_within_their_bounds(
    sizes: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fetching, "MOST", 3)
    monkeypatch.setattr(fetching, "MOST_BYTES", 8)
    found = list(fetching.batches(sizes, lambda size: (1, size)))
    assert [size for part in found for size in part] == sizes
    assert all(part and len(part) <= 3 and (sum(part) <= 8 or len(part) == 1) for part in found)


async def test_nothing_is_held_longer_than_it_is_needed(tmp_path: Path) -> None:
    root, kept = await slow(tmp_path / "w")
    blobs = fetching.Blobs(kept.read)

    def all_of_it() -> set[str]:
        blobs.fetch([root, root])
        for _ in range(2):
            blobs.get(root)
        lines = manifest.walk(root, blobs.get)
        sizes = [sum(map(len, blobs.content(line.ref))) == line.size for _, line in lines if line.kind == "f"]
        assert all(sizes) and len(sizes) == 202
        return set(blobs._hand)  # pyright: ignore[reportPrivateUsage]

    assert await anyio.to_thread.run_sync(all_of_it) == set()


async def test_of_a_damaged_file_nothing_is_held(tmp_path: Path) -> None:
    root, kept = await slow(tmp_path / "w")
    ref = manifest.entries(root, kept.raw)[b"big"].ref
    del kept.blobs[kept.raw(ref[1:]).split(b"\n")[2].decode()]
    blobs = fetching.Blobs(kept.read)

    def some_of_it() -> int:
        with pytest.raises(DamagedLog):
            list(blobs.content(ref))
        return len(blobs._hand)  # pyright: ignore[reportPrivateUsage]

    assert await anyio.to_thread.run_sync(some_of_it) == 0
