"""``run`` and ``recover`` with a real harness and a scripted model: what people see, and the exit code."""

from __future__ import annotations

import json
import re
import signal
import sqlite3
import subprocess
from contextlib import closing
from typing import IO, cast

import pytest

from tests.cli.kit import KEY, Cli, Done, bash, calls, held, says, sentence
from tests.cli.test_hostile import dangerous


def outcome(done: Done) -> dict[str, object]:
    [line] = done.stdout.splitlines()
    return json.loads(line)


def test_run_answers_on_stdout_and_tells_on_stderr(either: Cli) -> None:
    with either.provider(calls(bash("echo hi")), says("all done")):
        done = either("run", "go", "-s", "s", "--message-id", "m")
        assert (done.returncode, done.stdout) == (0, b"all done\n")
        assert "Bash completed" in sentence(done)
        again = either("run", "go", "-s", "s", "--message-id", "m", "--json")
    assert outcome(again) == {
        "v": 1, "session": "s", "turn": "m", "status": "completed", "text": "all done", "reason": "",
        "lives": 1, "unknown": [],
    }  # fmt: skip
    assert "Bash" not in sentence(again)
    assert not list(either.run_dir.glob("life-*"))
    assert KEY.encode() not in b"".join(path.read_bytes() for path in either.folder.rglob("*.log"))


def test_what_a_tool_and_a_model_say_cannot_steer_the_terminal(cli: Cli) -> None:
    evil = "\x1b]0;owned\x07\x1b[2J\r\u202e\u200b"
    with cli.provider(
        calls(bash(r"printf 'a\0b\033[31m\rc'; head -c 200000000 /dev/zero | tr '\0' x")), says(evil)
    ):
        done = cli("run", "go", "-s", "s")
    assert done.returncode == 0
    assert "Bash completed" in sentence(done)
    assert not dangerous(done.stdout.decode() + done.stderr.decode())
    assert not dangerous(cli("trace", "s").stdout.decode())


def test_a_prompt_of_ten_megabytes_arrives_whole(cli: Cli) -> None:
    with cli.provider(says("long")):
        done = cli("run", "-", "-s", "s", "-q", stdin=b"words and \n" * 1_000_000)
    assert (done.returncode, done.stdout) == (0, b"long\n")
    assert cli.json("trace", "s")[1]["text"]["size"] == 11_000_000


REFUSALS = [
    (401, "does not know the key; set another key with ANTHROPIC_API_KEY"),
    (400, "cannot use this request"),
]


@pytest.mark.parametrize(("status", "said"), REFUSALS)
def test_an_answer_that_stays_the_same_ends_the_turn_at_once(status: int, said: str, cli: Cli) -> None:
    fault = {"type": "http_error", "status": status}
    with cli.provider({"faults": [fault]}):
        done = cli("run", "go", "-s", "s")
    assert done.returncode == 1
    assert said in sentence(done)
    assert "turn failed" in sentence(done)
    assert "see `harness-durable trace s`; another message to the session tries again" in sentence(done)
    assert [row["state"] for row in cli.json("sessions")] == ["idle"]


TRIED_AGAIN = [
    (
        {"type": "http_error", "status": 429, "headers": {"retry-after": "7"}},
        "too many requests; the harness tries again",
    ),
    ({"type": "http_error", "status": 529}, "the provider is overloaded; the harness tries again"),
    ({"type": "cut", "event": 2, "after_bytes": 20}, "the harness tries again"),
]


@pytest.mark.parametrize(("fault", "said"), TRIED_AGAIN)
def test_what_may_get_better_is_tried_again_and_ctrl_c_ends_the_waiting(
    fault: dict[str, object], said: str, cli: Cli
) -> None:
    with cli.provider({"blocks": [{"type": "text", "text": "x"}], "faults": [fault]}):
        process = cli.start("run", "go", "-s", "s", "--message-id", "m")
        seen = held(process, "waiting ")
        process.send_signal(signal.SIGINT)
        _, more = process.communicate()
    assert said in seen
    [waits] = [line for line in seen.splitlines() if line.startswith("waiting ")]
    assert " s before attempt 2 of " in waits
    assert waits not in more
    assert process.returncode == 130
    with cli.provider(says("better")):
        done = cli("recover", "s")
    assert (done.returncode, done.stdout) == (0, b"better\n")


def test_a_session_whose_damage_a_snapshot_covers_is_driven_and_who_recovers_is_told(cli: Cli) -> None:
    with cli.provider(says("first"), says("second")):
        assert cli("run", "go", "-s", "s").returncode == 0
        with closing(sqlite3.connect(cli.folder / "world.db")) as store, store:
            store.execute("UPDATE event SET body = x'78' WHERE seq = 3")
        done = cli("run", "more", "-s", "s")
    assert (done.returncode, done.stdout) == (0, b"second\n")
    assert "turn completed: second" in sentence(done)
    assert "its history before is incomplete" in sentence(cli("recover", "s", "--dry-run"))


def leftovers(cli: Cli) -> str:
    """Processes that know this test's run directory."""
    return subprocess.run(["pgrep", "-af", str(cli.run_dir)], capture_output=True, text=True).stdout


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_to_be_interrupted_leaves_nothing_behind_and_costs_no_attempt(how: signal.Signals, cli: Cli) -> None:
    with cli.provider(calls(bash("sleep 60")), says("went on")):
        process = cli.start("run", "go", "-s", "s", "--message-id", "m")
        held(process, "Bash released")
        process.send_signal(how)
        _, said = process.communicate()
        assert process.returncode == 130
        assert "`harness-durable recover` continues" in said
        assert not leftovers(cli)
        assert [path.name for path in cli.run_dir.glob("[!.]*")] == ["sessions"]  # which is a cache
        ended = {line["kind"]: line for line in cli.json("trace", "s")}
        assert ended["turn.interrupted"]["planned"] is True
        [plan] = cli.json("recover", "s", "--dry-run")
        assert [call["action"] for call in plan["calls"]] == ["unknown"]
        done = cli("recover", "--json")
    assert done.returncode == 0
    assert outcome(done)["text"] == "went on"
    assert outcome(done)["lives"] == 2


def test_a_second_run_learns_who_holds_the_session_and_nothing_is_sent(either: Cli) -> None:
    """C071: who holds it is said, and no second harness starts."""
    with either.provider(calls(bash("sleep 60")), says("done")):
        process = either.start("run", "go", "-s", "s", "--message-id", "m")
        held(process, "Bash released")
        for words in (["run", "more", "-s", "s"], ["recover", "s"]):
            done = either(*words)
            assert done.returncode == 4
            assert f"pid {process.pid} on" in sentence(done)
            assert "--take-over" in sentence(done)
        assert [row["owner_alive"] for row in either.json("sessions")] == [True]
        assert either.json("stop", "s") == [{"session": "s", "stopping": True}]
        process.communicate()
        assert process.returncode == 1
    kinds = [line["kind"] for line in either.json("trace", "s")]
    assert kinds.count("message.accepted") == 1
    assert "turn.cancelled" in kinds


def test_run_finishes_what_was_sent_meanwhile_instead_of_cutting_it_off(cli: Cli) -> None:
    with cli.provider(calls(bash("sleep 2")), says("first"), calls(bash("sleep 1")), says("second")):
        process = cli.start("run", "go", "-s", "s", "--message-id", "m-1")
        held(process, "Bash released")
        assert cli("send", "s", "and then", "--message-id", "m-2").returncode == 0
        out, told = process.communicate()
    assert (process.returncode, out) == (0, "first\n")
    assert "session s goes on with m-2, which was sent meanwhile; Ctrl-C hands it back" in told
    assert "turn completed: second" in told
    assert [row["state"] for row in cli.json("sessions")] == ["idle"]
    assert "tool.unknown" not in [line["kind"] for line in cli.json("trace", "s")]
    again = cli("run", "something else", "-s", "s", "--message-id", "m-1")
    assert again.stdout == b"first\n"
    assert "the first message counts" in sentence(again)


def test_take_over_moves_the_session_and_the_first_worker_gives_in(cli: Cli) -> None:
    with cli.provider(calls(bash("sleep 3; echo slept")), says("done")):
        process = cli.start("run", "go", "-s", "s", "--message-id", "m")
        held(process, "Bash released")
        done = cli("recover", "s", "--take-over", "--json")
        process.communicate()
    assert done.returncode == 0
    assert outcome(done)["unknown"] == []
    kinds = [line["kind"] for line in cli.json("trace", "s")]
    assert kinds.count("turn.completed") == 1
    assert kinds.count("tool.completed") == 1


def test_a_workspace_that_has_gone_and_is_not_in_the_log_needs_a_person(cli: Cli) -> None:
    (cli.folder / "ws").mkdir()
    with cli.provider(says("done")):
        assert cli("run", "go", "-s", "s", "--workspace", "ws", "--files", "kept").returncode == 0
        (cli.folder / "ws").rmdir()
        done = cli("run", "more", "-s", "s", "--message-id", "m-2")
        assert done.returncode == 3
        assert "ws cannot be used (No such file or directory); put it back" in sentence(done)
        assert "`harness-durable recover s` goes on" in sentence(done)
        (cli.folder / "ws").mkdir()
        assert cli("recover", "s").returncode == 0


def test_a_worker_drives_what_was_sent_and_hands_back_when_told_to_stop(either: Cli) -> None:
    with either.provider(says("first"), calls(bash("sleep 60")), says("last")):
        assert either("run", "go", "-s", "s").returncode == 0
        either.json("send", "s", "more", "--message-id", "m-2")
        worker = either.start("worker")
        follow = either.start("trace", "s", "--follow")
        for line in cast(IO[str], follow.stdout):
            if "Bash released" in line:
                break
        follow.terminate()
        follow.communicate()
        worker.terminate()
        assert "for 1 session (s) to settle" in held(worker, "stopping")
        worker.terminate()
        _, said = worker.communicate()
        assert worker.returncode == 0, said
        assert not leftovers(either)
        [row] = either.json("sessions")
        assert (row["state"], row["owner_alive"]) == ("running", False)


@pytest.mark.parametrize(("said", "word"), [("--allow", "tool.completed"), ("--deny", "tool.not_started")])
def test_a_person_is_asked_and_answers_from_another_terminal(said: str, word: str, cli: Cli) -> None:
    """C067: the answer of another process reaches the call."""
    with cli.provider(calls(bash("touch made")), says("done")):
        process = cli.start("run", "go", "-s", "s", "--ask")
        asked = held(process, "permission asked for Bash (touch made)")
        [request] = re.findall(r"answer SESSION (\S+) --allow", asked)
        [answered] = cli.json("answer", "s", request, said, "--reason", "because")
        process.communicate()
    assert answered == {"session": "s", "request": request, "allow": said == "--allow"}
    assert process.returncode == 0
    assert (cli.folder / "made").exists() == (said == "--allow")
    assert word in [line["kind"] for line in cli.json("trace", "s")]
