"""Cases 11 and 16, counted: what a step stores and opens follows what changed, not what there is."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness_durable.workspace import Limits
from tests.unit.workspace.kit import Kept, Watched, write

FOLDERS, FILES = 250, 5000


@pytest.fixture
def place(quick: Path) -> Path:
    write(
        quick / "w",
        {f"p{n % 10}/q{n % FOLDERS}/file{n}.py": f"# {n}\n" * (n % 40) for n in range(FILES)},
    )
    return quick / "w"


async def test_a_step_opens_and_stores_what_changed(place: Path) -> None:
    watched = Watched(place, kept := Kept())
    first = await watched.step()
    assert first.opened == FILES
    for changed in (0, 1, 20, 2000):
        kept.asked = 0
        content = {f"p{n % 10}/q{n % FOLDERS}/file{n}.py": f"{changed} {n}\n" for n in range(changed)}
        write(place, content)
        scanned = await watched.step()
        assert (scanned.opened, scanned.counts.modified) == (changed, changed)
        chains = min(changed, FOLDERS) + min(changed, 10) + (changed > 0)
        assert len(scanned.blobs) <= changed + chains
        assert scanned.new_bytes <= sum(map(len, content.values())) + chains * (64 << 10)
        assert scanned.stored_bytes == sum(map(len, scanned.blobs.values()))
        assert bool(kept.asked) == bool(changed)  # nothing changed: the World is not even asked


async def test_touching_and_writing_the_same_again_stores_nothing(place: Path) -> None:
    watched = Watched(place, Kept())
    before = (await watched.step()).root
    content = (place / "p1/q1/file1.py").read_bytes()
    write(place, {"p1/q1/file1.py": content})
    (place / "p2/q2/file2.py").touch()
    scanned = await watched.step()
    assert (scanned.root, scanned.opened, scanned.blobs, scanned.counts.total) == (before, 2, {}, 0)


async def test_a_row_that_changes_in_a_large_database_stores_its_pieces_only(quick: Path) -> None:
    size = 100 << 20
    (quick / "w").mkdir()
    with (quick / "w/data.db").open("wb") as file:
        file.truncate(size)
        for at in range(0, size, 256 << 10):
            file.seek(at)
            file.write(b"%d" % at)
    watched = Watched(quick / "w", Kept(), Limits(max_file=2 * size))
    await watched.step()
    with (quick / "w/data.db").open("r+b") as file:
        file.seek(50 << 20)
        file.write(b"another row")
        file.seek(0, 2)
        file.write(b"a page more")
    scanned = await watched.step()
    assert scanned.counts.modified == 1 and len(scanned.blobs) == 4  # two pieces, their list, the folder
    assert scanned.new_bytes < 1 << 20


async def test_one_change_in_a_flat_folder_of_twenty_thousand_stores_little(quick: Path) -> None:
    write(quick / "w", {f"f{n}": "" for n in range(20_000)})
    watched = Watched(quick / "w", Kept())
    await watched.step()
    write(quick / "w", {"f777": "1"})
    scanned = await watched.step()
    assert scanned.counts.modified == 1 and scanned.stored_bytes <= 32 << 10
