"""A short random campaign; ``make crash KILLS=200`` is the long one."""

from __future__ import annotations

import pytest

from tests.crash.campaign import campaign
from tests.crash.scene import WORLDS

KILLS = {"sqlite": 10, "file": 10, "postgres": 6}


@pytest.mark.parametrize("world", WORLDS)
def test_random_kills_break_no_invariant(world: str, capsys: pytest.CaptureFixture[str]) -> None:
    summary = campaign(KILLS[world], world, "claude-code", seed=20261130)
    assert summary["violations"] == [], capsys.readouterr().out
    assert summary["kills"] == KILLS[world]
