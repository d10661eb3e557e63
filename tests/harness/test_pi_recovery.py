"""Kills in the middle of turns of the real Pi, where it differs from others."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness_durable.policy import UNKNOWN
from harness_durable.testing.provider import Reply, Text, ToolUse, say
from harness_durable.testing.provider.messages import last_user_text
from harness_durable.testing.provider.policies.simple import Script
from tests.harness.rig import running
from tests.harness.rigs import PiRig, versions

pytestmark = [pytest.mark.slow, versions(PiRig)]

bash = PiRig.shell


async def test_reads_run_side_by_side_and_one_that_was_cut_off_runs_again(
    tmp_path: Path, version: str
) -> None:
    calls = (ToolUse("read", {"path": "f"}, id="toolu_1"), ToolUse("read", {"path": "g"}, id="toolu_2"))
    async with PiRig.open(tmp_path, version, Script((Reply(calls), say("done")))) as rig:
        (rig.workspace / "f").write_text("F\n")
        (rig.workspace / "g").write_text("G\n")
        await rig.go()
        await rig.crashed("tool.released:2")
        state = await rig.finished()
        assert {call.outcome for call in state.tool_calls.values()} == {"completed"}
        assert (rig.seen("toolu_1"), rig.seen("toolu_2")) == ("F\n", "G\n")
        assert rig.paid() == 2


async def test_a_turn_goes_on_without_a_made_up_message(tmp_path: Path, version: str) -> None:
    script = Script((Reply((bash("echo a", "toolu_1"),)), say("done")))
    async with PiRig.open(tmp_path, version, script) as rig:
        await rig.go()
        await rig.crashed("model.requested:2", "machine")
        await rig.finished()
        said = [message for message in rig.requests[-1].messages if message.role == "user"]
        assert [len(message.blocks()) for message in said] == [1, 1]
        assert last_user_text(rig.requests[-1]) == "go"


async def test_a_parallel_batch_with_a_slow_sibling_loses_no_result(tmp_path: Path, version: str) -> None:
    """Ours may run side by side; the first is done and recorded while the second is cut off."""
    uses = (
        ToolUse("durable_effect", {"token": "quick"}, id="toolu_1"),
        ToolUse("durable_effect", {"token": "slow", "nap": 60}, id="toolu_2"),
        ToolUse("read", {"path": "f"}, id="toolu_3"),
    )
    async with PiRig.open(tmp_path, version, Script((Reply(uses), say("done")))) as rig:
        (rig.workspace / "f").write_text("F\n")
        await rig.go()
        process = rig.worker()
        await rig.until(lambda state: running("toolu_2")(state) and not state.tool_calls["toolu_1"].open)
        await rig.until(lambda _: "slow" in rig.effects.read_text())
        await rig.kill(process)
        state = await rig.finished()
        assert sorted(rig.effects.read_text().split()) == ["quick", "slow"]
        assert (rig.seen("toolu_1"), rig.seen("toolu_2")) == ("did quick", UNKNOWN)
        assert state.tool_calls["toolu_3"].outcome == "completed"
        assert rig.paid() == 2


async def test_a_steer_at_the_last_answer_goes_on_with_the_turn(tmp_path: Path, version: str) -> None:
    last = Reply((Text("the task is done"),), start_delay=2.0)
    script = Script((last, Reply((bash("sleep 2; echo more", "toolu_1"),)), say("all is done")))
    async with PiRig.open(tmp_path, version, script) as rig:
        await rig.go()
        process = rig.worker()
        await rig.until(lambda state: bool(state.model_calls))
        await rig.steer("one more thing")
        await rig.until(running("toolu_1"))
        await rig.kill(process)
        state = await rig.finished()
        text = state.turns["m-1"].text
        assert (list(state.turns), text and text.text) == (["m-1"], "all is done")
        said = [block.text for message in rig.requests[-1].messages for block in message.blocks()]
        assert [one for one in said if one] == ["go", "the task is done", "one more thing"]
