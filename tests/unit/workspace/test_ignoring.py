"""Case 12: what git ignores is left out and said; what it tracks, and what was in once, is not."""

from __future__ import annotations

import os
import random
from pathlib import Path

import pytest

from harness_durable.workspace import Limits, diff, gitindex, ignoring
from harness_durable.workspace import opening as opening_module
from tests.unit.workspace.kit import Kept, Watched, git, write


async def paths(watched: Watched) -> set[str]:
    """All that is in a snapshot, the repository aside."""
    await watched.step()
    found = await diff("", watched.root, watched.kept.read)
    return {change.path for change in found if not change.path.startswith(".git/")}


async def left(watched: Watched) -> dict[str, str]:
    return {each.path: each.reason for each in (await watched.step()).left_out or ()}


async def test_ignored_folders_are_not_entered_and_are_said_once(tmp_path: Path) -> None:
    write(tmp_path / "w", {".gitignore": "node_modules/\n.env\n", "a": "1", ".env": "KEY=hunter2"})
    write(tmp_path / "w", {f"node_modules/m{n}/index.js": str(n) for n in range(50)})
    watched = Watched(tmp_path / "w", kept := Kept())
    first = await watched.step()
    assert [each.path for each in first.left_out or ()] == [".env", "node_modules/"]
    assert first.opened == 2 + 1  # the two files, and the rules once more
    assert not kept.holds(b"hunter2")
    write(tmp_path / "w", {"node_modules/new": "1", "a": "2"})
    assert (await watched.step()).left_out is None
    write(tmp_path / "w", {"sub/.gitignore": "x\n", "sub/x": "1"})
    assert [each.path for each in (await watched.step()).left_out or ()] == [".env", "node_modules/", "sub/x"]


async def test_a_tracked_file_is_never_ignored(tmp_path: Path) -> None:
    place = tmp_path / "w"
    write(place, {"build/keep/a": "1", "build/b": "1", "x.log": "1", "y.log": "1", "z.log": "1"})
    git(place, "init", "-q")
    git(place, "add", "build/keep/a", "x.log")
    write(place, {".gitignore": "build/\n*.log\n"})
    watched = Watched(place, Kept())
    assert await paths(watched) == {".gitignore", "build/keep/a", "x.log"}
    git(place, "add", "-f", "y.log")
    assert "y.log" in await paths(watched)


@pytest.mark.parametrize(
    ("pattern", "name"),
    [
        ("*a*a*a*a*a*a*a*a*b", "a" * 250),
        ("**/a/**/a/**/a/**/a/**/a/**/b", "/".join("a" * 60 + "c")),
        ("[z-a]*", "z"),
        ("[", "["),
    ],
)
async def test_a_pattern_that_is_odd_or_never_done_hides_no_other(
    tmp_path: Path, pattern: str, name: str
) -> None:
    """An agent may write it, and all sessions of the worker would wait."""
    write(tmp_path / "w", {".gitignore": f"secret\n{pattern}\n", name: "1", "secret": "1"})
    watched = Watched(tmp_path / "w", Kept(), Limits(timeout=10))
    assert await paths(watched) == {".gitignore", name}


@pytest.mark.parametrize(
    ("pattern", "names"),
    [
        ("*a*a*b", {"xaxaxb": True, "aab": True, "abba": False, "xaxb": False}),
        ("a*b*c*", {"abc": True, "axbbxcx": True, "acb": False, "d/abc": True}),
        ("*x/**/y*z*", {"ax/yz": True, "x/b/c/yyz": True, "x/b/y": False}),
        ("?*[ab]*[!c]d", {"xaxd": True, "ad": False, "xaacd": False}),
    ],
)
def test_many_stars_mean_what_git_means(tmp_path: Path, pattern: str, names: dict[str, bool]) -> None:
    git(tmp_path, "init", "-q")
    write(tmp_path, {".gitignore": f"{pattern}\n", **dict.fromkeys(names, "1")})
    spec = ignoring._spec(pattern.encode())  # pyright: ignore[reportPrivateUsage]  # the rule itself
    for name, ignored in names.items():
        said = git(tmp_path, "check-ignore", name, expect=0 if ignored else 1)
        assert bool(said) == ignored
        assert (ignoring._says(spec, name.encode(), False) is True) == ignored  # pyright: ignore[reportPrivateUsage]


async def test_a_file_that_becomes_ignored_stays_in_until_it_is_deleted(tmp_path: Path) -> None:
    place = tmp_path / "w"
    write(place, {"data/a": "1", "b.log": "1"})
    watched = Watched(place, Kept())
    await watched.step()
    write(place, {".gitignore": "data/\n*.log\n", "data/new": "1", "c.log": "1"})
    assert await left(watched) == {"c.log": "ignored", "data/new": "ignored"}
    write(place, {"data/a": "2", "data/later": "1"})
    scanned = await watched.step()
    assert [(change.op, change.path) for change in scanned.changes] == [("modified", "data/a")]
    fresh = Watched(place, watched.kept)  # no cache: the log knows what was in
    fresh.root = watched.root
    assert (await fresh.step()).root == watched.root
    (place / "data/a").unlink()
    await watched.step()
    write(place, {"data/a": "3"})
    assert "data/a" in await left(watched)


async def test_rules_that_change_are_followed_for_what_is_new(tmp_path: Path) -> None:
    write(tmp_path / "w", {".gitignore": "*.a\n", "1.a": "", "1.b": ""})
    watched = Watched(tmp_path / "w", Kept())
    assert await paths(watched) == {".gitignore", "1.b"}
    write(tmp_path / "w", {".gitignore": "*.b\n", "2.b": ""})
    assert await paths(watched) == {".gitignore", "1.a", "1.b"}
    write(tmp_path / "w", {"sub/3.b": "", "sub/.gitignore": "!*.b\n"})
    assert await paths(watched) == {".gitignore", "1.a", "1.b", "sub/.gitignore", "sub/3.b"}


async def test_a_name_that_turns_from_an_ignored_folder_into_a_file_is_saved(tmp_path: Path) -> None:
    write(tmp_path / "w", {".gitignore": "out/\n", "out/x": "1"})
    watched = Watched(tmp_path / "w", Kept())
    await watched.step()
    (tmp_path / "w/out/x").unlink()
    (tmp_path / "w/out").rmdir()
    write(tmp_path / "w", {"out": "a file"})
    assert await paths(watched) == {".gitignore", "out"}


async def test_rules_that_cannot_be_read_ignore_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = tmp_path / "w"
    write(place, {".gitignore": "x\n", "x": "1", "link/x": "1", "bad/.gitignore": "x\n[\n\\\n", "bad/x": "1"})
    (place / "link/.gitignore").symlink_to("../bad/.gitignore")
    real = os.open

    def denied(path: bytes, flags: int, mode: int = 0o777, *, dir_fd: int | None = None) -> int:
        if path == b".gitignore" and os.fstat(dir_fd or 0).st_ino == place.stat().st_ino:
            raise PermissionError(13, "denied")
        return real(path, flags, mode, dir_fd=dir_fd)

    monkeypatch.setattr(opening_module.os, "open", denied)
    watched = Watched(place, Kept())
    scanned = await watched.step()
    assert {change.path for change in scanned.changes} == {"x", "link/x", "link/.gitignore", "bad/.gitignore"}
    assert {each.path: each.reason for each in scanned.left_out or ()} == {
        ".gitignore": "unreadable",
        "bad/x": "ignored",
    }


async def test_own_globs_are_stronger_than_those_of_the_repository(tmp_path: Path) -> None:
    place = tmp_path / "w"
    write(place, {".gitignore": "*.log\nnode_modules/\n", "a.log": "", "b.log": "", "secret/k": "", "c": ""})
    write(place, {"node_modules/mine/x.js": "", "node_modules/other/y.js": ""})
    git(place, "init", "-q")
    git(place, "add", "-f", "secret/k")
    limits = Limits(include=("a.log", "node_modules/mine/**"), exclude=("secret/", "/c"))
    assert await paths(Watched(place, Kept(), limits)) == {".gitignore", "a.log", "node_modules/mine/x.js"}
    everything = Limits(ignored="include", exclude=("secret",))
    assert await paths(Watched(place, Kept(), everything)) == {
        ".gitignore",
        "a.log",
        "b.log",
        "c",
        "node_modules/mine/x.js",
        "node_modules/other/y.js",
    }


async def test_a_repository_within_is_judged_by_its_own_rules(tmp_path: Path) -> None:
    place = tmp_path / "w"
    write(place, {".gitignore": "*.o\n", "lib/a.o": "", "lib/b.x": "", "lib/.gitignore": "*.x\n", "c.o": ""})
    for folder in (place, place / "lib"):
        git(folder, "init", "-q")
    found = {path for path in await paths(Watched(place, Kept())) if "/.git/" not in path}
    assert found == {".gitignore", "lib/.gitignore", "lib/a.o"}


async def test_an_index_of_an_unknown_form_is_said(tmp_path: Path) -> None:
    place = tmp_path / "w"
    write(place, {"x.log": "1", ".gitignore": "*.log\n"})
    git(place, "init", "-q")
    git(place, "add", "-f", "x.log")
    write(place, {".git/index": b"DIRC\0\0\0\x09" + bytes(40)})
    watched = Watched(place, Kept())
    found = await left(watched)
    assert found["x.log"] == "ignored" and "unknown form" in found[".git"]
    assert (await watched.step()).left_out is None


@pytest.mark.parametrize("version", [2, 3, 4])
@pytest.mark.parametrize("object_format", ["sha1", "sha256"])
def test_the_index_is_read_as_git_reads_it(tmp_path: Path, version: int, object_format: str) -> None:
    names = {f"{'d' * (n % 9)}{n % 3}/{'x' * (n % 130)}{n}" + " é\n"[: n % 4]: "" for n in range(300)}
    write(tmp_path, names)
    git(tmp_path, "init", "-q", f"--object-format={object_format}")
    git(tmp_path, "add", "-A")
    git(tmp_path, "update-index", f"--index-version={2 if version == 3 else version}")
    if version == 3:
        write(tmp_path, {"later": ""})
        git(tmp_path, "add", "-N", "later")  # needs the longer entries of version 3
    raw = (tmp_path / ".git/index").read_bytes()
    assert raw[7] == version
    found = gitindex.tracked(raw)
    listed = {os.fsencode(name) for name in git(tmp_path, "ls-files", "-z").split("\0") if name}
    folders = {name.rpartition(b"/")[0] for name in listed} - {b""}
    assert len(listed) >= 300 and found == listed | folders
    assert gitindex.tracked(raw[:-1]) is None and gitindex.tracked(b"") is None


PATTERNS = [
    "*.a", "/x", "x/", "y", "!y", "**/z", "x/**", "!x/y", "?.b", "[xy].a", "x/*/z", "# no", "", "z/", "!*.a",
    "\\!q", "x/y", "*", "!*/", " y", "y ", "/**/y.a",
]  # fmt: skip
NAMES = ["x", "y", "z", "x.a", "y.a", "q.b", "!q"]


@pytest.mark.parametrize("seed", [1, 2, 3, 16, 101, 118, 125, 213, 280, 303, 312])
async def test_what_is_ignored_is_what_git_ignores(tmp_path: Path, seed: int) -> None:
    chance, place = random.Random(seed), tmp_path / "w"
    folders = [place]
    place.mkdir()
    for _ in range(12):
        folder = chance.choice(folders) / chance.choice(["x", "y", "z", "d"])
        if not folder.exists():
            folder.mkdir()
            folders.append(folder)
    for folder in folders:
        for name in chance.sample(NAMES, 4):
            if not (folder / name).exists():
                (folder / name).write_text(name)
        if chance.random() < 0.4:
            chosen = chance.choices(PATTERNS, k=chance.randint(1, 4))
            (folder / ".gitignore").write_text("\n".join(chosen) + "\n")
    git(place, "init", "-q")
    write(place, {".git/info/exclude": chance.choice(PATTERNS) + "\n"})
    some = [path for path in place.rglob("*") if path.is_file() and ".git" not in path.parts]
    git(place, "add", "-f", *map(os.fspath, chance.sample(some, 3)))
    listed = git(place, "ls-files", "-coz", "--exclude-standard")
    found = {path for path in await paths(Watched(place, Kept())) if not path.endswith("/")}
    assert found == {name for name in listed.split("\0") if name}
