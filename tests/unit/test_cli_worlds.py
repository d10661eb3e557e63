from __future__ import annotations

import json
from collections.abc import AsyncGenerator
from pathlib import Path

import pytest
from click.testing import CliRunner

from harness_durable.cli.worlds import worlds
from harness_durable.errors import UnknownName
from harness_durable.testing import worlds as suite
from harness_durable.testing.checks import CheckResult

URL = "sqlite:agents.db"


@pytest.fixture
def runner(tmp_path: object, monkeypatch: pytest.MonkeyPatch) -> CliRunner:
    monkeypatch.chdir(str(tmp_path))
    return CliRunner()


def suite_gives(monkeypatch: pytest.MonkeyPatch, *results: CheckResult) -> list[float]:
    slacks: list[float] = []

    async def check_world(url: str, *, slack: float) -> AsyncGenerator[CheckResult]:
        slacks.append(slack)
        for result in results:
            yield result

    monkeypatch.setattr(suite, "check_world", check_world)
    return slacks


KEPT = CheckResult("W1", "An append is whole", True, "49 records")
PARTLY = CheckResult("W10", "Reopening finds it", True, "damage was not tried", tried=False)
BROKEN = CheckResult("W2", "A fenced owner writes nothing", False, "it wrote")


def test_list_shows_the_known_schemes(runner: CliRunner) -> None:
    lines = runner.invoke(worlds, ["list"]).output.splitlines()
    assert lines[:2] == ["file:", "sqlite:"]
    objects = runner.invoke(worlds, ["list", "--json"]).output.splitlines()
    assert [json.loads(line)["scheme"] + ":" for line in objects] == lines


def test_check_prints_a_row_for_each_promise(runner: CliRunner, monkeypatch: pytest.MonkeyPatch) -> None:
    suite_gives(monkeypatch, KEPT, BROKEN)
    done = runner.invoke(worlds, ["check", URL])
    rows = [line.split("\t") for line in done.stdout.splitlines()]
    assert rows == [
        ["kept", "W1", "An append is whole", "49 records"],
        ["broken", "W2", "A fenced owner writes nothing", "it wrote"],
    ]
    assert "promises broken: 1" in done.stderr
    assert done.exit_code == 1


def test_what_was_only_partly_tried_is_not_sold_as_kept(
    runner: CliRunner, monkeypatch: pytest.MonkeyPatch
) -> None:
    suite_gives(monkeypatch, KEPT, PARTLY)
    done = runner.invoke(worlds, ["check", URL])
    assert [line.split("\t")[0] for line in done.stdout.splitlines()] == ["kept", "kept, partly tried"]
    assert "all promises are kept; kept, but only partly tried: 1" in done.stderr
    lines = runner.invoke(worlds, ["check", URL, "--json"]).stdout.splitlines()
    assert [json.loads(line)["tried"] for line in lines] == [True, False]
    assert done.exit_code == 0


def test_check_as_json_is_one_object_a_line(runner: CliRunner, monkeypatch: pytest.MonkeyPatch) -> None:
    slacks = suite_gives(monkeypatch, KEPT)
    done = runner.invoke(worlds, ["check", URL, "--json", "--slack", "3"])
    assert json.loads(done.stdout) == {
        "v": 1,
        "id": "W1",
        "promise": "An append is whole",
        "ok": True,
        "detail": "49 records",
        "tried": True,
    }
    assert (done.exit_code, slacks) == (0, [3.0])


def test_check_leaves_no_app_in_the_store(
    runner: CliRunner, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    suite_gives(monkeypatch, KEPT)
    assert runner.invoke(worlds, ["check", "file:store"]).exit_code == 0
    assert [path.name for path in (tmp_path / "store").iterdir()] == ["VERSION"]


def test_a_world_that_nobody_knows_is_refused_before_anything_runs(runner: CliRunner) -> None:
    done = runner.invoke(worlds, ["check", "nowhere:x"])
    assert isinstance(done.exception, UnknownName)
    assert done.stdout == ""
