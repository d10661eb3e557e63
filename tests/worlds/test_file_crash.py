"""A process on a file World that is killed, or whose disk fails, at each system call that matters.

strace does the hurting; it is a requirement of these tests. What survives is checked from another process.
"""

from __future__ import annotations

import itertools
import os
import re
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from harness_durable.errors import NotFound
from harness_durable.world import StoredRecord
from tests.worlds import file_child
from tests.worlds.file_support import note, opened, run, worker

CALLS = ("pwrite64", "fdatasync", "rename", "mkdir", "ftruncate")


async def prepared(folder: Path) -> Path:
    """A World that exists, so that the child's own calls come first."""
    async with opened(folder):
        return folder


def said(lines: list[list[str]], word: str) -> list[list[str]]:
    return [line[1:] for line in lines if line[0] == word]


def batches_in(records: list[StoredRecord]) -> list[int]:
    """Numbers of the child's appends in the log. Fails unless each is whole and they are in order."""
    ids = [record.id for record in records if record.kind == "check.note"]
    wanted: list[str] = []
    numbers: list[int] = []
    while wanted != ids:
        numbers.append(len(numbers))
        wanted += [record.id for record in file_child.batch(numbers[-1])]
        assert wanted == ids[: len(wanted)]
    return numbers


async def check_survivors(folder: Path, lines: list[list[str]]) -> None:
    """All that was acknowledged is there, at most one append more, no half ones, and work goes on."""
    acked = [int(number) for number, _ in said(lines, "acked")]
    async with opened(folder) as world:
        try:
            records = await world.read("s")
        except NotFound:
            assert not said(lines, "created")
            return
        assert [record.seq for record in records] == list(range(1, len(records) + 1))
        assert records[0].id == "c"
        numbers = batches_in(records)
        assert numbers[: len(acked)] == acked
        assert len(numbers) <= len(acked) + 1
        for number in numbers:
            for name, data in file_child.blob(number).items():
                assert await world.blob("s", name) == data
        me = worker()
        await world.register(me)
        claims = await world.claim(me, 10)
        assert [claim.session for claim in claims] == ["s"], "the session of a dead worker is free"
        for epoch, head in said(lines, "claimed"):
            assert claims[0].epoch > int(epoch)
            assert records[int(head) - 1].epoch == int(epoch)
        head = claims[0].head
        assert head == len(records) + 1
        assert (
            await world.append("s", expected_head=head, epoch=claims[0].epoch, records=[note()]) == head + 1
        )
        assert (await world.salvage("s")).damages == []


def trace_of(folder: Path) -> str:
    return Path(f"{folder}.trace").read_text()


def counts(folder: Path) -> Counter[str]:
    """The most calls of each kind that one thread of the child makes, and strace counts by thread."""
    lines = run(folder, "new", f"--trace={','.join(CALLS)}")
    assert len(said(lines, "acked")) == file_child.BATCHES
    trace = trace_of(folder)
    by_thread = Counter(re.findall(r"^(\d+) +(\w+)\(", trace, re.MULTILINE))
    most: Counter[str] = Counter()
    for (_, call), count in by_thread.items():
        most[call] = max(most[call], count)
    return most


async def hurt_everywhere(tmp_path: Path, calls: tuple[str, ...], how: str) -> list[list[list[str]]]:
    """One run of the child for each call that is hurt; what each said."""
    most = counts(await prepared(tmp_path / "count"))
    cases = [(call, nth) for call in calls for nth in range(1, most[call] + 1)]
    assert len(cases) > len(calls)
    folders = [await prepared(tmp_path / f"{call}-{nth}") for call, nth in cases]
    with ThreadPoolExecutor(4) as pool:
        traces = [f"--trace={call}" for call, _ in cases]
        faults = [f"--inject={call}:{how}:when={nth}" for call, nth in cases]
        results = list(pool.map(run, folders, itertools.repeat("new"), traces, faults))
    for folder, lines in zip(folders, results, strict=True):
        await check_survivors(folder, lines)
    return results


async def test_killed_after_any_call_nothing_acknowledged_is_lost(tmp_path: Path) -> None:
    results = await hurt_everywhere(tmp_path, CALLS[:4], "signal=SIGKILL")
    acked = {len(said(lines, "acked")) for lines in results}
    assert acked >= set(range(file_child.BATCHES)), "deaths came at every stage"


async def test_a_failed_sync_is_refused_never_repeated_and_work_goes_on(tmp_path: Path) -> None:
    results = await hurt_everywhere(tmp_path, ("fdatasync",), "error=EIO")
    refused = [line for lines in results for line in said(lines, "refused")]
    assert len(refused) >= file_child.BATCHES
    assert ["unclear"] not in [line[1:] for line in refused]
    assert sum(len(said(lines, "acked")) == file_child.BATCHES for lines in results) >= len(results) - 3


async def test_a_full_disk_is_refused_and_work_goes_on_when_there_is_room(tmp_path: Path) -> None:
    """C022: what could not be written down is refused, leaves no half line, and the log goes on."""
    results = await hurt_everywhere(tmp_path, ("pwrite64", "mkdir"), "error=ENOSPC")
    refused = [line for lines in results for line in said(lines, "refused")]
    assert len(refused) >= file_child.BATCHES
    assert all(line[1] == "clear" for line in refused)


async def test_when_not_even_the_cut_can_be_synced_the_append_is_unclear_and_settles(tmp_path: Path) -> None:
    folder = await prepared(tmp_path / "w")
    lines = run(folder, "new", "--trace=fdatasync", "--inject=fdatasync:error=EIO:when=4..5")
    assert ["0", "unclear"] in said(lines, "refused")
    assert len(said(lines, "acked")) == file_child.BATCHES
    await check_survivors(folder, lines)


async def test_new_names_are_synced_in_their_folder_before_they_are_relied_on(tmp_path: Path) -> None:
    """The trace of a whole run: nothing is acknowledged while a folder entry that it needs is not synced."""
    folder = await prepared(tmp_path / "w")
    lines = run(folder, "new", "-y", "--trace=fsync,openat,rename,mkdir,write")
    assert len(said(lines, "acked")) == file_child.BATCHES
    unsynced: set[Path] = set()
    acks = 0
    for line in trace_of(folder).splitlines():
        opened_new = re.search(r"openat\(.*O_CREAT.*\) = \d+<([^>]+\.log)>$", line)
        if opened_new:
            unsynced.add(Path(opened_new[1]))
        made = re.search(r'mkdir\("([^"]+)", \w+\) += 0$|rename\(.*"([^"]+)"\) += 0$', line)
        synced = re.search(r"fsync\(\d+<([^>]+)>\) += 0$", line)
        if made:
            unsynced.add(Path(made[1] or made[2]))
        elif synced:
            unsynced = {path for path in unsynced if path.parent != Path(synced[1])}
        elif re.search(r"write\(1<.*\"(acked|created|claimed)", line):
            acks += 1
            sessions = folder / "a" / "sessions"
            left = [path for path in unsynced if sessions in path.parents and ".new-" not in str(path)]
            assert left == [], line
    assert acks == file_child.BATCHES + 2


async def test_a_child_that_nobody_hurts_passes_the_same_checks(tmp_path: Path) -> None:
    folder = await prepared(tmp_path / "w")
    await check_survivors(folder, run(folder, "new"))


async def test_short_writes_are_continued(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole, sizes = os.pwrite, itertools.cycle([1, 7, 50])

    def short(fd: int, data: memoryview, at: int) -> int:
        return whole(fd, data[: next(sizes)], at)

    monkeypatch.setattr(os, "pwrite", short)
    async with opened(tmp_path) as world:
        await world.create("s", [note(b"a" * 300)], file_child.RUNNING)
        await world.append("s", expected_head=1, epoch=0, records=[note(b"b" * 300), note()])
    async with opened(tmp_path) as world:
        assert [len(record.body) for record in await world.read("s")] == [300, 300, 1]
