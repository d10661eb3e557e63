"""C119: calls whose input is nested 10,000 levels deep, with the real binary."""

from __future__ import annotations

import sys
from collections.abc import Generator
from pathlib import Path

import pytest

from harness_durable.testing.provider import Reply, ToolUse, say
from harness_durable.testing.provider.policies.simple import Script
from tests.harness.rigs import ClaudeRig, versions

pytestmark = [pytest.mark.slow, versions(ClaudeRig)]

DEPTH = 10_000


@pytest.fixture(autouse=True)
def _provider_can_spell_it() -> Generator[None]:  # pyright: ignore[reportUnusedFunction] (pytest uses it)
    """For the scripted provider, which is in this process; the worker is in one of its own."""
    usual = sys.getrecursionlimit()
    sys.setrecursionlimit(6 * DEPTH)
    yield
    sys.setrecursionlimit(usual)


async def test_c119_deep_calls_end_in_error_results_and_the_turn_goes_on(
    tmp_path: Path, version: str
) -> None:
    deep: object = 1
    for _ in range(DEPTH):
        deep = [deep]
    custom = ToolUse("mcp__durable__effect", {"token": deep}, id="toolu_custom")
    builtin = ToolUse("Bash", {"command": "touch ran", "description": deep}, id="toolu_builtin")
    async with ClaudeRig.open(
        tmp_path, version, Script((Reply((custom, builtin)), say("done"), say("so")))
    ) as rig:
        await rig.go()
        state = await rig.finished()
        assert state.turns["m-1"].status == "completed", state.turns["m-1"].reason
        assert len(state.lives) == 1
        assert (state.tool_calls["toolu_custom"].outcome, rig.effects.exists()) == ("failed", False)
        assert "nested more than 200 levels deep" in rig.seen("toolu_custom")
        assert state.tool_calls["toolu_builtin"].outcome == "not_started"
        assert not (rig.workspace / "ran").exists()
        state = await rig.next()
        assert state.turns["m-2"].status == "completed", "the next life reads what the first one wrote"
        assert rig.paid() == 3
