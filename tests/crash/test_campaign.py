"""A short random campaign; ``make crash KILLS=200`` is the long one."""

from __future__ import annotations

import pytest

from tests.crash.campaign import campaign


@pytest.mark.parametrize("world", ["sqlite", "file"])
def test_random_kills_break_no_invariant(world: str, capsys: pytest.CaptureFixture[str]) -> None:
    summary = campaign(10, world, "claude-code", seed=20261130)
    assert summary["violations"] == [], capsys.readouterr().out
    assert summary["kills"] == 10
