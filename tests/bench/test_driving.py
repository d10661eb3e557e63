"""Subjects are driven by processes of their own; one that cannot be had is told, not faked."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench.append import run
from bench.driving import Driver, Failed, driver, on_disk
from bench.environments import OURS, Kind, Missing, environment
from bench.measure import Options

STORES = {
    "file": ("ours.py", ["append", "step", "strict"]),
    "sqlite": ("ours.py", ["append", "step", "strict"]),
    "sqlite plain": ("plain.py", ["append", "step"]),
    "file plain": ("plain.py", ["append"]),
}


@pytest.mark.parametrize("name", STORES)
def test_a_driver_does_steps_and_leaves_them_in_its_store(name: str, tmp_path: Path) -> None:
    script, can = STORES[name]
    store = f"{name.partition(' ')[0]}:{tmp_path / 'store'}"
    with driver(script, OURS, store, 1024, tmp_path) as started:
        assert started.ready == can
        answers = [started.ask(what, 2, 0.05) for what in can]
    steps = sum(answer.steps for answer in answers)
    assert all(answer.steps > 0 and answer.bare > 0 and answer.rate > 0 for answer in answers)
    assert on_disk(tmp_path).size > steps * 1024


def test_a_driver_that_dies_is_told_with_its_last_words(tmp_path: Path) -> None:
    with pytest.raises(Failed, match="nowhere"):
        Driver("ours.py", OURS, "nowhere:1", 1024, tmp_path)


def test_a_peer_that_cannot_be_installed_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HARNESS_DURABLE_BENCH_CACHE", str(tmp_path))
    monkeypatch.setattr("sys.executable", str(tmp_path / "python"))
    with pytest.raises(Missing, match="nobody could not be installed"):
        environment(Kind("nobody", ("anything",)))


def test_the_scenario_measures_who_was_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bench.append.SECONDS", 0.05)
    monkeypatch.setattr("bench.append.SESSIONS", (1, 4))
    said: list[str] = []
    result = run(Options(quick=True, only=("plain SQLite",), say=said.append))
    steps = next(table for table in result.tables if table.name == "steps 1 KB")
    assert steps.subjects == ["plain SQLite"]
    assert steps.cases == ["1 session", "4 sessions"]
    assert not result.missing
