"""``fork`` with a real harness: it goes on in the middle of a turn, with the files as they were then."""

from __future__ import annotations

from pathlib import Path

from tests.cli.kit import Cli, bash, calls, says, sentence


def test_a_fork_goes_on_in_the_middle_and_is_a_session_like_others(cli: Cli, tmp_path: Path) -> None:
    (cli.folder / "ws").mkdir()
    (cli.folder / "ws/a.txt").write_text("one\n")
    steps = ["echo two > a.txt", "echo x > lost.txt", "echo three > b.txt; cat a.txt"]
    with cli.provider(*(calls(bash(command)) for command in steps), says("done")):
        assert cli("run", "go", "-s", "s", "--workspace", "ws").returncode == 0
        kinds = [line["kind"] for line in cli.json("trace", "s")]
        place = kinds.index("tool.completed") + 1
        (told,) = cli.json("fork", "s", "--at", str(place), "--as", "f")
        assert (told["session"], told["parent"], told["at"]) == ("f", "s", place)
        assert told["workspace"] == str(cli.folder / "f") and told["blobs"] > 0
        (cli.folder / "ws/a.txt").write_text("of the parent\n")
        done = cli("run", "try something else", "-s", "f")
    assert (done.returncode, done.stdout) == (0, b"done\n"), done.stderr
    assert {path.name: path.read_text() for path in (cli.folder / "f").iterdir()} == {
        "a.txt": "two\n",
        "b.txt": "three\n",
    }
    ran = [line for line in cli.json("trace", "f") if line["kind"] == "tool.completed"]
    assert [line["result"]["text"].splitlines()[-1] for line in ran[1:]] == ["two"]
    assert f"forked from event {place} of s" in cli("trace", "f").stdout.decode()
    assert [line["session"] for line in cli.json("sessions")] == ["f", "s"]
    assert b"A b.txt" in cli("diff", "f", "--stat").stdout
    file, other = tmp_path / "f.jsonl", f"file:{tmp_path / 'other'}"
    assert cli("export", "f", "-o", str(file)).returncode == 0
    assert cli("import", str(file), "--world", other).returncode == 0
    assert cli("checkout", "f", str(tmp_path / "out"), "--world", other).returncode == 0
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == ["a.txt", "b.txt"]


def test_what_cannot_be_forked_is_said_in_a_sentence(cli: Cli) -> None:
    cli.log("s")
    far = cli("fork", "s", "--at", "9")
    assert far.returncode == 2 and "has the events 1 to 2, and not 9" in sentence(far)
    kept = cli("fork", "s")
    assert kept.returncode == 2 and "name a folder that has them (`--files DIR`)" in sentence(kept)
    nobody = cli("fork", "nobody")
    assert nobody.returncode == 2 and "looked in World" in sentence(nobody)
    named = cli("fork", "s", "--as", "f", "--files", ".")
    assert (named.returncode, named.stdout) == (0, b"f\n") and b"forked s at event 2" in named.stderr
    again = cli("fork", "s", "--as", "f", "--files", ".")
    assert again.returncode == 2 and "is there already" in sentence(again)
