"""``worlds copy``: what is said of each session; one that cannot be copied keeps no other waiting."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from anyio import to_thread

from harness_durable.journal import moving
from harness_durable.testing.worlds.bench import note, worker
from harness_durable.world import RowUpdate, World
from tests.cli.kit import Cli, sentence

THERE = "file:there"


@pytest.fixture
def cli(tmp_path: Path) -> Cli:
    return Cli(tmp_path, "sqlite:here.db")


def copy(cli: Cli, *words: str, code: int = 0) -> list[list[str]]:
    """The rows; what is said on stderr is for people."""
    done = cli("worlds", "copy", cli.world, THERE, *words)
    assert done.returncode == code, done.stderr
    return [line.split("\t") for line in done.stdout.decode().splitlines()]


def listed(cli: Cli, world: str, app: str = "default") -> list[tuple[str, str, bool]]:
    rows = cli.json("sessions", "--world", world, "--app", app)
    return sorted((row["session"], row["state"], row["due"] is not None) for row in rows)


def test_all_sessions_of_an_app_are_copied_once(cli: Cli) -> None:
    for name in ("a", "b"):
        cli.log(name)
    assert copy(cli, "--dry-run") == [[name, "would be copied", "2", "0", ""] for name in "ab"]
    rows = copy(cli)
    assert [row[:4] for row in rows] == [[name, "copied", "2", "0"] for name in "ab"]
    assert all("recover" in row[4] for row in rows)
    assert [row[1] for row in copy(cli)] == ["already there", "already there"]
    assert listed(cli, THERE) == [("a", "queued", False), ("b", "queued", False)]
    assert listed(cli, cli.world) == [("a", "queued", True), ("b", "queued", True)]


def test_one_that_is_refused_keeps_no_other_waiting(cli: Cli) -> None:
    for name in ("a", "b", "c"):
        cli.log(name)
    other = Cli(cli.folder, THERE)
    other.log("b", message="another one")
    done = cli("worlds", "copy", cli.world, THERE, "--json")
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    assert [(line["session"], line["result"]) for line in lines] == [
        ("a", "copied"),
        ("b", "refused"),
        ("c", "copied"),
    ]
    assert done.returncode == 1
    assert "session 'b' is there already, with another log, from record 1 on" in lines[1]["note"]
    said = sentence(done)
    assert "3 of 3: c" in said
    assert "2 copied, 1 refused" in said


def test_moved_sessions_go_on_in_the_other_app_and_are_gone_here(cli: Cli) -> None:
    cli.log("s")
    assert copy(cli, "s", "--move", "--to-app", "b") == [["s", "moved", "3", "0", ""]]
    assert listed(cli, THERE, "b") == [("s", "queued", True)]
    assert listed(cli, THERE) == listed(cli, cli.world) == []
    assert copy(cli, "--move", "--to-app", "b") == []


def test_a_session_that_is_driven_is_not_moved_and_its_holder_is_named(cli: Cli) -> None:
    cli.log("free")
    cli.log("held")

    async def hold(store: World) -> tuple[str, list[list[str]]]:
        owner = await worker(store)
        await store.claim_session(owner, "held")
        return f"pid {owner.pid}", await to_thread.run_sync(lambda: copy(cli, "--move", code=1))

    who, rows = cli.within(hold)
    assert [row[:2] for row in rows] == [["free", "moved"], ["held", "held"]]
    assert who in rows[1][4]
    assert listed(cli, cli.world) == [("held", "queued", True)]


def test_a_session_whose_move_was_cut_off_says_so_until_it_is_finished(cli: Cli) -> None:
    cli.log("s")
    to = f"app 'default' of file:{(cli.folder / 'there').resolve()}"

    async def leave(store: World) -> None:
        claim = await store.claim_session(await worker(store), "s")
        await moving.leave(store, claim, to)

    cli.within(leave)
    assert listed(cli, cli.world) == [("s", "closed", False)]
    refused = cli("send", "s", "more")
    assert refused.returncode == 2
    assert f"was moved to {to}" in sentence(refused)
    assert f"moved to {to}" in cli("trace", "s").stdout.decode()
    assert "it was moved to" in cli("recover", "s", "--dry-run").stdout.decode()
    assert "--redirect" in sentence(cli("worlds", "copy", cli.world, "file:elsewhere", "--move"))
    assert copy(cli, "--move") == [["s", "moved", "3", "0", ""]]
    assert listed(cli, THERE) == [("s", "queued", True)]


def test_a_session_that_is_damaged_is_named_and_skipped(cli: Cli) -> None:
    cli.log("good")
    cli.within(lambda store: store.create("s", [note(b"no event")], RowUpdate("idle", None)))
    assert [row[:2] for row in copy(cli, "--move", code=1)] == [["good", "moved"], ["s", "unreadable"]]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("sqlite:here.db", "sqlite:./here.db"), "the same store"),
        (("sqlite:here.db", "file:x", "--redirect"), "--redirect is for --move"),
        (("nowhere:x", "sqlite:here.db"), "no World named 'nowhere'"),
        (("sqlite:typo.db", "sqlite:there.db"), "there is no World at sqlite:typo.db"),
        (("sqlite:here.db",), "Missing argument 'TO'"),
    ],
)
def test_what_cannot_be_meant_is_refused(cli: Cli, words: tuple[str, ...], said: str) -> None:
    cli.log("s")
    done = cli("worlds", "copy", *words)
    assert done.returncode == 2
    assert said.lower() in sentence(done).lower()


def test_a_session_that_nobody_has_is_refused_by_name(cli: Cli) -> None:
    cli.log("s")
    assert [row[:2] for row in copy(cli, "nobody", code=1)] == [["nobody", "refused"]]
    assert listed(cli, THERE) == []
