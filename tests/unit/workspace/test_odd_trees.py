"""Case 1: an odd tree comes back in bytes, modes and links, and what cannot be kept is said."""

from __future__ import annotations

import os
import socket
from pathlib import Path

import pytest

from harness_durable.workspace import Limits, diff, restore
from tests.unit.workspace.kit import WHEN, Kept, Watched, inside, tree, write

ODD = [
    b"new\nline", b"tab\t", b'quo"te', b"latin-\xe9", b"-dash", b":(glob)*", b"\x01\x7f", b"a" * 255,
    b"back\\slash", b"sp ace", "Grüße €".encode(), b"\\x41", b"\xff\xfe", b" ", b"..."
]  # fmt: skip


def make(place: Path) -> None:
    place.mkdir()
    base = os.fsencode(place)
    for number, name in enumerate(ODD):
        Path(os.fsdecode(base + b"/" + name)).write_bytes(b"%d" % number)
        Path(os.fsdecode(base + b"/folders/" + name)).mkdir(parents=True)
    for number, target in enumerate(["/etc/passwd", "gone", "self", "../..", "a b\n", ".", "folders"]):
        (place / f"link{number}").symlink_to(target)
    (place / "self").symlink_to("self")
    write(
        place,
        {".GIT/config": "x", "git~1/x": "y", "crlf.txt": b"a\r\nb\r\n", ".gitattributes": "* text eol=lf"},
    )
    write(place, {"vendor/lib/.git/HEAD": "ref: refs/heads/main\n", "vendor/lib/a.c": "int a;"})
    write(
        place,
        {"empty": b"", "nul": b"\0" * 10, "exact": b"p" * (256 << 10), "over": b"q" * ((256 << 10) + 1)},
    )
    for name, mode in (("m0600", 0o600), ("m0444", 0o444), ("m4755", 0o4755), ("m0", 0o000)):
        write(place, {name: name})
        (place / name).chmod(mode)
    for name, mode in (("d0700", 0o700), ("d0555", 0o555), ("d1777", 0o1777)):
        write(place, {f"{name}/in": name})
        (place / name).chmod(mode)
    with (place / "sparse").open("wb") as file:
        file.truncate(50 << 20)


async def test_an_odd_tree_comes_back_exactly(tmp_path: Path) -> None:
    make(tmp_path / "w")
    watched = Watched(tmp_path / "w", kept := Kept())
    scanned = await watched.step()
    assert scanned.left_out == () or scanned.left_out is None
    assert scanned.stored_bytes < 1 << 20  # of the sparse file, a piece once
    restored = await restore(watched.root, tmp_path / "r", kept.read, at_ms=WHEN)
    assert tree(tmp_path / "r") == tree(tmp_path / "w")
    assert restored.files == sum(1 for mode, *_ in tree(tmp_path / "w").values() if _is_file(mode))
    assert {times[2] for times in tree(tmp_path / "r", times=True).values()} == {WHEN * 1_000_000}
    again = Watched(tmp_path / "r", kept)
    assert (await again.step()).root == watched.root


async def test_what_is_no_file_is_left_out_and_said(tmp_path: Path) -> None:
    write(tmp_path / "w", {"a": "1"})
    os.mkfifo(tmp_path / "w" / "fifo")
    here = Path.cwd()
    os.chdir(tmp_path / "w")  # a socket's path is short
    try:
        with socket.socket(socket.AF_UNIX) as listening:
            listening.bind("socket")
    finally:
        os.chdir(here)
    watched = Watched(tmp_path / "w", kept := Kept())
    scanned = await watched.step()
    assert {(left.path, left.reason) for left in scanned.left_out or ()} == {
        ("fifo", "a fifo"),
        ("socket", "a socket"),
    }
    assert [change.path for change in scanned.changes] == ["a"]
    assert (await watched.step()).left_out is None  # said once
    (tmp_path / "w" / "fifo").unlink()
    assert [left.path for left in (await watched.step()).left_out or ()] == ["socket"]
    await restore(watched.root, tmp_path / "r", kept.read, at_ms=WHEN)
    assert inside(tmp_path / "r") == ["a"]


async def test_a_difference_names_each_path_once(tmp_path: Path) -> None:
    place = tmp_path / "w"
    write(
        place, {"same/x": "1", "edited": "1", "gone/deep/er": "1", "kind": "file", "link": "1", "odd\n": "1"}
    )
    (place / "hollow").mkdir()
    watched = Watched(place, kept := Kept())
    await watched.step()
    first = watched.root
    write(place, {"edited": "2", "made/deep/er": "2", "odd\n": "2"})
    for name in ("gone/deep/er", "kind", "link"):
        (place / name).unlink()
    for name in ("gone/deep", "gone", "hollow"):
        (place / name).rmdir()
    (place / "link").symlink_to("same")
    (place / "made/empty").mkdir()
    write(place, {"kind/inner": "1"})
    (place / "same").chmod(0o700)
    scanned = await watched.step()
    assert [(change.op, change.path) for change in scanned.changes] == [
        ("modified", "edited"),
        ("removed", "gone/deep/er"),
        ("removed", "hollow/"),
        ("removed", "kind"),
        ("added", "kind/inner"),
        ("modified", "link"),
        ("added", "made/deep/er"),
        ("added", "made/empty/"),
        ("modified", "odd\\x0a"),
        ("modified", "same/"),
    ]
    assert (scanned.counts.added, scanned.counts.modified, scanned.counts.removed) == (3, 4, 3)
    assert await diff(first, watched.root, kept.read) == list(scanned.changes)
    assert await diff(first, first, kept.read) == []
    backward = {(change.path, change.op) for change in await diff(watched.root, first, kept.read)}
    assert ("kind/inner", "removed") in backward and ("kind", "added") in backward


async def test_an_event_names_two_hundred_changes_and_counts_the_rest(tmp_path: Path) -> None:
    write(tmp_path / "w", {f"{number:03}": str(number) for number in range(250)})
    scanned = await Watched(tmp_path / "w", Kept()).step()
    assert (len(scanned.changes), scanned.more, scanned.counts.added) == (200, 50, 250)


async def test_a_folder_deeper_than_can_be_walked_is_said(tmp_path: Path) -> None:
    place = deep = tmp_path / "w"
    place.mkdir()
    for _ in range(230):
        deep = deep / "d"
        deep.mkdir()
    (deep / "f").write_text("1")
    scanned = await Watched(place, Kept()).step()
    (left,) = scanned.left_out or (None,)
    assert left is not None and left.reason == "too deep" and left.path.count("d/") == 201


@pytest.mark.parametrize("what", ["file", "folder"])
async def test_our_own_folders_below_the_workspace_are_never_part_of_it(tmp_path: Path, what: str) -> None:

    ours = tmp_path / "w" / ".harness-durable" / "world"
    write(
        tmp_path / "w", {"a": "1", (".harness-durable/world" + ("/x" if what == "folder" else "")): "secret"}
    )
    watched = Watched(tmp_path / "w", kept := Kept(), Limits(outside=(ours,)))
    scanned = await watched.step()
    assert not kept.holds(b"secret")
    assert [left.reason for left in scanned.left_out or ()] == ["not part of the workspace"]


def _is_file(mode: object) -> bool:
    assert isinstance(mode, int)
    return mode & 0o170000 == 0o100000
