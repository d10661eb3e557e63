"""Cases 2 and 3: the user's ``.git`` is saved, never touched, never executed; its credentials are not."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

from harness_durable.workspace import Limits, gitfolder, restore
from tests.unit.workspace.kit import WHEN, Kept, Watched, git, tree, write


def repository(place: Path) -> Path:
    write(place, {"a.py": "1\n", "sub/b.py": "2\n", ".gitignore": "*.log\nbuild/\n"})
    git(place, "init", "-q", "-b", "main")
    git(place, "add", "-A")
    git(place, "commit", "-qm", "first")
    return place


async def test_a_repository_is_the_same_after_a_hundred_snapshots(tmp_path: Path) -> None:
    place = repository(tmp_path / "w")
    watched = Watched(place, Kept())
    before = tree(place, times=True)
    for number in range(100):
        write(place, {"a.log": str(number)})  # ignored
        await watched.step()
    (place / "a.log").unlink()
    assert tree(place, times=True) == before


async def test_a_restored_repository_is_whole_and_has_the_commits_of_the_agent(tmp_path: Path) -> None:
    place = repository(tmp_path / "w")
    watched = Watched(place, kept := Kept())
    await watched.step()
    write(place, {"a.py": "changed\n"})
    git(place, "commit", "-qam", "by the agent")
    git(place, "gc", "-q")
    git(place, "checkout", "-qb", "topic")
    write(place, {"staged.py": "3\n"})
    git(place, "add", "staged.py")
    await watched.step()
    await restore(watched.root, there := tmp_path / "r", kept.read, at_ms=WHEN)
    assert git(there, "fsck", "--strict") == ""
    assert git(there, "log", "--format=%s") == "by the agent\nfirst\n"
    assert git(there, "status", "--porcelain", "--branch") == "## topic\nA  staged.py\n"


async def test_what_a_running_git_has_open_is_not_saved(tmp_path: Path) -> None:
    place = repository(tmp_path / "w")
    passing = [
        "index.lock",
        "refs/heads/main.lock",
        "objects/aa/tmp_obj_x",
        "objects/pack/tmp_pack_x",
        "gc.pid",
    ]
    write(place / ".git", dict.fromkeys([*passing, "fsmonitor--daemon.ipc"], "passing"))
    watched = Watched(place, kept := Kept())
    await watched.step()
    assert not kept.holds(b"passing")
    await restore(watched.root, there := tmp_path / "r", kept.read, at_ms=WHEN)
    git(there, "commit", "-qm", "no lock is in the way", "--allow-empty")


def test_refs_are_read_before_the_objects_that_they_name_and_packs_last() -> None:
    names = [b"objects", b"index", b"packed-refs", b"refs", b"HEAD", b"x.lock"]
    status = Path().stat()
    order = [name for name, _ in gitfolder.ordered(dict.fromkeys(names, status))]
    assert order == [b"HEAD", b"refs", b"packed-refs", b"index", b"objects"]
    assert [name for name, _ in gitfolder.ordered({b"pack": status, b"0a": status})] == [b"0a", b"pack"]


async def test_nothing_that_a_repository_names_is_run(tmp_path: Path) -> None:
    place = repository(tmp_path / "w")
    ran = tmp_path / "ran"
    script = tmp_path / "script"
    script.write_text(f'#!/bin/sh\necho "$0" >> {ran}\ncat\n')
    script.chmod(0o755)
    write(place, {".gitattributes": "*.bin filter=f diff=f\n", "x.bin": "content", "ignored.log": "x"})
    for key in ("core.fsmonitor", "filter.f.clean", "filter.f.smudge", "core.pager", "diff.f.textconv"):
        git(place, "config", key, os.fspath(script))
    for hook in ("post-checkout", "pre-commit", "post-index-change", "fsmonitor-watchman"):
        (place / ".git/hooks").mkdir(exist_ok=True)
        (place / ".git/hooks" / hook).symlink_to(script)
    watched = Watched(place, kept := Kept())
    await watched.step()
    write(place, {"a.py": "2", "new.bin": "x", "new.log": "x"})
    await watched.step()
    await restore(watched.root, tmp_path / "r", kept.read, at_ms=WHEN)
    assert not ran.exists()
    git(place, "status")  # the program is one that git would have run
    assert ran.exists()


SECRETS = {
    '[http "https://github.com/"]\n\textraheader = AUTHORIZATION: basic SECRET\n': 1,
    '[http]extraHeader = "x: SECRET\\\n SECRET"\n[core]\n\tbare = false\n': 1,
    '[remote "origin"]\n\turl = https://user:SECRET@example.org/a.git\n': 1,
    '[remote "origin"]\n\turl = https://SECRET@example.org/a.git\n\tfetch = +refs/heads/*:refs/x/*\n': 1,
    '[url "https://oauth2:SECRET@example.org/"]\n\tinsteadOf = https://example.org/\n': 1,
    '[credential]\n\thelper = "!f() { echo password=SECRET; }; f"\n': 1,
    "[sendemail]\n\tsmtpPass = SECRET\n[github]\n\toauth-token = SECRET\n": 1,
    '[remote "o"]\n\turl = ssh://git:SECRET@example.org/a.git\n': 1,
    "[http]\n\tproxy = http://me:SECRET@proxy:8080\n[x]\n\ttoken=SECRET\n": 1,
    '[remote "o"]\n\turl = git@example.org:a.git\n\turl = ssh://git@example.org/a.git\n': 0,
    "[credential]\n\thelper = store\n[user]\n\tname = A\n\temail = a@example.org\n": 0,
    "[core]\n\trepositoryformatversion = 0\n\tsshCommand = ssh -p 1\n": 0,
}


@pytest.mark.parametrize(("config", "secret"), SECRETS.items())
def test_credentials_in_a_config_are_replaced_and_nothing_else(config: str, secret: int) -> None:
    clean, redacted = gitfolder.redact(config.encode())
    assert redacted == bool(secret) and b"SECRET" not in clean
    assert gitfolder.redact(clean) == (clean, redacted)
    if not secret:
        assert clean.decode() == config
    plain = [line for line in config.splitlines() if "SECRET" not in line]
    assert [line for line in clean.decode().splitlines() if line in plain] == plain


async def test_no_credential_of_a_repository_is_stored_and_the_restored_one_works(tmp_path: Path) -> None:
    place = repository(tmp_path / "w")
    git(place, "config", "http.https://github.com/.extraheader", "AUTHORIZATION: basic c2VjcmV0")
    git(place, "remote", "add", "origin", "https://x:hunter2@example.org/a.git")
    (place / ".git/config").chmod(0o600)
    watched = Watched(place, kept := Kept())
    await watched.step()
    assert not kept.holds(b"c2VjcmV0") and not kept.holds(b"hunter2")
    restored = await restore(watched.root, there := tmp_path / "r", kept.read, at_ms=WHEN)
    assert restored.redacted == (".git/config",)
    assert git(there, "remote", "get-url", "origin") == "https://REDACTED@example.org/a.git\n"
    assert (there / ".git/config").stat().st_mode & 0o777 == 0o600
    assert (await Watched(there, kept).step()).root == watched.root


async def test_configs_of_submodules_worktrees_and_bare_repositories_are_redacted(tmp_path: Path) -> None:
    place = repository(tmp_path / "w")
    url = '[remote "o"]\n\turl = https://hunter2@example.org/a\n'
    parts = {"HEAD": "ref: refs/heads/main\n", "objects/x": "", "refs/x": ""}
    for repo in (".git/modules/lib", "bare.git"):
        write(place / repo, {**parts, "config": url})
    write(place, {".git/config.worktree": url, "config": "[not git] hunter3@ https://me:plain@example.org"})
    watched = Watched(place, kept := Kept())
    await watched.step()
    assert not kept.holds(b"hunter2")
    assert kept.holds(b"https://me:plain@example.org")  # a file of the user's is saved as it is


async def test_a_repository_that_is_outside_is_said_and_one_that_is_inside_is_used(tmp_path: Path) -> None:
    place = repository(tmp_path / "w")
    write(
        place, {"tree/.git": f"gitdir: {tmp_path}/elsewhere\n", "lib/.git": "gitdir: ../.git/modules/lib\n"}
    )
    write(place, {"lib/.gitignore": "*\n", "lib/tracked": "1", "lib/other": "1"})
    write(tmp_path / "other", {"tracked": "1"})
    git(tmp_path / "other", "init", "-q")
    git(tmp_path / "other", "add", "-f", "tracked")
    (place / ".git/modules").mkdir()
    (tmp_path / "other/.git").rename(place / ".git/modules/lib")
    watched = Watched(place, Kept())
    scanned = await watched.step()
    assert {left.path: left.reason for left in scanned.left_out or ()} == {
        "lib/.gitignore": "ignored",
        "lib/other": "ignored",
        "tree/.git": "its repository is outside and not saved",
    }
    named = {change.path for change in scanned.changes}
    assert {"lib/.git", "lib/tracked", "tree/.git"} <= named
    assert (await watched.step()).left_out is None


async def test_without_the_repository_its_files_are_saved_all_the_same(tmp_path: Path) -> None:
    place = repository(tmp_path / "w")
    write(place, {"x.log": "1"})
    git(place, "add", "-f", "x.log")
    scanned = await Watched(place, Kept(), Limits(git="exclude")).step()
    assert {change.path for change in scanned.changes} == {"a.py", "sub/b.py", ".gitignore", "x.log"}
    assert [left.path for left in scanned.left_out or ()] == [".git/"]


async def test_a_pack_may_be_larger_than_other_files(tmp_path: Path) -> None:
    place = repository(tmp_path / "w")
    noise = os.urandom(20_000)
    write(place, {"big": noise})
    git(place, "add", "big")
    git(place, "commit", "-qm", "big")
    git(place, "gc", "-q")
    scanned = await Watched(place, Kept(), Limits(max_file=10_000)).step()
    packs = [change.path for change in scanned.changes if re.search(r"objects/pack/.*\.pack", change.path)]
    assert packs and [left.path for left in scanned.left_out or ()] == ["big"]
