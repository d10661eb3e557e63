"""Custom tools that are cut off, with the real binary: what their policy says is done, and recorded."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness_durable import NOT_HAPPENED, tool
from harness_durable.events import AnyEvent, ToolCompleted, ToolReleased, ToolRequested, ToolUnknown
from harness_durable.journal import Reader
from harness_durable.testing.provider import Reply, ToolUse, say
from harness_durable.testing.provider.policies.simple import Script
from tests.harness.claude_rig import tried
from tests.harness.opencode_rig import SESSION, VERSIONS
from tests.harness.opencode_rig import OpenCodeRig as Rig

pytestmark = [pytest.mark.slow, pytest.mark.parametrize("version", tried(VERSIONS))]

STORY = Script((Reply((ToolUse("durable_effect", {"token": "t"}, id="call_1"),)), say("done")))


async def told(rig: Rig) -> list[AnyEvent]:
    """What the log has of calls."""
    kinds = ToolRequested, ToolReleased, ToolCompleted, ToolUnknown
    return [one.event async for one in Reader(rig.world, SESSION).entries() if isinstance(one.event, kinds)]


@pytest.mark.parametrize("replay", ["safe", "idempotent"])
async def test_a_custom_tool_that_may_run_again_does_so_under_its_key(
    tmp_path: Path, version: str, replay: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with Rig.open(tmp_path, version, STORY, tools=None) as rig:
        await rig.inbox.accept("m-1", "go")
        monkeypatch.setenv("RIG_REPLAY", replay)
        await rig.crashed("tool.effect_done")
        await rig.finished()
        requested, first, second, completed = await told(rig)
        assert isinstance(requested, ToolRequested)
        assert (requested.policy, requested.origin) == (replay, "custom")
        assert isinstance(first, ToolReleased)
        assert isinstance(second, ToolReleased)
        assert (first.key, first.life != second.life) == (second.key, True)
        assert first.key
        assert isinstance(completed, ToolCompleted)
        assert rig.effects.read_text() == "t\nt\n"
        assert (rig.seen("call_1"), rig.paid()) == ("did t", 2)


@pytest.mark.parametrize("happened", [True, False])
async def test_a_custom_tool_is_asked_whether_it_happened(
    tmp_path: Path, version: str, *, happened: bool
) -> None:
    ran: list[str] = []

    def look(token: str) -> object:
        return f"found {token}" if happened else NOT_HAPPENED

    @tool(replay="never", probe=look)
    def effect(token: str) -> str:
        """The effect."""
        ran.append(token)
        return f"did {token}"

    async with Rig.open(tmp_path, version, STORY, tools=None) as rig:
        await rig.inbox.accept("m-1", "go")
        await rig.crashed("tool.running")
        rig.tools = (effect,)
        await rig.work()
        found = [type(event) for event in await told(rig)]
        again = [] if happened else [ToolReleased]
        assert found == [ToolRequested, ToolReleased, *again, ToolCompleted]
        assert ran == ([] if happened else ["t"])
        assert (rig.seen("call_1"), rig.paid()) == ("found t" if happened else "did t", 2)


async def test_a_custom_tool_without_a_probe_is_unknown_and_never_runs_again(
    tmp_path: Path, version: str
) -> None:
    async with Rig.open(tmp_path, version, STORY, tools=None) as rig:
        await rig.inbox.accept("m-1", "go")
        await rig.crashed("tool.effect_done", "machine")
        await rig.finished()
        assert [type(event) for event in await told(rig)] == [ToolRequested, ToolReleased, ToolUnknown]
        assert rig.effects.read_text() == "t\n"
