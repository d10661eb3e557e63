"""Case 7: a process that makes, renames and deletes trees, and swaps folders for links that lead outside."""

from __future__ import annotations

import os
import random
import shutil
import threading
from collections.abc import Generator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

import pytest

from harness_durable.workspace import restore, scanner
from tests.unit.workspace.kit import WHEN, Kept, Watched, write

SNAPSHOTS = 300


class Chaos:
    """Its own thread, so that it runs in the middle of a walk."""

    def __init__(self, place: Path, outside: Path) -> None:
        self._place, self._outside, self._stop = place, outside, threading.Event()
        self.error: Exception | None = None
        self.rounds = 0

    def run(self) -> None:
        chance = random.Random(7)
        while not self._stop.is_set():
            try:
                self._once(chance)
            except Exception as error:  # shown by the test
                self.error = error
                return
            self.rounds += 1

    def _once(self, chance: random.Random) -> None:
        folder = self._place / f"d{chance.randrange(6)}"
        kind = chance.randrange(4)
        if folder.is_symlink():
            folder.unlink()
        elif folder.is_dir():
            if kind == 0:
                shutil.rmtree(folder)
            else:
                aside = self._place / "aside"
                folder.rename(aside)
                folder.symlink_to(self._outside)
                shutil.rmtree(aside)
        else:
            write(folder, {f"s{n}/f{n}": os.urandom(8).hex() * n for n in range(4)})

    def stop(self) -> None:
        self._stop.set()


@contextmanager
def chaos(place: Path, outside: Path) -> Generator[Chaos]:
    at_work = Chaos(place, outside)
    thread = threading.Thread(target=at_work.run)
    thread.start()
    try:
        yield at_work
    finally:
        at_work.stop()
        thread.join()


async def test_snapshots_amid_chaos_restore_and_hold_nothing_from_outside(quick: Path) -> None:
    place, outside = quick / "w", quick / "outside"
    write(place, {"stays": "1"})
    write(outside, {f"s{n}/f{n}": "FROM OUTSIDE" for n in range(4)})
    watched = Watched(place, kept := Kept())
    links = 0
    with chaos(place, outside) as at_work:
        for number in range(SNAPSHOTS):
            scanned = await watched.at_once()
            links += any(change.new.startswith("@") for change in scanned.changes)
            if number % 10 == 0:
                await restore(watched.root, quick / "r", kept.read, at_ms=WHEN)
                assert (quick / "r/stays").read_text() == "1"
                shutil.rmtree(quick / "r")
    assert at_work.error is None and at_work.rounds > SNAPSHOTS and links
    assert not kept.holds(b"FROM OUTSIDE")
    await watched.step()
    assert (await watched.step()).counts.total == 0


async def test_a_folder_that_becomes_a_link_before_it_is_entered_is_not_followed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = tmp_path / "w"
    write(place, {"d/f": "inside"})
    write(tmp_path / "outside", {"f": "FROM OUTSIDE"})
    watched = Watched(place, kept := Kept())
    real = scanner.opened

    def swapping(name: bytes, at: int, flags: int) -> AbstractContextManager[int]:
        if name == b"d" and not (place / "d").is_symlink():
            (place / "d").rename(tmp_path / "gone")
            (place / "d").symlink_to(tmp_path / "outside")
        return real(name, at, flags)

    monkeypatch.setattr(scanner, "opened", swapping)
    first = await watched.scan()
    assert not any(change.path.startswith("d/") for change in first.changes)
    scanned = await Watched(place, kept).step()
    assert [change.new for change in scanned.changes] == [f"@{tmp_path}/outside"]
    assert not kept.holds(b"FROM OUTSIDE")
