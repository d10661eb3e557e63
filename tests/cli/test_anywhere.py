"""One process drives; others, elsewhere on the same World, send, follow, steer, stop, look and answer."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Generator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from harness_durable import clock
from harness_durable.cli import send
from tests.cli.kit import KEY, Cli, bash, calls, held, says, sentence
from tests.runtime.kit import Store, accepted
from tests.unit.session_kit import SESSION


def other_host(cli: Cli, tmp_path: Path, **env: str) -> Cli:
    """Another folder with another run directory and no harness, on the same World."""
    folder = tmp_path / "elsewhere"
    folder.mkdir(exist_ok=True)
    there = Cli(folder, cli.absolute)
    there.env |= {"HARNESS_DURABLE_HARNESS_DIR": str(folder / "none"), "PATH": "/usr/bin:/bin", **env}
    return there


@contextmanager
def worker(cli: Cli, *words: str) -> Generator[subprocess.Popen[str]]:
    """A worker that is up; ended at the end, if it is still there."""
    process = cli.start("worker", *words)
    try:
        held(process, "serves app")
        yield process
    finally:
        if process.poll() is None:
            process.send_signal(signal.SIGTERM)
            process.send_signal(signal.SIGTERM)
        process.communicate(timeout=60)


def until(condition: Callable[[], bool]) -> None:
    """Wait for it, with a deadline."""

    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.05)


def test_a_host_without_a_harness_sends_and_follows_what_a_worker_does(shared: Cli, tmp_path: Path) -> None:
    there = other_host(shared, tmp_path)
    with shared.provider(calls(bash("echo one")), says("first"), says("second")), worker(shared):
        begun = there("run", "go", "-s", "s", "--message-id", "m-1", "--detach")
        assert (begun.returncode, begun.stdout) == (0, b"session=s message=m-1\n"), begun.stderr
        followed = there("send", "s", "more", "--message-id", "m-2", "--follow")
        assert (followed.returncode, followed.stdout) == (0, b"second\n"), followed.stderr
        assert b"turn completed" in followed.stderr
        again = there("send", "s", "more", "--message-id", "m-2", "--follow", "--json")
        assert json.loads(again.stdout)["text"] == "second"
        assert "known already" in sentence(again)
    [created] = [line for line in there.json("trace", "s") if line["kind"] == "session.created"]
    assert "lives" not in created
    assert not any((there.folder / "none").glob("*")), "nothing was started there"


def test_people_elsewhere_steer_answer_and_stop(cli: Cli, tmp_path: Path) -> None:
    there = other_host(cli, tmp_path)
    with cli.provider(calls(bash("touch made")), calls(bash("sleep 60")), says("never")), worker(cli):
        there.json("run", "go", "-s", "s", "--message-id", "m-1", "--ask", "--detach")
        asked: list[str] = []

        def open_request() -> bool:
            asked[:] = [
                line["event"]["request"] if "event" in line else line["request"]
                for line in there.json("trace", "s")
                if line["kind"] == "permission.requested"
            ]
            return bool(asked)

        until(open_request)
        [answered] = there.json("answer", "s", asked[0], "--allow")
        assert answered["allow"]
        there.json("steer", "s", "and be quick")
        until(
            lambda: (
                len([1 for line in there.json("trace", "s") if line["kind"] == "permission.requested"]) > 1
            )
        )
        [stopping] = there.json("stop", "s")
        assert stopping["stopping"]
        until(lambda: "turn.cancelled" in [line["kind"] for line in there.json("trace", "s")])


def test_who_sends_without_a_worker_is_told_that_nobody_takes_it(either: Cli) -> None:
    either.log("s")
    done = either("send", "s", "hello", "--message-id", "m-2")
    assert done.returncode == 0
    assert "nobody drives s now; a `harness-durable worker` or `recover s` takes it up" in sentence(done)


async def test_a_message_is_accepted_also_if_nobody_can_see_who_takes_it(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """To fail would be untrue, and have it sent twice."""
    world = Store()
    await accepted(world, "m-1")
    world.down = True
    monkeypatch.setattr(send, "TAKEN_SECONDS", 0.0)
    await send._say_who_takes_it(world, SESSION, True)  # pyright: ignore[reportPrivateUsage]
    assert "nobody drives s now" in capsys.readouterr().err


def test_a_message_for_later_waits_shows_when_and_can_be_taken_back(either: Cli) -> None:
    either.log("s")
    now = clock.now_ms()
    [sent] = either.json("send", "s", "check the build", "--in", "2h", "--message-id", "later")
    assert now + 7_200_000 <= sent["wakes"] <= now + 7_320_000
    [also] = either.json("send", "s", "merry", "--at", "2100-12-24T18:00Z", "--message-id", "xmas")
    assert also["wakes"] == datetime(2100, 12, 24, 18, tzinfo=UTC).timestamp() * 1000
    [before] = either.json("sessions")
    assert before["due"] <= clock.now_ms(), "its first message waits for a worker"
    assert b"(not before 2100-12-2" in either("trace", "s").stdout
    for message in ("xmas", "m-1", "later"):
        assert either.json("stop", "s", "--message", message) == [
            {"session": "s", "message": message, "withdrawn": True}
        ]
    [row] = either.json("sessions")
    assert (row["state"], row["due"]) == ("idle", None)
    refused = either("stop", "s", "--message", "nobody")
    assert (refused.returncode, "no message 'nobody'" in sentence(refused)) == (2, True)


def test_a_message_for_later_is_shown_and_recover_does_not_wait_for_it(either: Cli) -> None:
    either.log("s")
    either.json("stop", "s", "--message", "m-1")
    remark = sentence(either("send", "s", "check", "--in", "1h"))
    assert "not before 20" in remark
    assert "nobody drives" not in remark
    [line] = either("sessions").stdout.decode().splitlines()
    assert re.search(r"\tqueued, wakes 20\d\d-", line)
    done = either("recover", "s")
    assert (done.returncode, "nothing to recover, it is queued until 20" in sentence(done)) == (0, True)


@pytest.mark.parametrize("words", [["--in", "soon"], ["--at", "never"], ["--in", "1h", "--at", "18:00"]])
def test_a_time_that_is_none_is_refused_and_nothing_is_sent(words: list[str], cli: Cli) -> None:
    cli.log("s")
    done = cli("send", "s", "hello", *words)
    assert done.returncode == 2
    sentence(done)
    assert len(cli.json("trace", "s")) == 2


def test_two_apps_with_sessions_of_one_name_never_see_each_other(shared: Cli) -> None:
    """C-class W7, W13: listing, claiming, recovering, answering; one run directory for both."""
    with shared.provider(says("for a")):
        for app in ("a", "b"):
            shared.json("run", f"go {app}", "-s", "same", "--message-id", "m-1", "--detach", "--app", app)
        with worker(shared, "--app", "a"):
            until(lambda: shared.json("sessions", "--app", "a")[0]["state"] == "idle")
        [row] = shared.json("sessions", "--app", "b")
    assert (row["state"], row["epoch"], row["events"]) == ("queued", 0, 2)
    assert [line["kind"] for line in shared.json("trace", "same", "--app", "b")] == [
        "session.created",
        "message.accepted",
    ]
    assert shared("sessions", "--json", env={"HARNESS_DURABLE_APP": "b"}).stdout.count(b'"queued"') == 1
    assert shared("sessions", "--json", env={"HARNESS_DURABLE_APP": "c"}).stdout == b""
    for words in (
        ["trace", "same"],
        ["send", "same", "hi"],
        ["stop", "same"],
        ["answer", "same", "p", "--allow"],
    ):
        assert shared(*words, "--app", "c").returncode == 2, words
    [again] = shared.json("send", "same", "new", "--message-id", "m-2", "--app", "b")
    assert again["accepted"], "ids of messages are an app's own"
    assert b"nothing to recover" in shared("recover", "--app", "c").stderr


def test_a_worker_told_to_stop_lets_a_call_finish_and_another_goes_on_behind_it(cli: Cli) -> None:
    with cli.provider(calls(bash("sleep 5")), says("done"), says("more")):
        cli.json("run", "go", "-s", "same", "--message-id", "m-1", "--detach")
        cli.json("send", "same", "and then", "--message-id", "m-2")
        process = cli.start("worker", "--drain", "60")
        until(lambda: "tool.released" in _kinds(cli))
        process.terminate()
        _, said = process.communicate(timeout=60)
        assert process.returncode == 0, said
        assert "up to 60 s for 1 session (same) to settle" in said
        kinds = _kinds(cli)
        assert (kinds.count("tool.completed"), kinds.count("turn.completed")) == (1, 0)
        [row] = cli.json("sessions")
        assert (row["owner"], row["due"] is not None) == (None, True)
        with worker(cli):
            until(lambda: _kinds(cli).count("turn.completed") == 2)
    kinds = _kinds(cli)
    assert (kinds.count("tool.released"), kinds.count("tool.unknown"), kinds.count("turn.started")) == (
        1,
        0,
        2,
    )


def test_a_store_that_is_gone_for_good_ends_the_worker_for_its_supervisor(tmp_path: Path) -> None:
    cli = Cli(tmp_path, "file:world")
    patience = {"HARNESS_DURABLE_STORE_PATIENCE_SECONDS": "1", "HARNESS_DURABLE_UPSTREAM_KEY": KEY}
    cli.env |= {**patience, "HARNESS_DURABLE_LEASE_SECONDS": "1"}
    cli.log("s")
    cli.json("stop", "s", "--message", "m-1")
    process = cli.start("worker")
    held(process, "serves app")
    (tmp_path / "world").rename(tmp_path / "gone")
    (tmp_path / "world").write_text("no folder")
    _, said = process.communicate(timeout=120)
    assert process.returncode == 1, said
    assert "error: the store has been away for" in said
    assert "starts it anew. Nothing is lost" in said
    assert "Traceback" not in said


@pytest.mark.parametrize("shared", ["sqlite:world.db", "postgresql:"], indirect=True)
def test_a_worker_of_one_app_leaves_the_lives_of_another_alone(shared: Cli) -> None:
    """One run directory for both; the life of app b has no worker, and app a's worker looks for orphans."""
    with shared.provider(calls(bash("echo begun; sleep 5")), says("for a"), says("for b")):
        shared.json("run", "go", "-s", "same", "--detach", "--app", "b")
        with worker(shared, "--app", "b") as dying:
            until(lambda: "tool.released" in _kinds(shared, "b"))
            dying.kill()
            dying.wait()
        shared.json("run", "go", "-s", "same", "--detach", "--app", "a")
        with worker(shared, "--app", "a"):
            until(lambda: shared.json("sessions", "--app", "a")[0]["state"] == "idle")
        with worker(shared, "--app", "b"):
            until(lambda: "turn.completed" in _kinds(shared, "b"))
    assert _kinds(shared, "b").count("life.started") == _kinds(shared, "b").count("life.attached") == 1
    assert "life.attached" not in _kinds(shared, "a")


def _kinds(cli: Cli, app: str = "default") -> list[str]:
    return [line["kind"] for line in cli.json("trace", "same", "--app", app)]


def test_health_of_a_real_worker_and_an_orderly_end(cli: Cli) -> None:
    cli.env |= {"HARNESS_DURABLE_UPSTREAM_KEY": KEY}
    process = cli.start("worker", "--health", "127.0.0.1:0")
    try:
        told = held(process, "serves app")
        told += "" if "health at" in told else held(process, "health at")
        found = re.search(r"health at (http://\S+)", told)
        assert found is not None
        with urllib.request.urlopen(found[1], timeout=20) as answer:
            report: dict[str, Any] = json.load(answer)
        assert (answer.status, report["state"], report["driven"]) == (200, "ok", [])
        with pytest.raises(urllib.error.HTTPError):
            urllib.request.urlopen(found[1] + "/x", timeout=20)
    finally:
        process.terminate()
        _, said = process.communicate(timeout=60)
    assert (process.returncode, "has stopped" in said) == (0, True), said
