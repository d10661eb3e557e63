"""Every truncation, every zeroed tail and every flipped bit of a small log: nothing goes unnoticed."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import NamedTuple

import pytest

from harness_durable.errors import BadSetting, DamagedLog
from harness_durable.world import Owner, StoredRecord
from harness_durable_worlds._file_append import append
from harness_durable_worlds._file_claim import begin
from harness_durable_worlds._file_frames import Damage, read_batch, salt_of
from harness_durable_worlds._file_log import Log
from harness_durable_worlds._file_tail import torn
from tests.worlds.file_support import DUE, PARKED, bare_log, note, opened, quiet

OWNER = Owner("w", "host", 1)


class Whole(NamedTuple):
    """A batch as it was written: its file, its bytes, its record ids."""

    file: str
    start: int
    end: int
    ids: tuple[str, ...]


class Sample(NamedTuple):
    """A log of two segments: batches of one and of several records, and a change of the row alone."""

    folder: Path
    files: dict[str, bytes]
    batches: list[Whole]

    def ids(self, *, without: Whole | None = None, file: str = "1.log", up_to: int = 1 << 30) -> list[str]:
        keep = [b for b in self.batches if b != without and (b.file != file or b.end <= up_to)]
        return [name for batch in keep for name in batch.ids]


@pytest.fixture
def sample(tmp_path: Path) -> Sample:
    log = bare_log(tmp_path)
    append(log, 1, 0, [note(b"two", "r2"), note(b"DHR1 three", "r3")], DUE, quiet)
    append(log, 3, 0, [note(b"four", "r4")], None, quiet)
    begin(log, OWNER, quiet)
    append(log, 5, 1, [note(b"six", "r6")], None, quiet)
    append(log, 6, 1, [], PARKED, quiet)
    append(log, 6, 1, [note(b"seven", "r7"), note(b"eight", "r8")], DUE, quiet)
    log.close()
    files = {name: (log.folder / name).read_bytes() for name in ("0.log", "1.log")}
    batches: list[Whole] = []
    for name, data in files.items():
        at, salt = 0, salt_of("s", int(name[0]))
        while at < len(data):
            batch = read_batch(data, at, salt)
            assert batch is not None
            batches.append(Whole(name, at, batch.end, tuple(r.id for r in batch.records())))
            at = batch.end
    return Sample(log.folder, files, batches)


def survivors(log: Log) -> tuple[list[str], list[Damage]]:
    records: list[StoredRecord] = []
    damages: list[Damage] = []
    for _, item in log.items(0):
        if isinstance(item, Damage):
            damages.append(item)
        else:
            records += item
    return [record.id for record in records], damages


def reopened(sample: Sample, name: str, data: bytes) -> Log:
    """In place: a file that is emptied and written anew is flushed to the disk by some file systems."""
    with (sample.folder / name).open("r+b") as file:
        file.write(data)
        file.truncate()
    return Log(sample.folder, sample.folder.parent.parent / "due" / "s")


def test_an_unhurt_log_has_no_damage(sample: Sample) -> None:
    found, damages = survivors(reopened(sample, "1.log", sample.files["1.log"]))
    assert found == sample.ids()
    assert len(found) == 8
    assert damages == []


def test_every_flipped_bit_is_noticed_and_costs_one_batch(sample: Sample) -> None:
    last = sample.batches[-1]
    cases = 0
    for name, data in sample.files.items():
        for at in range(len(data)):
            hit = next(b for b in sample.batches if b.file == name and b.start <= at < b.end)
            for bit in range(8):
                hurt = bytearray(data)
                hurt[at] ^= 1 << bit
                found, damages = survivors(reopened(sample, name, bytes(hurt)))
                assert found == sample.ids(without=hit), (name, at, bit)
                if hit != last:
                    assert [damage.start for damage in damages] == [hit.start], (name, at, bit)
                cases += 1
        reopened(sample, name, data)
    assert cases == 8 * sum(len(data) for data in sample.files.values())


@pytest.mark.parametrize("fill", [b"", b"\0"], ids=["cut", "zeroed"])
def test_every_torn_tail_leaves_the_whole_batches_and_heals(sample: Sample, fill: bytes) -> None:
    data = sample.files["1.log"]
    edges = {batch.end + near for batch in sample.batches for near in (-1, 0, 1)}
    for at in range(len(data)):
        log = reopened(sample, "1.log", data[:at] + fill * (len(data) - at))
        wanted = sample.ids(up_to=at)
        found, damages = survivors(log)
        assert found == wanted, at
        assert damages == [], at
        if at % 7 and at not in edges:
            continue
        repairs: list[str] = []
        append(log, len(wanted), 0, [note(b"after", f"after-{at}")], None, repairs.append)
        assert survivors(log)[0] == [*wanted, f"after-{at}"]
        log.close()
        again = Log(log.folder, log.due)
        assert survivors(again) == ([*wanted, f"after-{at}"], [])
        for path in log.folder.glob("*.log"):
            if path.name not in sample.files:
                path.unlink()


@pytest.mark.parametrize("fill", [b"", b"\0"], ids=["cut", "zeroed"])
def test_an_older_segment_that_lost_its_end_is_damaged_not_torn(sample: Sample, fill: bytes) -> None:
    data = sample.files["0.log"]
    for at in range(len(data)):
        found, damages = survivors(reopened(sample, "0.log", data[:at] + fill * (len(data) - at)))
        assert found == sample.ids(file="0.log", up_to=at), at
        assert len(damages) == 1, at


def test_a_tail_that_was_cut_is_reported_once(sample: Sample) -> None:
    repairs: list[str] = []
    log = reopened(sample, "1.log", sample.files["1.log"] + b"DHR1half")
    append(log, 8, 1, [note()], None, repairs.append)
    append(log, 9, 1, [note()], None, repairs.append)
    assert len(repairs) == 1
    assert "8 bytes" in repairs[0]
    log.close()


def kept(sample: Sample) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sample.folder.iterdir() if ".cut-" in path.name}


def test_an_acknowledged_append_that_was_damaged_is_kept_when_it_is_cut_off(sample: Sample) -> None:
    start = sample.batches[-1].start
    hurt = bytearray(sample.files["1.log"])
    hurt[-3] ^= 4
    log = reopened(sample, "1.log", bytes(hurt))
    name = f"1.log.cut-{start}"
    assert name in torn(log)
    repairs: list[str] = []
    append(log, 6, 1, [note(b"after")], None, repairs.append)
    log.close()
    assert kept(sample) == {name: bytes(hurt[start:])}
    assert str(sample.folder / name) in repairs[0]


def test_what_is_cut_off_at_the_same_place_again_is_kept_beside_it_and_nothing_twice(sample: Sample) -> None:
    data, end = sample.files["1.log"], len(sample.files["1.log"])
    for tail in (b"one", b"two", b"one"):
        log = reopened(sample, "1.log", data + tail)
        append(log, 8, 1, [], PARKED, quiet)
        log.close()
    assert kept(sample) == {f"1.log.cut-{end}": b"one", f"1.log.cut-{end}-2": b"two"}


def test_a_claim_that_nobody_can_read_is_kept_when_the_next_claimer_takes_its_file(sample: Sample) -> None:
    (sample.folder / "2.log").write_bytes(b"DHR1 a claim whose header and record are damaged")
    log = reopened(sample, "1.log", sample.files["1.log"])
    log.refresh()
    assert begin(log, OWNER, quiet)[0] == 2
    log.close()
    assert kept(sample) == {"2.log.cut-0": b"DHR1 a claim whose header and record are damaged"}


def hurt_fourth(data: bytes) -> bytes:
    at = data.index(b"four")
    return data[:at] + b"F" + data[at + 1 :]


def test_read_gives_what_is_before_then_the_damage_then_what_is_after(sample: Sample) -> None:
    log = reopened(sample, "0.log", hurt_fourth(sample.files["0.log"]))
    assert [record.seq for record in log.read(0)] == [1, 2, 3]
    with pytest.raises(DamagedLog, match="records 4 to 4 are lost") as caught:
        log.read(3)
    batch = sample.batches[3]
    assert (caught.value.offset, caught.value.length) == (batch.start, batch.end - batch.start)
    assert [record.seq for record in log.read(4)] == [5, 6, 7, 8]
    assert log.head == 8


def test_a_missing_segment_is_damage_and_hides_nothing_else(sample: Sample) -> None:
    (sample.folder / "0.log").unlink()
    found, damages = survivors(Log(sample.folder, sample.folder / "due"))
    assert found == sample.ids()[4:]
    assert [(damage.first, damage.last) for damage in damages] == [(1, 4)]


def test_a_record_that_quotes_the_log_is_not_taken_for_the_log(tmp_path: Path) -> None:
    """An agent printed its own log, the write of that very record was torn: the copy is no whole batch."""
    log = bare_log(tmp_path)
    append(log, 1, 0, [note(b"b", "r2")], None, quiet)
    append(log, 2, 0, [], DUE, quiet)
    path = log.folder / "0.log"
    before = path.read_bytes()
    append(log, 2, 0, [note(before, "r3")], None, quiet)
    log.close()
    whole = path.read_bytes()
    for at in (len(whole) - 1, len(whole) - 2):
        path.write_bytes(whole[:at])
        found, damages = survivors(Log(log.folder, log.due))
        assert (found, damages) == (["r1", "r2"], [])


def test_a_folder_under_another_name_says_whose_it_is(sample: Sample) -> None:
    other = sample.folder.parent / "other"
    shutil.copytree(sample.folder, other)
    with pytest.raises(BadSetting, match="written for session 's'"):
        Log(other, other / "due").read(0)


@pytest.mark.parametrize("kept", [0, 40], ids=["empty", "half"])
def test_a_session_whose_only_file_has_no_header_has_no_records(tmp_path: Path, kept: int) -> None:
    log = bare_log(tmp_path)
    path = log.folder / "0.log"
    path.write_bytes(path.read_bytes()[:kept])
    fresh = Log(log.folder, log.due)
    assert fresh.read(0) == []
    assert fresh.head == 0
    assert append(fresh, 0, 0, [note(b"begun again")], None, quiet) == 1
    fresh.close()


def found(folder: Path, pattern: str) -> list[Path]:
    return list(folder.rglob(pattern))


async def test_what_was_kept_goes_with_its_session(tmp_path: Path) -> None:
    async with opened(tmp_path) as world:
        await world.create("s", [note()], PARKED)
        [path] = found(tmp_path, "0.log")
        path.write_bytes(path.read_bytes() + b"half")
        await world.append("s", expected_head=1, epoch=0, records=[note()])
        assert len(found(tmp_path, "*.cut-*")) == 1
        await world.delete("s")
    assert not found(tmp_path, "*.cut-*")
