"""The suite itself: a World that is plainly right passes, and one that breaks a promise is found out."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from harness_durable.testing.worlds import PROMISES, check_promise, check_world
from tests.worlds import subjects

BY_ID = {promise.id: promise for promise in PROMISES}

MUTANTS = {
    "half-batch": "W10",
    "no-cas": "W5",
    "no-fence": "W2",
    "release-any": "W2",
    "two-owners": "W3",
    "same-epoch": "W3",
    "create-always": "W4",
    "short-conflict": "W5",
    "immortal": "W6",
    "no-renewal": "W6",
    "never-displaced": "W6",
    "renews-anybody": "W6",
    "no-back-off": "W7",
    "now-is-no-time": "W7",
    "wakes-parked": "W7",
    "no-outbox": "W7",
    "rows-need-records": "W7",
    "text-only": "W8",
    "slow-wait": "W9",
    "no-healing": "W11",
    "raw-errors": "W12",
    "one-app": "W13",
    "lost-blobs": "W14",
    "lost-ahead": "W14",
}
"""What ``reference`` can do wrong, and the promise that this breaks."""


@pytest.fixture(autouse=True)
def _importable(monkeypatch: pytest.MonkeyPatch) -> None:
    """The suite's second processes import the reference World from here."""
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parents[2]))


def test_there_is_a_check_for_each_of_the_fourteen_promises() -> None:
    assert [promise.id for promise in PROMISES] == [f"W{n}" for n in range(1, 15)]
    assert all(promise.checks and promise.text for promise in PROMISES)


async def test_a_world_that_is_right_keeps_all_promises(tmp_path: Path) -> None:
    right = subjects.plain(tmp_path)
    results = [r async for r in check_world(right.url, opener=right.opener, slack=right.slack)]
    assert [result.id for result in results if result.ok] == list(BY_ID)
    assert [result.id for result in results if not result.tried] == ["W10", "W12"]  # it offers no faults(url)


@pytest.mark.parametrize(("mutant", "promise"), MUTANTS.items())
async def test_a_world_that_breaks_a_promise_is_found_out(mutant: str, promise: str, tmp_path: Path) -> None:
    """C062, C071: among them that only what is free is taken (W6, W7), and by one (W3)."""
    wrong = msgspec.structs.replace(subjects.plain(tmp_path, mutant), slack=1.0)
    result = await check_promise(BY_ID[promise], wrong)
    assert not result.ok, result.detail


async def test_a_world_that_cannot_be_opened_fails_with_its_reason(tmp_path: Path) -> None:
    blocked = tmp_path / "file"
    blocked.write_bytes(b"")
    result = await check_promise(BY_ID["W1"], subjects.plain(blocked))
    assert not result.ok
    assert "NotADirectory" in result.detail or "FileExists" in result.detail
