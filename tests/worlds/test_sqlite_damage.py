"""A SQLite World whose file was damaged, deleted or replaced by somebody else."""

from __future__ import annotations

import shutil
from pathlib import Path

import apsw
import pytest

from harness_durable.errors import DamagedLog, NotFound, StorageUnavailable
from harness_durable.world import Record, StoredRecord
from harness_durable_worlds._sqlite_db import open_db
from harness_durable_worlds.sqlite import SqliteWorld, open_world
from tests.worlds.sqlite_support import APP, DUE, begin, ids, record

COUNT = 40
PAGE = 4096


def marked(number: int) -> bytes:
    """A body that can be found in the file."""
    return b"<%06d>" % number * 200


async def filled(path: Path) -> None:
    """Sessions "s" and "t", whose records take turns in the file."""
    world = await open_world(f"sqlite:{path}", APP)
    await begin(world, "s")
    await begin(world, "t", DUE)
    for number in range(2, COUNT + 1):
        for session in ("s", "t"):
            named = [Record(f"{session}{number}", "test.note", 1, marked(number) + session.encode())]
            await world.append(session, expected_head=number - 1, epoch=0, records=named)
    await world.append(
        "s", expected_head=COUNT, epoch=0, records=[], blobs={"b" * 64: b"this is the blob" + bytes(50)}
    )
    await world.put_snapshot("s", 5, b"snapshot" * 99)
    await world.aclose()


def spoil(path: Path, mark: bytes, *, whole_page: bool = False) -> None:
    """Flip a bit of the only place that holds ``mark``, or overwrite its page."""
    data = bytearray(path.read_bytes())
    assert data.count(mark) == 1
    at = data.index(mark)
    if whole_page:
        data[at - at % PAGE : at - at % PAGE + PAGE] = b"\xa5" * PAGE
    else:
        data[at] ^= 1
    path.write_bytes(data)


async def reopened(path: Path) -> SqliteWorld:
    return await open_world(f"sqlite:{path}", APP)


async def test_a_damaged_record_is_named_and_hides_no_neighbour(tmp_path: Path) -> None:
    path = tmp_path / "s.db"
    await filled(path)
    spoil(path, marked(20) + b"s")
    world = await reopened(path)
    assert len(await world.read("s")) == 19
    with pytest.raises(DamagedLog, match=r"record 20 of session 's'.*checksum.*1 to 19 and from 21 to 40"):
        await world.read("s", after=19)
    assert [each.seq for each in await world.read("s", after=20)] == list(range(21, COUNT + 1))
    good, bad = await world.salvage("s")
    assert [each.seq for each in good] == [*range(1, 20), *range(21, COUNT + 1)]
    assert len(bad) == 1
    assert "record 20 of session 's'" in str(bad[0])
    assert len(ids(await world.read("t"))) == COUNT
    assert await world.append("s", expected_head=COUNT, epoch=0, records=[record("more")]) == COUNT + 1
    await world.aclose()


async def test_damage_behind_the_first_hundred_records_is_told_to_who_reads_that_far(tmp_path: Path) -> None:
    world = await reopened(tmp_path / "s.db")
    records = [Record(f"r{n}", "test.note", 1, marked(n)) for n in range(1, 301)]
    await world.create("s", records, DUE)
    assert ids(await world.read("s")) == [f"r{n}" for n in range(1, 301)]
    assert [each.seq for each in await world.read("s", after=50, limit=150)] == list(range(51, 201))
    await world.aclose()
    spoil(tmp_path / "s.db", marked(101))
    world = await reopened(tmp_path / "s.db")
    assert len(await world.read("s")) == 100
    with pytest.raises(DamagedLog, match="record 101"):
        await world.read("s", after=100)
    assert len(await world.read("s", after=101)) == 199
    await world.aclose()


async def test_a_bad_page_costs_the_records_on_it_and_no_others(tmp_path: Path) -> None:
    path = tmp_path / "s.db"
    await filled(path)
    spoil(path, marked(20) + b"s", whole_page=True)
    world = await reopened(path)
    for session in ("s", "t"):
        before = await world.read(session)
        assert before == (await world.salvage(session))[0][: len(before)]
        with pytest.raises(DamagedLog, match=rf"record {len(before) + 1} of session '{session}'"):
            await world.read(session, after=len(before))
        good, bad = await world.salvage(session)
        assert 1 <= len(bad) <= 3
        assert len(good) + len(bad) == COUNT
    await world.aclose()


async def test_a_bad_page_of_the_index_costs_no_record(tmp_path: Path) -> None:
    path = tmp_path / "s.db"
    await filled(path)
    db = open_db(path, apsw.SQLITE_OPEN_READONLY)
    leaf = "select pageno from dbstat where name = 'sqlite_autoindex_event_1' and pagetype = 'leaf'"
    page = db.execute(leaf).fetchone()
    db.close()
    assert page is not None
    data = bytearray(path.read_bytes())
    data[(int(page[0] or 0) - 1) * PAGE : int(page[0] or 0) * PAGE] = b"\xa5" * PAGE
    path.write_bytes(data)
    world = await reopened(path)
    with pytest.raises(DamagedLog, match="record 1 of session 's'"):
        await world.read("s")
    good, bad = await world.salvage("s")
    assert ids(good)[1:] == [f"s{number}" for number in range(2, COUNT + 1)]
    assert not bad
    await world.aclose()


async def test_a_bad_page_of_one_session_does_not_stop_another(tmp_path: Path) -> None:
    path = tmp_path / "s.db"
    await filled(path)
    spoil(path, marked(5) + b"s", whole_page=True)
    world = await reopened(path)
    assert await world.create("u", [record("first")], DUE)
    assert await world.append("u", expected_head=1, epoch=0, records=[record("second")]) == 2
    await world.aclose()


async def test_a_damaged_snapshot_is_none_and_a_damaged_blob_is_reported(tmp_path: Path) -> None:
    path = tmp_path / "s.db"
    await filled(path)
    spoil(path, b"snapshot" * 99)
    spoil(path, b"this is the blob")
    world = await reopened(path)
    assert await world.snapshot("s") is None
    with pytest.raises(DamagedLog, match="blob bbbb"):
        await world.blob("s", "b" * 64)
    with pytest.raises(NotFound, match="no blob"):
        await world.blob("s", "c" * 64)
    await world.aclose()


async def test_a_destroyed_schema_is_reported_at_opening_and_nothing_is_overwritten(tmp_path: Path) -> None:
    path = tmp_path / "s.db"
    await filled(path)
    data = path.read_bytes()
    path.write_bytes(data[:100] + b"\xa5" * (PAGE - 100) + data[PAGE:])
    broken = path.read_bytes()
    with pytest.raises(DamagedLog, match=r"s\.db.*restore it from a backup"):
        await reopened(path)
    assert path.read_bytes() == broken


@pytest.mark.parametrize("how", ["deleted", "replaced"])
async def test_a_file_that_was_taken_away_is_missed_and_work_goes_on_when_it_is_back(
    tmp_path: Path, how: str
) -> None:
    path = tmp_path / "s.db"
    await filled(path)
    shutil.copy(path, tmp_path / "backup")
    world = await reopened(path)
    assert len(await world.read("s")) == COUNT
    path.unlink()
    if how == "deleted":
        with pytest.raises(StorageUnavailable, match="put it back"):
            await world.append("s", expected_head=COUNT, epoch=0, records=[record("lost")])
        with pytest.raises(StorageUnavailable, match="put it back"):
            await world.read("s")
        assert not path.exists()
    (tmp_path / "backup").rename(path)
    assert await world.append("s", expected_head=COUNT, epoch=0, records=[record("more")]) == COUNT + 1
    log: list[StoredRecord] = await world.read("s")
    assert ids(log)[-1] == "more"
    await world.aclose()
    assert not (tmp_path / "s.db-wal").exists()
