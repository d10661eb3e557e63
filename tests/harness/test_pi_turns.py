"""Whole turns of the real Pi, where it differs from others."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness_durable.testing.provider import Reply, ToolUse, say
from harness_durable.testing.provider.policies.simple import Script
from tests.harness.rigs import PiRig, versions

pytestmark = [pytest.mark.slow, versions(PiRig)]

bash = PiRig.shell


async def test_files_are_read_written_and_edited(tmp_path: Path, version: str) -> None:
    edit: dict[str, object] = {"path": "f", "edits": [{"oldText": "one", "newText": "two"}]}
    calls = (
        ToolUse("write", {"path": "f", "content": "one\n"}, id="toolu_w"),
        ToolUse("edit", edit, id="toolu_e"),
        ToolUse("read", {"path": "f"}, id="toolu_r"),
    )
    async with PiRig.open(tmp_path, version, Script((Reply(calls), say("done")))) as rig:
        state = await rig.say("go")
        assert {call.outcome for call in state.tool_calls.values()} == {"completed"}
        assert "two" in rig.seen("toolu_r")
        assert (rig.workspace / "f").read_text() == "two\n"
        assert state.tool_calls["toolu_r"].policy == "safe"


async def test_calls_that_act_run_one_after_the_other(tmp_path: Path, version: str) -> None:
    calls = (
        bash("sleep 0.5; cat log; echo one >> log", "toolu_1"),
        bash("cat log; echo two >> log", "toolu_2"),
    )
    async with PiRig.open(tmp_path, version, Script((Reply(calls), say("done")))) as rig:
        (rig.workspace / "log").touch()
        state = await rig.say("go")
        assert await rig.result_of("toolu_2", state) == "one\n"
        first, second = state.tool_calls["toolu_1"], state.tool_calls["toolu_2"]
        assert second.released_seq > first.outcome_seq
