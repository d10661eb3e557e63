"""Reads that wait for no thread: of what this process wrote last. They give what every other read gives."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import Any

import pytest

from harness_durable.errors import BadInput, DamagedLog, StorageUnavailable
from harness_durable_worlds import _file_log, _file_segments, _file_system
from harness_durable_worlds._file_lanes import Lanes
from harness_durable_worlds.file import FileWorld
from tests.worlds.file_support import DUE, PARKED, note, opened, worker


@pytest.fixture
def hops(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """A lane for each job that is given to a thread."""
    found: list[int] = []
    run = Lanes.run

    async def counted(self: Lanes, lane: int, work: Any) -> Any:
        found.append(lane)
        return await run(self, lane, work)

    monkeypatch.setattr(Lanes, "run", counted)
    return found


async def add(world: FileWorld, head: int, *names: str, epoch: int = 0) -> int:
    records = [note(name.encode(), name) for name in names]
    return await world.append("s", expected_head=head, epoch=epoch, records=records)


async def ids(world: FileWorld, after: int = 0, limit: int | None = None) -> list[str]:
    return [record.id for record in await world.read("s", after, limit)]


async def hops_of_a_read(tmp_path: Path, hops: list[int]) -> int:
    """Jobs for threads of a read of what was just written."""
    async with opened(tmp_path) as world:
        await world.create("s", [note(name="first")], PARKED)
        await add(world, 1, "a")
        hops.clear()
        assert await ids(world, 1) == ["a"]
        return len(hops)


async def test_what_was_just_written_is_read_without_a_thread(tmp_path: Path, hops: list[int]) -> None:
    async with opened(tmp_path) as world:
        await world.create("s", [note(name="first")], PARKED)
        head = 1
        for n in range(40):
            head = await add(world, head, f"a{n}", f"b{n}")
            hops.clear()
            assert await ids(world, head - 2) == [f"a{n}", f"b{n}"]
            assert await ids(world, head - 1) == [f"b{n}"]
            assert await ids(world, head - 2, 1) == [f"a{n}"]
            if n > 2:
                assert await ids(world, head - 5) == [f"b{n - 2}", f"a{n - 1}", f"b{n - 1}", f"a{n}", f"b{n}"]
            assert hops == []
        assert await ids(world, head) == []
        assert len(await ids(world)) == head == 81


async def test_a_row_alone_changes_nothing_of_it(tmp_path: Path) -> None:
    async with opened(tmp_path) as world:
        await world.create("s", [note(name="first")], PARKED)
        assert await add(world, 1, "a") == 2
        await world.append("s", expected_head=2, epoch=0, records=[], row=DUE)
        assert (await ids(world, 1), await ids(world, 2)) == (["a"], [])
        assert await add(world, 2, "b") == 3
        assert (await ids(world, 1), await ids(world, 2), await ids(world, 3)) == (["a", "b"], ["b"], [])


async def test_what_others_write_is_seen_at_once(tmp_path: Path) -> None:
    async with opened(tmp_path) as world, opened(tmp_path) as other:
        await world.create("s", [note(name="first")], DUE)
        assert await add(world, 1, "mine") == 2
        assert await ids(world, 1) == ["mine"]
        assert await add(other, 2, "theirs") == 3
        assert await ids(world, 1) == ["mine", "theirs"]
        me = worker()
        await other.register(me)
        claim = await other.claim_session(me, "s")
        await add(other, claim.head, "driven", epoch=claim.epoch)
        assert (await ids(world, 2))[0] == "theirs"
        assert (await ids(world, 2))[-1] == "driven"


async def test_a_session_that_was_made_anew_is_read_anew(tmp_path: Path) -> None:
    async with opened(tmp_path) as world, opened(tmp_path) as other:
        await world.create("s", [note(name="first")], PARKED)
        await add(world, 1, "old")
        assert await ids(world, 1) == ["old"]
        await other.delete("s")
        await other.create("s", [note(name="first")], PARKED)
        await add(other, 1, "new")
        assert await ids(world, 1) == ["new"]


@pytest.mark.parametrize("trouble", ["nothing in memory", "cannot tell", "another system"])
async def test_what_would_have_to_wait_for_the_disk_is_read_by_a_thread(
    tmp_path: Path, hops: list[int], monkeypatch: pytest.MonkeyPatch, trouble: str
) -> None:
    def never(*_: object) -> int:
        if trouble == "nothing in memory":
            raise BlockingIOError
        raise OSError(95, os.strerror(95))

    if trouble == "another system":
        monkeypatch.setattr(_file_segments, "_NO_WAIT", 0)
    else:
        monkeypatch.setattr(os, "preadv", never)
    assert await hops_of_a_read(tmp_path, hops) == 1


async def test_a_byte_that_flipped_is_damage_for_it_too(tmp_path: Path) -> None:
    async with opened(tmp_path) as world:
        await world.create("s", [note(name="first")], PARKED)
        await add(world, 1, "a")
        await add(world, 2, "b")
        path = tmp_path / "a" / "sessions" / "s" / "0.log"
        times = path.stat()
        data = bytearray(path.read_bytes())
        data[data.index(b"a\n", data.index(b'"id":"a"'))] ^= 1
        with path.open("r+b") as file:
            file.write(data)
        os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))
        with pytest.raises(DamagedLog):
            await ids(world, 1)
        assert await ids(world, 2) == ["b"]


@pytest.mark.parametrize("kind", ["nfs", "fuse.sshfs", "fuseblk"])
async def test_a_file_system_that_may_not_answer_never_stops_the_loop(
    tmp_path: Path, hops: list[int], monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    def kind_of(_: Path) -> str:
        return kind

    monkeypatch.setenv(_file_system.ALLOW, "1")
    monkeypatch.setattr(_file_system, "kind_of", kind_of)
    assert await hops_of_a_read(tmp_path, hops) == 1


async def test_what_the_system_refuses_is_told_in_our_words(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(_: object) -> bool:
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))

    async with opened(tmp_path) as world:
        await world.create("s", [note(name="first")], PARKED)
        await add(world, 1, "a")
        with monkeypatch.context() as patched:
            patched.setattr(_file_log, "exists", refused)
            with pytest.raises(StorageUnavailable, match="make the folder writable"):
                await ids(world, 1)
        assert await ids(world, 1) == ["a"]


async def test_half_a_character_names_no_session(tmp_path: Path) -> None:
    async with opened(tmp_path) as world:
        with pytest.raises(BadInput):
            await world.read("\ud800")


async def test_another_file_that_got_the_same_number_is_read_from_its_start(tmp_path: Path) -> None:
    """A file system gives the number of a file that was deleted to the next one that is made."""
    here, there = tmp_path / "a", tmp_path / "b"
    async with opened(here) as writer, opened(here) as reader, opened(there) as anew:
        await writer.create("s", [note(name="before")], PARKED)
        assert await ids(reader) == ["before"]
        await anew.create("s", [note(name="longer-than"), note(name="that")], PARKED)
        next(here.rglob("0.log")).write_bytes(next(there.rglob("0.log")).read_bytes())
        assert await ids(reader) == ["longer-than", "that"]
