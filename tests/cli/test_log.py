"""Commands that look at a log or write into it, without a harness: on each World."""

from __future__ import annotations

import fcntl
import json
import os
import sqlite3
import subprocess
import uuid
from contextlib import closing
from pathlib import Path

import pytest
from anyio import to_thread

from harness_durable import events as ev
from harness_durable.errors import DamagedLog
from harness_durable.journal import Reader
from harness_durable.journal.writer import Writer
from harness_durable.payload import pack_text
from harness_durable.world import Owner, Record, World
from tests.cli.kit import SCRIPT, Cli, sentence


def test_send_is_accepted_once(either: Cli) -> None:
    either.log("s")
    first = either.json("send", "s", "more", "--message-id", "m-2")
    again = either.json("send", "s", "other words", "--message-id", "m-2")
    assert first == [{"session": "s", "message": "m-2", "accepted": True}]
    assert again == [{"session": "s", "message": "m-2", "accepted": False}]


def test_send_says_that_nobody_is_there_to_take_it(either: Cli) -> None:
    either.log("s")
    assert "recover s" in sentence(either("send", "s", "more"))


def test_text_comes_from_standard_input(either: Cli) -> None:
    either.log("s")
    assert either("send", "s", "-", stdin="größer".encode()).returncode == 0
    assert "größer" in either("trace", "s").stdout.decode()


def test_steer_without_a_running_turn_is_a_message(either: Cli) -> None:
    either.log("s")
    [steered] = either.json("steer", "s", "left")
    assert steered["accepted"] is True
    assert f"message {steered['message']}: left" in either("trace", "s").stdout.decode()


def test_stop_of_an_idle_session_is_no_error(either: Cli) -> None:
    either.log("s")
    assert either.json("stop", "s") == [{"session": "s", "stopping": False}]


def test_answer_needs_a_request_that_exists(either: Cli) -> None:
    either.log("s")
    done = either("answer", "s", "p-1", "--allow")
    assert done.returncode == 2
    assert "see `trace`" in sentence(done)


def test_sessions_that_need_a_person_come_first(either: Cli) -> None:
    gone = (ev.TurnStarted("m-1"), ev.TurnNeedsInput("m-1", "why"))
    either.log("needy", gone, status="needs_input")
    either.log("queued")
    rows = either.json("sessions")
    assert [(row["session"], row["state"]) for row in rows] == [
        ("needy", "needs_input"),
        ("queued", "queued"),
    ]
    assert set(rows[0]) == {
        "session", "state", "events", "created", "updated", "due", "epoch", "owner", "owner_alive",
    }  # fmt: skip
    assert [row["session"] for row in either.json("sessions", "--state", "queued")] == ["queued"]
    assert either("sessions").stdout.decode().splitlines()[0].split("\t")[:3] == ["needy", "needs_input", "4"]


def test_trace_as_json_is_an_event_a_line(either: Cli) -> None:
    either.log("s", (ev.TurnStarted("m-1"), ev.TurnCompleted("m-1", pack_text("done").payload)))
    lines = either.json("trace", "s")
    assert [line["seq"] for line in lines] == [1, 2, 3, 4]
    assert all({"seq", "time", "epoch", "kind"} <= set(line) for line in lines)
    assert [line["kind"] for line in either.json("trace", "s", "--since", "2")] == [
        "turn.started",
        "turn.completed",
    ]


def test_trace_is_markdown_in_a_pipe(either: Cli) -> None:
    either.log("s")
    assert all(line.startswith("- ") for line in either("trace", "s").stdout.decode().splitlines())


def test_follow_shows_what_comes_later(either: Cli) -> None:
    either.log("s")
    process = either.start("trace", "s", "--follow", "--json")
    assert process.stdout is not None
    assert process.stderr is not None
    with process.stdout, process.stderr:
        seen = [json.loads(process.stdout.readline())["kind"] for _ in range(2)]
        either("send", "s", "more")
        seen.append(json.loads(process.stdout.readline())["kind"])
        process.terminate()
        assert process.wait() == 130
    assert seen == ["session.created", "message.accepted", "message.accepted"]


def test_follow_as_json_tells_text_as_it_arrives(either: Cli) -> None:
    either.log("s")

    async def arrives(store: World) -> None:
        await store.put_progress("s", b'{"call":"c-1","text":"half a sen"}')

    process = either.start("trace", "s", "--follow", "--json")
    assert process.stdout is not None
    assert process.stderr is not None
    with process.stdout, process.stderr:
        for _ in range(2):
            assert "seq" in json.loads(process.stdout.readline())
        either.within(arrives)
        told = json.loads(process.stdout.readline())
        process.terminate()
        assert process.wait() == 130
    assert told == {"v": 1, "kind": "progress", "call": "c-1", "text": "half a sen"}


def test_a_closed_pipe_is_no_error(either: Cli) -> None:
    either.log("s", tuple(ev.StopRequested("m-1", "somebody " * 40) for _ in range(400)))
    both = f"set -o pipefail; '{SCRIPT}' trace s --json | head -1"
    done = subprocess.run(["bash", "-c", both], cwd=either.folder, env=either.env, capture_output=True)
    assert done.returncode == 0
    assert done.stderr == b""


def test_recover_has_nothing_to_do_with_an_idle_session(either: Cli) -> None:
    either.log("s", (ev.TurnStarted("m-1"), ev.TurnCompleted("m-1", pack_text("done").payload)))
    done = either("recover", "s")
    assert done.returncode == 0
    assert "nothing to recover" in sentence(done)


def test_recover_dry_run_says_what_would_be_done_and_writes_nothing(either: Cli) -> None:
    either.log("s")
    before = either.json("trace", "s")
    [plan] = either.json("recover", "s", "--dry-run")
    assert plan == {"session": "s", "rung": "start", "reason": "a message is waiting", "calls": []}
    assert either.json("trace", "s") == before


def test_recover_dry_run_names_a_live_holder_first_and_exits_as_recover_would(either: Cli) -> None:
    either.log("s")

    async def held(store: World) -> tuple[subprocess.CompletedProcess[bytes], ...]:
        owner = Owner(str(uuid.uuid4()), "here", os.getpid())
        await store.register(owner)
        await store.claim_session(owner, "s")
        words = ((), ("--json",), ("--take-over",))
        return tuple([await to_thread.run_sync(either, "recover", "s", "--dry-run", *more) for more in words])

    plain, told, taken = either.within(held)
    assert (plain.returncode, told.returncode, taken.returncode) == (4, 4, 0)
    assert f"is held by pid {os.getpid()} on here" in sentence(plain).splitlines()[0]
    assert plain.stdout.startswith(b"s: start")
    assert json.loads(told.stdout)["holder"].startswith(f"pid {os.getpid()} on here")
    assert "held" not in sentence(taken)


def test_a_session_travels_between_worlds_as_one_file(either: Cli) -> None:
    either.log("s", message="x" * 100_000)
    other = "file:other" if either.world.startswith("sqlite") else "sqlite:other.db"
    assert either("export", "s", "-o", "s.hd").returncode == 0
    done = either("import", "s.hd", "--world", other)
    assert done.stdout == b"s\n"
    assert either.json("trace", "s", "--world", other) == either.json("trace", "s")
    refused = either("import", "s.hd", "--world", other)
    assert refused.returncode == 2
    assert "'s' exists" in sentence(refused)


def test_an_export_that_was_cut_short_is_refused(either: Cli) -> None:
    either.log("s")
    whole = either("export", "s").stdout
    for cut in (whole[:-10], whole[: whole.rindex(b"\n", 0, -1) + 1], b"", b"{}\n"):
        done = either("import", "-", "--world", "sqlite:new.db", stdin=cut)
        assert done.returncode == 2
        assert sentence(done).startswith("error: ")
    assert either.json("sessions", "--world", "sqlite:new.db") == []


def damage(cli: Cli) -> None:
    """Overwrite a byte of the third record."""
    if cli.world.startswith("sqlite"):
        with closing(sqlite3.connect(cli.folder / "world.db")) as store, store:
            store.execute("UPDATE event SET body = x'78' WHERE seq = 3")
        return
    for path in (cli.folder / "world").rglob("*.log"):
        content = path.read_bytes()
        path.write_bytes(content.replace(b"somebody", b"sOmebody"))


def test_damage_in_the_middle_is_told_and_hides_no_neighbour(either: Cli) -> None:
    either.log(
        "s", (ev.StopRequested("m-1", "somebody"), ev.StopRequested("m-1", "another"), ev.TurnStarted("m-1"))
    )
    damage(either)
    done = either("trace", "s", "--json")
    assert done.returncode == 1
    assert [json.loads(line)["seq"] for line in done.stdout.splitlines()] == [1, 2, 4, 5]
    assert "Nothing was overwritten" in sentence(done)
    for words in (["trace", "s"], ["export", "s"], ["send", "s", "more"], ["recover", "s", "--dry-run"]):
        told = either(*words)
        assert told.returncode == 1, words
        assert "damaged" in sentence(told)


def test_where_no_snapshot_covers_the_damage_nothing_is_accepted_whoever_asks(either: Cli) -> None:
    either.log("s", (ev.StopRequested("m-1", "somebody"), ev.StopRequested("m-1", "another")))
    damage(either)
    key = {"HARNESS_DURABLE_UPSTREAM_KEY": "sk-test"}
    for words in (["send", "s", "x"], ["steer", "s", "x"], ["run", "x", "-s", "s"], ["recover", "s"]):
        done = either(*words, env=key)
        assert (done.returncode, done.stdout) == (1, b""), words
        [said] = sentence(done).splitlines()
        assert "damaged at byte" in said
        assert "restore it from a backup" in said
    assert [row["events"] for row in either.json("sessions")] == [4]


def test_where_a_snapshot_covers_the_damage_everybody_goes_on_and_who_recovers_is_warned(either: Cli) -> None:
    either.log("s", (ev.StopRequested("m-1", "somebody"), ev.StopRequested("m-1", "another")))
    snapshot(either)
    damage(either)
    for words in (["send", "s", "x"], ["steer", "s", "x"], ["stop", "s"]):
        assert either(*words).returncode == 0, words
    done = either("recover", "s", "--dry-run")
    assert done.returncode == 0
    said = sentence(done).splitlines()[0]
    assert said.startswith("warning: session s goes on from a snapshot; its history before is incomplete: ")
    assert "damaged at byte" in said
    assert "`export --salvage` saves it" in said
    assert sentence(done).count("incomplete") == 1
    assert [row["events"] for row in either.json("sessions")] == [6]


def test_where_the_transcript_itself_is_damaged_who_recovers_is_told(either: Cli) -> None:
    lines = ev.TranscriptAppended("main.jsonl", "l-1", pack_text("somebody").payload, 1)
    either.log("s", (lines, ev.StopRequested("m-1", "another")))
    snapshot(either)
    damage(either)
    done = either("recover", "s", "--dry-run")
    assert done.returncode == 1
    assert "damaged at byte" in sentence(done)
    assert [row["events"] for row in either.json("sessions")] == [4]


def snapshot(cli: Cli) -> None:
    """Store what the log amounts to, as a worker does at the end of a turn."""

    async def take(store: World) -> None:
        await (await Writer.open(store, "s")).take_snapshot()

    cli.within(take)


def test_what_remains_of_a_damaged_log_can_be_saved_and_is_not_imported(either: Cli) -> None:
    either.log("s", (ev.StopRequested("m-1", "somebody"), ev.TurnStarted("m-1")))
    damage(either)
    assert "export --salvage" in sentence(either("export", "s"))
    done = either("export", "s", "--salvage")
    assert done.returncode == 1
    assert "warning: not in the file: " in sentence(done)
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    assert [line["seq"] for line in lines if line["line"] == "record"] == [1, 2, 4]
    assert lines[-1]["line"] == "end"
    refused = either("import", "-", "--world", "sqlite:new.db", stdin=done.stdout)
    assert refused.returncode == 2
    assert "salvaged from a damaged log" in sentence(refused)
    assert either.json("sessions", "--world", "sqlite:new.db") == []


def test_a_salvaged_log_without_damage_is_an_export(either: Cli) -> None:
    either.log("s")
    done = either("export", "s", "--salvage")
    assert (done.returncode, sentence(done)) == (0, "")
    assert done.stdout == either("export", "s").stdout


def test_a_session_can_be_imported_beside_the_one_that_it_was(either: Cli) -> None:
    either.log("s")
    whole = either("export", "s").stdout
    assert "import it with `--as NAME`" in sentence(either("import", "-", stdin=whole))
    assert either("import", "-", "--as", "twin", stdin=whole).stdout == b"twin\n"
    assert {row["session"] for row in either.json("sessions")} == {"s", "twin"}


LOOKING = (
    ["trace", "s"], ["sessions"], ["export", "s"], ["export", "s", "--salvage"], ["recover"],
    ["recover", "s", "--dry-run"], ["stop", "s"], ["send", "s", "x"], ["steer", "s", "x"],
    ["answer", "s", "p", "--allow"],
)  # fmt: skip


@pytest.mark.parametrize("typo", ["sqlite:typo.db", "file:typo", "sqlite:no/such/typo.db"])
def test_who_only_looks_makes_no_world(typo: str, cli: Cli) -> None:
    for words in LOOKING:
        done = cli(*words, "--world", typo)
        [said] = sentence(done).splitlines()
        assert said.startswith(f"error: there is no World at {typo}; check HARNESS_DURABLE_WORLD")
        assert (done.returncode, done.stdout) == (2, b"")
    assert list(cli.folder.iterdir()) == []


def test_who_looks_in_the_wrong_place_is_told_where_that_is(either: Cli) -> None:
    either.log("s")
    for words in (["trace", "s"], ["stop", "s"], ["export", "s"]):
        done = either(*words, "--app", "mine")
        assert done.returncode == 2
        assert f"(looked in World {either.world}, app 'mine')" in sentence(done)


def test_an_imported_session_with_work_to_do_waits_to_be_woken(either: Cli) -> None:
    either.log("idle", (ev.TurnStarted("m-1"), ev.TurnCompleted("m-1", pack_text("done").payload)))
    either("send", "idle", "go on")
    whole = either("export", "idle").stdout
    done = either("import", "-", "--as", "s", stdin=whole)
    assert "session s has work to do, and waits until `harness-durable recover s` wakes it" in sentence(done)
    assert {row["session"]: row["due"] is None for row in either.json("sessions")} == {
        "idle": False,
        "s": True,
    }
    [plan] = either.json("recover", "s", "--dry-run")
    assert plan["rung"] == "start"


def test_an_imported_session_without_work_says_no_more_than_that(either: Cli) -> None:
    either.log("s", (ev.TurnStarted("m-1"), ev.TurnCompleted("m-1", pack_text("done").payload)))
    whole = either("export", "s").stdout
    assert sentence(either("import", "-", "--as", "t", stdin=whole)) == "session t imported\n"


def test_a_reader_does_not_take_damage_for_the_end(either: Cli) -> None:
    either.log("s", (ev.StopRequested("m-1", "somebody"), ev.TurnStarted("m-1")))
    damage(either)

    async def load(store: World) -> None:
        await Reader(store, "s").load()

    with pytest.raises(DamagedLog):
        either.within(load)


def tear(cli: Cli) -> tuple[int, int]:
    """Cut the last append of a file World in two: the offset at which it began, and what is left of it."""
    [path] = (cli.folder / "world").rglob("*.log")
    content = path.read_bytes()
    begin = content.rindex(b"DHR1")
    path.write_bytes(content[:-10])
    return begin, len(content) - 10 - begin


def test_a_write_that_was_cut_off_is_told_until_it_is_repaired(tmp_path: Path) -> None:
    cli = Cli(tmp_path, "file:world")
    cli.log("s", (ev.StopRequested("m-1", "somebody"), ev.StopRequested("m-1", "another")))
    assert "cut off" not in sentence(cli("trace", "s"))
    begin, size = tear(cli)
    said = (
        f"session 's': the last write was cut off at byte {begin} of 0.log ({size} bytes); "
        f"events 1-3 remain; the next write repairs it, and keeps these bytes in 0.log.cut-{begin}"
    )
    for words in (["trace", "s"], ["trace", "s", "--json"]):
        done = cli(*words)
        assert sentence(done).splitlines() == [f"warning: {said}"]
        assert (done.returncode, len(done.stdout.splitlines())) == (0, 3)
    assert sentence(cli("sessions")).splitlines() == [f"warning: {said}"]
    checks = [json.loads(line) for line in cli("doctor", "--quick", "--json").stdout.splitlines()]
    assert {"v": 1, "check": "world", "state": "warn", "detail": said} in checks
    repair = sentence(cli("send", "s", "more")).splitlines()[0]
    assert repair.startswith("warning: /")
    assert (
        f"0.log: cut off {size} bytes at {begin} that belong to no whole append; they are kept in /" in repair
    )
    [kept] = (tmp_path / "world").rglob(f"0.log.cut-{begin}")
    assert kept.stat().st_size == size
    assert "cut off" not in sentence(cli("trace", "s"))


def test_a_write_that_is_under_way_is_not_taken_for_one_that_was_cut_off(tmp_path: Path) -> None:
    cli = Cli(tmp_path, "file:world")
    cli.log("s", (ev.StopRequested("m-1", "somebody"),))
    tear(cli)
    [path] = (cli.folder / "world").rglob("*.log")
    with path.open("rb") as writer:
        fcntl.flock(writer, fcntl.LOCK_EX)
        assert sentence(cli("trace", "s")) == ""
    assert "cut off" in sentence(cli("trace", "s"))


def newer(cli: Cli) -> Path:
    """Make the World one of a later version; the file that says so."""
    if cli.world.startswith("sqlite"):
        with closing(sqlite3.connect(cli.folder / "world.db")) as store, store:
            store.execute("PRAGMA user_version = 99")
        return cli.folder / "world.db"
    path = cli.folder / "world" / "VERSION"
    path.write_text("99\n")
    return path


def test_a_log_of_a_newer_version_is_left_alone(either: Cli) -> None:
    either.log("s")
    path = newer(either)
    before = path.read_bytes()
    for words in (["sessions"], ["trace", "s"], ["send", "s", "x"], ["recover", "s"]):
        done = either(*words)
        assert done.returncode == 1
        assert "upgrade harness-durable (nothing was changed)" in sentence(done)
    assert path.read_bytes() == before


def test_an_event_of_a_newer_version_is_left_alone(either: Cli) -> None:
    either.log("s")

    async def write(store: World) -> None:
        record = Record("r", "later", 1, b'{"v":2,"kind":"later","what":"nobody knows yet"}')
        await store.append("s", expected_head=2, epoch=0, records=[record])

    async def stored(store: World) -> object:
        return await store.read("s"), await store.session("s")

    either.within(write)
    before = either.within(stored)
    key = {"HARNESS_DURABLE_UPSTREAM_KEY": "sk-test"}
    for words in (["trace", "s"], ["trace", "s", "--json"], ["run", "x", "-s", "s"], ["recover", "s"]):
        done = either(*words, env=key)
        assert done.returncode == 1, words
        assert "session 's', record 3 uses log format 2, this version reads formats up to 1" in sentence(done)
        assert "upgrade harness-durable (nothing was changed)" in sentence(done)
    assert either.within(stored) == before
