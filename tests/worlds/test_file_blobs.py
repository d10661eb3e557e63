"""Which folders are synced for an append: those whose entries this process does not know to be durable."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from harness_durable_worlds import _file_append, _file_disk, _file_store
from harness_durable_worlds.file import FileWorld
from tests.worlds.file_support import PARKED, note, opened, worker


@pytest.fixture
def synced(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Names of the folders that are synced for an append and its blobs."""
    found: list[str] = []

    def sync(folder: Path) -> None:
        found.append(folder.name)
        _file_disk.sync_folder(folder)

    for module in (_file_append, _file_store):
        monkeypatch.setattr(module, "sync_folder", sync)
    return found


def same_folder(count: int) -> list[tuple[str, bytes]]:
    """Blobs whose names begin alike."""
    found: list[tuple[str, bytes]] = []
    for number in range(100_000):
        body = f"{number}".encode()
        name = hashlib.sha256(body).hexdigest()
        if name.startswith("00"):
            found.append((name, body))
            if len(found) == count:
                break
    return found


async def put(world: FileWorld, head: int, *blobs: tuple[str, bytes]) -> int:
    return await world.append("s", expected_head=head, epoch=0, records=[note()], blobs=dict(blobs))


async def test_a_folder_that_is_known_to_be_durable_is_not_synced_again(
    tmp_path: Path, synced: list[str]
) -> None:
    blobs = same_folder(4)
    async with opened(tmp_path) as world:
        await world.create("s", [note()], PARKED)
        head = await put(world, await put(world, 1), blobs[0])
        synced.clear()
        assert await put(world, head, blobs[1]) == head + 1
        assert synced == ["00"]
        synced.clear()
        far = hashlib.sha256(b"far").hexdigest(), b"far"
        await put(world, head + 1, blobs[2], far)
        assert sorted(synced) == sorted(["00", far[0][:2], "blobs"])


async def test_a_session_that_was_made_anew_is_not_known(tmp_path: Path, synced: list[str]) -> None:
    """Whoever made its folders may have died before they were durable."""
    blobs = same_folder(3)
    async with opened(tmp_path) as world, opened(tmp_path) as other:
        await world.create("s", [note()], PARKED)
        await put(world, await put(world, await put(world, 1), blobs[0]), blobs[1])
        await other.delete("s")
        await other.create("s", [note()], PARKED)
        await put(other, 1, blobs[0])
        synced.clear()
        await put(world, 2, blobs[1])
        assert sorted(synced) == ["00", "blobs", "s", "s", "sessions"]
        assert await other.blob("s", blobs[1][0]) == blobs[1][1]


async def test_blobs_that_come_alone_know_nothing(tmp_path: Path, synced: list[str]) -> None:
    blobs = same_folder(2)
    async with opened(tmp_path) as world:
        await world.create("s", [note()], PARKED)
        await world.put_blobs("s", dict(blobs[:1]))
        synced.clear()
        await world.put_blobs("s", dict(blobs[1:]))
        assert sorted(synced) == ["00", "blobs", "s"]


async def test_the_segment_of_somebody_who_may_have_died_is_synced_in_its_folder(
    tmp_path: Path, synced: list[str]
) -> None:
    """Before anything in it is acknowledged. That of an own claim has been, and nothing is synced twice."""
    async with opened(tmp_path) as world, opened(tmp_path) as other:
        await world.create("s", [note()], PARKED)
        assert await put(world, 1) == 2
        synced.clear()
        mine = worker()
        await world.register(mine)
        claim = await world.claim_session(mine, "s")
        assert await put(world, claim.head) == claim.head + 1
        assert synced == []
        await world.unregister(mine)
        theirs = worker()
        await other.register(theirs)
        claim = await other.claim_session(theirs, "s")
        synced.clear()
        assert await put(world, claim.head) == claim.head + 1
        assert synced == ["s", "sessions"]
        assert await put(world, claim.head + 1) == claim.head + 2
        assert synced == ["s", "sessions"]
