"""The SQLite World while its system calls fail, or it is killed in them (strace injects both)."""

from __future__ import annotations

import functools
import tempfile
from pathlib import Path

import pytest

from harness_durable.worlds import open_world
from tests.worlds.sqlite_support import APP, batch, ids, integrity, record, strace

BATCHES = 5


def inject(call: str, fault: str) -> list[str]:
    return ["-o", "/dev/null", "-e", f"trace={call}", "-e", f"inject={call}:{fault}"]


@functools.cache
def calls_until_first_answer(call: str) -> int:
    """How many of these calls the writing thread makes until its first append has been acknowledged."""
    with tempfile.TemporaryDirectory() as folder:
        trace = Path(folder, "trace")
        options = ["-o", str(trace), "-e", f"trace={call},write"]
        strace("pour", f"sqlite:{folder}/count.db", "1", options=options)
        before, found, _ = trace.read_text().partition('"wrote 0')
    assert found, "the child acknowledged nothing"
    return before.count(f" {call}(")


async def log_of(url: str) -> list[str]:
    world = await open_world(url, APP)
    try:
        log = ids(await world.read("s"))
        # The store goes on: nothing that was left behind is in the way of the next append.
        await world.append("s", expected_head=len(log), epoch=0, records=[record("after")])
    finally:
        await world.aclose()
    return log


def names(count: int) -> list[str]:
    return ["first", *(each.id for number in range(count) for each in batch(number))]


@pytest.mark.parametrize(
    "death", [*(("fdatasync", n) for n in (0, 1, 3)), *(("pwrite64", n) for n in (0, 1, 2, 5, 9, 14, 20))]
)
async def test_a_kill_inside_an_append_loses_nothing_acknowledged_and_leaves_no_part(
    tmp_path: Path, death: tuple[str, int]
) -> None:
    call, extra = death
    at = calls_until_first_answer(call) + 1 + extra
    url = f"sqlite:{tmp_path}/s.db"
    said = strace("pour", url, str(BATCHES), options=inject(call, f"signal=SIGKILL:when={at}"))
    assert ["end"] not in said, "the process was not killed"
    acknowledged = [words for words in said if words[0] == "wrote"]
    log = await log_of(url)
    assert log in [names(count) for count in range(len(acknowledged), len(acknowledged) + 2)]
    assert integrity(tmp_path / "s.db") == "ok"


async def test_a_failed_sync_is_settled_as_not_written_and_the_process_goes_on(tmp_path: Path) -> None:
    at = calls_until_first_answer("fdatasync") + 1
    url = f"sqlite:{tmp_path}/s.db"
    said = strace("pour", url, str(BATCHES), options=inject("fdatasync", f"error=EIO:when={at}"))
    failures = [words[1:3] for words in said if words[0] == "failed"]
    assert failures == [["1", "clear"]]
    assert [words[1] for words in said if words[0] == "wrote"] == list(map(str, range(BATCHES)))
    assert await log_of(url) == names(BATCHES)


async def test_what_a_failed_sync_left_in_the_file_does_not_come_back_after_a_crash(tmp_path: Path) -> None:
    at = calls_until_first_answer("fdatasync") + 1
    url = f"sqlite:{tmp_path}/s.db"
    fault = inject("fdatasync", f"error=EIO:when={at}")
    said = strace("pour", url, str(BATCHES), "die", options=fault)
    assert said[-1][:3] == ["failed", "1", "clear"]  # and then it died, without closing anything
    assert await log_of(url) == names(1)


async def test_a_failed_sync_that_cannot_be_settled_is_unclear_and_not_doubled(tmp_path: Path) -> None:
    at = calls_until_first_answer("fdatasync") + 1
    url = f"sqlite:{tmp_path}/s.db"
    said = strace("pour", url, str(BATCHES), options=inject("fdatasync", f"error=EIO:when={at}..{at + 3}"))
    failures = [words[1:3] for words in said if words[0] == "failed"]
    assert failures[0] == ["1", "unclear"]
    assert ["end"] in said
    assert await log_of(url) == names(BATCHES)


@pytest.mark.parametrize("extra", [0, 1, 4])
async def test_a_full_disk_is_said_to_be_full_and_work_goes_on_when_there_is_room(
    tmp_path: Path, extra: int
) -> None:
    """C022: what could not be written down is refused and leaves no part of itself."""
    at = calls_until_first_answer("pwrite64") + 1 + extra
    url = f"sqlite:{tmp_path}/s.db"
    said = strace("pour", url, str(BATCHES), options=inject("pwrite64", f"error=ENOSPC:when={at}..{at + 2}"))
    failures = [words for words in said if words[0] == "failed"]
    assert failures
    assert {words[2] for words in failures} == {"clear"}
    assert "room" in failures[0]
    assert ["end"] in said
    assert await log_of(url) == names(BATCHES)


def syncs(folder: Path, sessions: int) -> int:
    trace = folder / f"trace-{sessions}"
    options = ["-o", str(trace), "-e", "trace=fdatasync"]
    said = strace("together", f"sqlite:{folder}/{sessions}.db", str(sessions), options=options)
    assert said == [["end"]]
    return trace.read_text().count("fdatasync(")


def test_concurrent_appends_share_a_sync(tmp_path: Path) -> None:
    assert syncs(tmp_path, 64) <= syncs(tmp_path, 1) + 6
