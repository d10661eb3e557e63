"""Durable files from the command line: what was changed, as it was then, and elsewhere."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.cli.kit import Cli, bash, calls, says, sentence


@pytest.fixture(scope="module", params=["sqlite:world.db", "file:world"])
def worked(tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> Cli:
    """A session with three steps, in a folder in which its World and the lives lie, too."""
    cli = Cli(tmp_path_factory.mktemp("files"), request.param)
    (cli.folder / "a.txt").write_text("one\ntwo\n")
    (cli.folder / "raw").write_bytes(b"\0\1")
    hostile = "printf x > $'evil\\x1b]0;owned\\x07'"
    steps = ["printf 'one\\n2\\n' > a.txt", "rm raw", hostile]
    with cli.provider(*(calls(bash(command)) for command in steps), says("done")):
        done = cli("run", "go", "-s", "s")
    assert done.returncode == 0, done.stderr
    return cli


def test_a_trace_says_what_each_step_changed(worked: Cli) -> None:
    told = worked("trace", "s").stdout.decode()
    assert "files: 1 modified (step 2)" in told
    assert "files: 1 removed (step 3)" in told
    assert "\x1b]" not in told


def test_a_diff_shows_lines_and_says_what_is_none(worked: Cli) -> None:
    told = worked("diff", "s").stdout.decode()
    assert "M a.txt\n@@ -1,2 +1,2 @@\n one\n-two\n+2\n" in told
    assert "D raw (binary, or too large to compare)" in told
    assert "\x1b]" not in told and "evil" in told
    one = worked("diff", "s", "--step", "3").stdout.decode()
    assert one.splitlines() == ["D raw (binary, or too large to compare)"]


def test_a_diff_between_events_is_for_programs_too(worked: Cli) -> None:
    seqs = [line["seq"] for line in worked.json("trace", "s") if line["kind"] == "workspace.committed"]
    found = worked.json("diff", "s", "--from", str(seqs[0]), "--to", str(seqs[1]))
    assert [(line["op"], line["path"]) for line in found] == [("modified", "a.txt")]
    assert found[0]["diff"].endswith("-two\n+2\n")
    before = worked.json("diff", "s", "--from", "0", "--to", str(seqs[0]), "--stat")
    assert {(line["op"], line["path"]) for line in before} == {
        ("added", name) for name in ("a.txt", "raw", "script.json")
    }


def test_a_checkout_is_a_step_of_its_own_place_and_overwrites_nothing(worked: Cli, tmp_path: Path) -> None:
    """Of case 14, what there is without forks: the files of step k, which nothing here changes."""
    seqs = [line["seq"] for line in worked.json("trace", "s") if line["kind"] == "workspace.committed"]
    place = tmp_path / "deep/there"
    assert worked("checkout", "s", str(place), "--at", str(seqs[1])).returncode == 0
    assert sorted(path.name for path in place.iterdir()) == ["a.txt", "raw", "script.json"]
    assert (place / "a.txt").read_text() == "one\n2\n"
    again = worked("checkout", "s", str(place))
    assert again.returncode == 2 and "is not empty" in sentence(again)
    assert (worked.folder / "a.txt").read_text() == "one\n2\n"


def test_what_is_not_there_is_said(worked: Cli, tmp_path: Path) -> None:
    early = worked("checkout", "s", str(tmp_path / "x"), "--at", "1")
    assert early.returncode == 2 and "has no files at event 1" in sentence(early)
    step = worked("diff", "s", "--step", "99")
    assert step.returncode == 2 and "steps, not 99" in sentence(step)


def test_a_session_that_travels_takes_its_files_along(worked: Cli, tmp_path: Path) -> None:
    """Case 14: export, import and copy keep every root, and deleting the one leaves the other whole."""
    file, place = tmp_path / "s.jsonl", tmp_path / "there"
    assert worked("export", "s", "-o", str(file)).returncode == 0
    other = f"file:{tmp_path / 'other'}"
    assert worked("import", str(file), "--world", other).returncode == 0
    assert worked("checkout", "s", str(place), "--world", other).returncode == 0
    assert (place / "a.txt").read_text() == "one\n2\n"
    copied = f"sqlite:{tmp_path / 'copied.db'}"
    done = worked("worlds", "copy", worked.world, copied)
    assert done.returncode == 0, done.stderr
    assert worked("checkout", "s", str(tmp_path / "copied"), "--world", copied).returncode == 0


def test_a_workspace_that_has_gone_comes_back_with_the_next_message(cli: Cli) -> None:
    (cli.folder / "ws").mkdir()
    (cli.folder / "ws/old.txt").write_text("old")
    with cli.provider(calls(bash("echo new > new.txt")), says("done"), says("more")):
        assert cli("run", "go", "-s", "s", "--workspace", "ws").returncode == 0
        shutil.rmtree(cli.folder / "ws")
        done = cli("run", "more", "-s", "s", "--workspace", "ws")
        assert done.returncode == 0, done.stderr
    assert {path.name for path in (cli.folder / "ws").iterdir()} == {"old.txt", "new.txt"}
    assert b"files made anew from the log" in done.stderr


@pytest.mark.parametrize("place", ["/", "~"])
def test_nobody_means_the_whole_disk_or_the_home(place: str, cli: Cli) -> None:
    folder = str(cli.folder) if place == "~" else place
    env = {"HOME": str(cli.folder), "ANTHROPIC_API_KEY": "none"}
    done = cli("run", "go", "-s", "s", "--workspace", folder, env=env)
    assert done.returncode == 2 and "--files kept" in sentence(done)
    assert cli("sessions").stdout == b""


def test_scratch_has_a_folder_of_its_own(cli: Cli) -> None:
    (cli.folder / "mine.txt").write_text("mine")
    with cli.provider(calls(bash("ls -A; echo made > made.txt; ls")), says("done")):
        assert cli("run", "go", "-s", "s", "--files", "scratch").returncode == 0
    (outcome,) = (line for line in cli.json("trace", "s") if line["kind"] == "tool.completed")
    assert "mine.txt" not in outcome["result"]["text"] and "made.txt" in outcome["result"]["text"]
    assert not (cli.folder / "made.txt").exists()
    assert not any(line["kind"] == "workspace.committed" for line in cli.json("trace", "s"))


def test_doctor_shows_the_settings_of_durable_files(cli: Cli) -> None:
    told = cli("doctor", "--quick", env={"HARNESS_DURABLE_WORKSPACE_EXCLUDE": "*.bin;tmp/"}).stdout.decode()
    assert "HARNESS_DURABLE_WORKSPACE_EXCLUDE" in told and "*.bin" in told


def test_a_rollback_with_nothing_to_roll_back_says_so(worked: Cli) -> None:
    done = worked("recover", "s", "--workspace", "rollback")
    assert done.returncode == 0 and "nothing is rolled back" in done.stderr.decode()
