"""Cases 4 to 6: no change is missed, however it hides from a file's stat; a file in motion is said."""

from __future__ import annotations

import mmap
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from harness_durable.workspace import contents, known, opening, restore, scanner
from harness_durable.workspace.known import Stamp
from tests.unit.workspace.kit import WHEN, Kept, Watched, write

TICK = 10_000_000


def coarse(monkeypatch: pytest.MonkeyPatch, tick: int = TICK) -> None:
    """A kernel whose clock moves every 10 ms: the times of files are cut down to that."""

    def stamp(found: os.stat_result) -> Stamp:
        mode, size, modified, changed, inode = known.stamp(found)
        return mode, size, modified // tick * tick, changed // tick * tick, inode

    monkeypatch.setattr(scanner, "stamp", stamp)
    monkeypatch.setattr(contents, "stamp", stamp)


async def missed(place: Path, tries: int) -> int:
    """How often a second write of the same size, right after a snapshot, is not in the next one."""
    watched = Watched(place, kept := Kept())
    write(place, {"f": "00000000"})
    count = 0
    with (place / "f").open("r+b", buffering=0) as file:
        for number in range(tries):
            os.pwrite(file.fileno(), b"%08d" % (2 * number + 1), 0)
            await watched.at_once()
            os.pwrite(file.fileno(), b"%08d" % (2 * number + 2), 0)
            scanned = await watched.at_once()
            count += not any(change.path == "f" for change in scanned.changes)
    assert kept.holds(b"%08d" % (2 * tries)) or count
    return count


async def test_a_second_change_within_a_tick_of_the_clock_is_seen(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    coarse(monkeypatch)
    assert await missed(tmp_path / "w", 400) == 0


async def test_without_the_window_such_a_change_would_be_missed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    coarse(monkeypatch)
    monkeypatch.setattr(opening, "RACY", -(10**18))
    monkeypatch.setattr(opening, "RACY_COARSE", -(10**18))
    assert await missed(tmp_path / "w", 50) > 0


async def test_a_file_system_of_whole_seconds_gets_a_window_of_two(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    coarse(monkeypatch, 1_000_000_000)
    assert await missed(tmp_path / "w", 50) == 0


async def test_times_that_were_put_back_do_not_hide_a_change(tmp_path: Path) -> None:
    write(tmp_path / "w", {"f": "aaaa"})
    os.utime(tmp_path / "w/f", ns=(10**18, 10**18))
    watched = Watched(tmp_path / "w", Kept())
    await watched.step()
    write(tmp_path / "w", {"f": "bbbb"})
    os.utime(tmp_path / "w/f", ns=(10**18, 10**18))
    assert [change.path for change in (await watched.step()).changes] == ["f"]


@pytest.mark.parametrize("watching", [True, False])
async def test_a_store_into_a_mapped_file_is_seen_if_the_process_is_one_of_the_session(
    tmp_path: Path, watching: bool
) -> None:
    write(tmp_path / "w", {"f": b"A" * 8192})
    processes = [os.getpid()] if watching else []
    watched = Watched(tmp_path / "w", kept := Kept(), processes=processes)
    with (tmp_path / "w/f").open("r+b") as file, mmap.mmap(file.fileno(), 8192) as mapped:
        mapped[0:4] = b"BBBB"
        await watched.step()
        mapped[0:4] = b"CCCC"  # the page is dirty already: no time of the file moves
        seen = (await watched.step()).counts.modified
    assert seen == watching
    if watching:
        assert kept.holds(b"CCCC")
        assert (await watched.step()).opened == 1  # it may have been written to until it was closed
    await watched.step()


class Writer:
    """Writes to a file whenever it was read, so that each try is disturbed; ``calls`` times at most."""

    def __init__(self, path: Path, calls: int) -> None:
        self.path, self.left, self.size = path, calls, path.stat().st_size

    def __call__(self, real: Callable[[int, int], bytes]) -> Callable[[int, int], bytes]:
        def read_up_to(fd: int, size: int) -> bytes:
            raw = real(fd, size)
            if self.left and os.fstat(fd).st_ino == self.path.stat().st_ino:
                self.left -= 1
                self.path.write_bytes(b"%d" % self.left * self.size)
            return raw

        return read_up_to


async def test_a_file_that_is_written_to_all_the_time_is_kept_and_said_to_be_torn(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path / "w", {"busy": b"x" * 1000, "calm": "1"})
    writer = Writer(tmp_path / "w/busy", 10**6)
    monkeypatch.setattr(contents, "read_up_to", writer(contents.read_up_to))
    watched = Watched(tmp_path / "w", kept := Kept())
    scanned = await watched.step()
    assert scanned.torn == ("busy",) and not scanned.skipped
    await restore(watched.root, tmp_path / "r", kept.read, at_ms=WHEN)
    writer.left = 0
    quiet = await watched.step()
    assert quiet.torn == () and quiet.opened >= 1
    await restore(watched.root, tmp_path / "q", kept.read, at_ms=WHEN)
    assert (tmp_path / "q/busy").read_bytes() == (tmp_path / "w/busy").read_bytes()


async def test_a_file_that_is_disturbed_once_is_read_again_and_exact(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path / "w", {"busy": b"x" * 300_000})
    monkeypatch.setattr(contents, "read_up_to", Writer(tmp_path / "w/busy", 1)(contents.read_up_to))
    watched = Watched(tmp_path / "w", kept := Kept())
    assert (await watched.step()).torn == ()
    await restore(watched.root, tmp_path / "r", kept.read, at_ms=WHEN)
    assert (tmp_path / "r/busy").read_bytes() == (tmp_path / "w/busy").read_bytes()
