"""Due sessions, lists and caches of the file World: an index that lies costs time, never a session."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from harness_durable import clock
from harness_durable.errors import SessionBusy, StorageUnavailable
from harness_durable.world import Record, RowUpdate
from harness_durable_worlds import _file_logs
from harness_durable_worlds import file as file_world
from tests.worlds.file_support import DUE, PARKED, note, opened, worker
from tests.worlds.test_file_liveness import HandClock

MANY = 1500


def due_names(folder: Path) -> list[str]:
    return sorted(path.name for path in (folder / "a" / "due").iterdir() if path.name[0] != ".")


def open_files(folder: Path) -> int:
    return sum(str(folder) in str(path.resolve()) for path in Path("/proc/self/fd").iterdir())


async def test_the_index_follows_the_row(tmp_path: Path) -> None:
    async with opened(tmp_path) as world:
        await world.create("s", [note()], PARKED)
        assert due_names(tmp_path) == []
        await world.append("s", expected_head=1, epoch=0, records=[note()], row=DUE)
        assert due_names(tmp_path) == ["s"]
        await world.append("s", expected_head=2, epoch=0, records=[note()])
        assert due_names(tmp_path) == ["s"]
        await world.append("s", expected_head=3, epoch=0, records=[], row=PARKED)
        assert due_names(tmp_path) == []
        assert (await world.session("s")).head == 3


async def test_a_lost_entry_never_strands_a_session(tmp_path: Path) -> None:
    async with opened(tmp_path) as world:
        await world.create("s", [note()], DUE)
    (tmp_path / "a" / "due" / "s").unlink()
    async with opened(tmp_path) as world:
        me = worker()
        await world.register(me)
        assert [claim.session for claim in await world.claim(me, 5)] == ["s"]


async def test_an_entry_lost_while_running_is_found_by_a_later_sweep(tmp_path: Path) -> None:
    """C091: the queue may forget a session, the sweep does not."""
    with clock.use(HandClock()) as _:
        async with opened(tmp_path) as world:
            me = worker()
            await world.register(me, 1000.0)
            assert await world.claim(me, 5) == []
            await world.create("s", [note()], DUE)
            (tmp_path / "a" / "due" / "s").unlink()
            assert await world.claim(me, 5) == []
            await clock.sleep(file_world.RECONCILE_SECONDS)
            assert [claim.session for claim in await world.claim(me, 5)] == ["s"]


async def test_entries_too_many_are_harmless_and_go_away(tmp_path: Path) -> None:
    async with opened(tmp_path) as world:
        await world.create("s", [note()], PARKED)
        for name in ("s", "no-such-session"):
            (tmp_path / "a" / "due" / name).touch()
        me = worker()
        await world.register(me)
        assert await world.claim(me, 5) == []
        assert due_names(tmp_path) == ["no-such-session"], "it may be on its way: it goes when it is old"
        os.utime(tmp_path / "a" / "due" / "no-such-session", (1, 1))
    async with opened(tmp_path) as world:
        assert await world.claim(me, 5) == []
        assert due_names(tmp_path) == []


async def test_empty_and_cut_files_are_sessions_without_records(tmp_path: Path) -> None:
    """C017: lists, sweeps and reads go on."""
    async with opened(tmp_path) as world:
        await world.create("whole", [note()], DUE)
        whole = (tmp_path / "a" / "sessions" / "whole" / "0.log").read_bytes()
        header = whole.index(b"\n\n") + 2
        for number in range(MANY):
            folder = tmp_path / "a" / "sessions" / f"cut{number:05}"
            folder.mkdir()
            (folder / "0.log").write_bytes((b"", whole[:30], b"\0" * 100, b"junk")[number % 4])
        (tmp_path / "a" / "sessions" / "none").mkdir()
        await world.create("bare", [], PARKED)
        assert header > 0
        rows = await world.sessions(limit=MANY + 10)
        assert len(rows) == MANY + 3
        assert {row.head for row in rows if row.session.startswith("cut")} == {0}
        assert await world.read("cut00001") == []
        assert (await world.session("bare")).head == 0
        me = worker()
        await world.register(me)
        assert [claim.session for claim in await world.claim(me, 5)] == ["whole"]
        assert [row.session for row in await world.sessions("cut00003", 2)] == ["cut00004", "cut00005"]


async def test_damaged_sessions_are_listed_and_hide_no_others(tmp_path: Path) -> None:
    """C013: one bad session is named and the others open."""
    async with opened(tmp_path) as world:
        for name in ("damaged", "fine", "newer"):
            await world.create(name, [note(), note()], DUE)
    sessions = tmp_path / "a" / "sessions"
    data = bytearray((sessions / "damaged" / "0.log").read_bytes())
    data[20] ^= 1
    (sessions / "damaged" / "0.log").write_bytes(data)
    (sessions / "misnamed").mkdir()
    (sessions / "misnamed" / "0.log").write_bytes((sessions / "fine" / "0.log").read_bytes())
    async with opened(tmp_path) as world:
        rows = {row.session: row.status for row in await world.sessions()}
        assert rows == {"damaged": "damaged", "fine": "queued", "newer": "queued", "misnamed": "misnamed"}
        me = worker()
        await world.register(me)
        assert sorted(claim.session for claim in await world.claim(me, 5)) == ["fine", "newer"]


async def test_an_expired_lease_that_nobody_used_is_simply_renewed(tmp_path: Path) -> None:
    """C080: only a larger epoch means that the session is lost."""
    hand = HandClock()
    with clock.use(hand):
        async with opened(tmp_path) as world:
            await world.create("s", [note()], DUE)
            me, other = worker(), worker()
            await world.register(me, 15.0)
            claim = (await world.claim(me, 1))[0]
            hand.at += 100
            assert not (await world.session("s")).owner_alive
            await world.renew(me)
            await world.register(other, 15.0)
            with pytest.raises(SessionBusy):
                await world.claim_session(other, "s")
            assert await world.append("s", expected_head=2, epoch=claim.epoch, records=[note()]) == 3
            hand.at += 100
            await world.renew(other)
            assert [c.epoch for c in await world.claim(other, 1)] == [2]


async def test_a_snapshot_of_another_history_is_ignored(tmp_path: Path) -> None:
    async with opened(tmp_path) as world:
        await world.create("s", [note()], PARKED)
        await world.append("s", expected_head=1, epoch=0, records=[note()])
        await world.put_snapshot("s", 2, b"of two")
        assert await world.snapshot("s") == (2, b"of two")
        path = tmp_path / "a" / "sessions" / "s" / "snapshot"
        whole = path.read_bytes()
        for at in range(len(whole)):
            path.write_bytes(whole[:at])
            assert await world.snapshot("s") is None
            path.write_bytes(whole[:at] + bytes([whole[at] ^ 4]) + whole[at + 1 :])
            assert await world.snapshot("s") is None
        path.write_bytes(whole)
        log = path.parent / "0.log"
        cut = log.read_bytes()
        log.write_bytes(cut[: cut.rindex(b"DHR1")])
        assert await world.snapshot("s") is None, "it is ahead of the log"
        await world.append("s", expected_head=1, epoch=0, records=[note(b"other")])
        assert await world.snapshot("s") is None, "it is of a record that is no longer there"


async def test_a_repair_is_told_once_and_described(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async with opened(tmp_path) as world:
        await world.create("s", [note()], PARKED)
        with (tmp_path / "a" / "sessions" / "s" / "0.log").open("ab") as torn:
            torn.write(b"DHR1 torn")
        await world.append("s", expected_head=1, epoch=0, records=[note()])
        assert len(world.repairs) == 1
        assert "cut off 9 bytes" in world.repairs[0]
        described = await world.describe()
        assert world.repairs[0] in described.warnings
        assert described.details["repairs since opening"] == "1"
    assert [record.getMessage() for record in caplog.records] == world.repairs


async def test_more_sessions_than_open_files_are_no_problem(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_file_logs, "OPEN_PER_LANE", 2)
    monkeypatch.setattr(_file_logs, "KNOWN_PER_LANE", 4)
    async with opened(tmp_path) as world:
        names = [f"s{number}" for number in range(40)]
        for name in names:
            await world.create(name, [Record(name, "k", 1, b"")], RowUpdate("x", None))
        for turn in (1, 2):
            for name in names:
                assert await world.append(name, expected_head=turn, epoch=0, records=[note()]) == turn + 1
        assert open_files(tmp_path) <= _file_logs.LANES * 2
        assert [row.head for row in await world.sessions()] == [3] * 40


async def test_a_closed_world_says_so(tmp_path: Path) -> None:
    async with opened(tmp_path) as world:
        await world.create("s", [note()], PARKED)
    with pytest.raises(StorageUnavailable, match="was closed"):
        await world.read("s")
