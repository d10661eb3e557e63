"""Places at which a test may kill a process: named, counted, and free of charge when nobody asked."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Generator
from typing import get_args

import pytest

from harness_durable import crashpoints
from harness_durable.crashpoints import DEATHS, POINTS, Death, Point, arm, on_death, reach


@pytest.fixture
def deaths(monkeypatch: pytest.MonkeyPatch) -> Generator[list[str]]:
    """What would have happened, in order, in place of dying."""
    happened: list[str] = []

    def kill(pid: int, number: int) -> None:
        assert pid == os.getpid()
        happened.append(f"signal {number}")

    monkeypatch.setattr("harness_durable.crashpoints.os.kill", kill)
    monkeypatch.setattr(crashpoints, "_deaths", [])
    monkeypatch.delenv("HARNESS_DURABLE_CRASH_DEATH", raising=False)
    yield happened
    arm(None)


def test_every_name_is_of_the_form_thing_dot_what_happens() -> None:
    assert get_args(Point) == POINTS and get_args(Death) == DEATHS
    assert len(set(POINTS)) == len(POINTS)
    assert all(len(point.split(".")) == 2 for point in POINTS)


@pytest.mark.parametrize("point", POINTS)
def test_nothing_happens_where_nobody_asked_for_it(deaths: list[str], point: Point) -> None:
    arm(None)
    reach(point)
    arm("turn.started" if point != "turn.started" else "turn.completed")
    reach(point)
    assert deaths == []


@pytest.mark.parametrize("point", POINTS)
def test_the_process_kills_itself_where_it_was_asked_to(deaths: list[str], point: Point) -> None:
    arm(point)
    reach(point)
    assert deaths == ["signal 9"]


def test_a_count_says_which_time_it_is(deaths: list[str]) -> None:
    arm("tool.released:3")
    for expected in (0, 0, 1, 1):
        reach("tool.released")
        reach("tool.completed")
        assert len(deaths) == expected


@pytest.mark.parametrize("spec", ["nonsense", "nonsense:2", "tool", ":1", "tool.released:two"])
def test_a_name_or_count_that_is_none_is_refused(deaths: list[str], spec: str) -> None:
    arm(None)
    with pytest.raises(ValueError, match=r"tool\.released|two"):
        arm(spec)
    reach("tool.released")
    assert deaths == []


@pytest.mark.parametrize("spec", [None, ""])
def test_disarmed_is_disarmed(deaths: list[str], spec: str | None) -> None:
    arm("tool.released")
    arm(spec)
    reach("tool.released")
    assert deaths == []


@pytest.mark.parametrize("death", DEATHS)
def test_lives_die_first_and_are_told_how(
    deaths: list[str], monkeypatch: pytest.MonkeyPatch, death: Death
) -> None:
    on_death(deaths.append)
    monkeypatch.setenv("HARNESS_DURABLE_CRASH_DEATH", death)
    arm("turn.started")
    reach("turn.started")
    assert deaths == [death, "signal 9"]


def test_an_unknown_death_kills_nobody(deaths: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HARNESS_DURABLE_CRASH_DEATH", "flood")
    arm("turn.started")
    with pytest.raises(ValueError, match=r"flood.*worker, harness, machine"):
        reach("turn.started")
    assert deaths == []


def test_a_process_is_armed_by_its_environment() -> None:
    reached = "reach('turn.started')"
    program = (
        f"from harness_durable.crashpoints import reach; {reached}; print('alive', flush=True); {reached}"
    )
    armed = {**os.environ, "HARNESS_DURABLE_CRASH_AT": "turn.started:2"}
    armed.pop("HARNESS_DURABLE_CRASH_DEATH", None)
    done = subprocess.run(
        [sys.executable, "-c", program], env=armed, capture_output=True, text=True, timeout=60
    )
    assert (done.returncode, done.stdout) == (-9, "alive\n")
