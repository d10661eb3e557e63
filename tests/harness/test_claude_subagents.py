"""Subagents of the real Claude Code: their calls are gated and told like any other, and a death in their
middle costs nothing that was done."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness_durable.testing.provider import Reply, Request, Text, ToolUse, say
from harness_durable.testing.provider.messages import assistant_turns, first_user_text, results, tool_calls
from tests.harness.rig import running
from tests.harness.rigs import ClaudeRig, versions

pytestmark = [pytest.mark.slow, versions(ClaudeRig)]

bash = ClaudeRig.shell


def delegating(request: Request) -> Reply:
    """A main loop that delegates, and a subagent of three steps."""
    if "SUBTASK" in first_user_text(request):
        known = results(request)
        for number, nap in ((1, 0), (2, 0), (3, 3)):
            call = f"toolu_inner{number}"
            if call not in known:
                return Reply((bash(f"echo {number} >> inner; sleep {nap}; echo OUT{number}", call),))
        return say("sub result")
    if tool_calls(request):
        return say("end")
    prompt: dict[str, object] = {
        "description": "sub",
        "prompt": "SUBTASK do",
        "subagent_type": "general-purpose",
    }
    return Reply((Text("delegate"), ToolUse("Agent", prompt, id="toolu_agent")))


async def test_a_subagent_is_recorded_and_gated_call_by_call(tmp_path: Path, version: str) -> None:
    def policy(request: Request) -> Reply:
        if "SUBTASK" in str(request.messages[0].blocks()[-1].text):
            if "toolu_inner" not in results(request):
                return Reply((bash("echo inner > inner", "toolu_inner"),))
            return say("inner done")
        if tool_calls(request):
            return say(f"turns {assistant_turns(request)}")
        prompt: dict[str, object] = {
            "description": "sub",
            "prompt": "SUBTASK do",
            "subagent_type": "general-purpose",
        }
        return Reply((ToolUse("Agent", prompt, id="toolu_agent"),))

    async with ClaudeRig.open(tmp_path, version, policy) as rig:
        state = await rig.say("delegate")
        assert state.turns["m-1"].status == "completed"
        assert state.tool_calls["toolu_inner"].agent is not None
        assert {call.outcome for call in state.tool_calls.values()} == {"completed"}
        assert any("subagents/" in file for file in state.transcripts)


async def test_c052_a_subagent_goes_on_where_it_was_and_nothing_inside_runs_twice(
    tmp_path: Path, version: str
) -> None:
    async with ClaudeRig.open(tmp_path, version, delegating) as rig:
        await rig.go("go")
        process = rig.worker()
        await rig.until(running("toolu_inner3"))
        await rig.kill(process)
        paid = rig.paid()
        state = await rig.finished()
        assert state.turns["m-1"].status == "completed"
        assert (rig.workspace / "inner").read_text().split() in (["1", "2", "3"], ["1", "2"])
        assert state.tool_calls["toolu_inner3"].outcome == "unknown"
        assert [state.tool_calls[f"toolu_inner{n}"].outcome for n in (1, 2)] == ["completed"] * 2
        assert state.tool_calls["toolu_agent"].outcome == "completed"
        assert "sub result" in rig.seen("toolu_agent")
        # Two answers were still to come: the subagent's last one and the main loop's.
        assert rig.paid() - paid == 2


async def test_siblings_of_a_subagent_that_is_replayed_keep_their_exact_results(
    tmp_path: Path, version: str
) -> None:
    def policy(request: Request) -> Reply:
        if "SUBTASK" in first_user_text(request) or not tool_calls(request):
            reply = delegating(request)
            before = (bash("echo one >> m; echo ONE", "toolu_before"),)
            after = (bash("echo three >> m", "toolu_after"),)
            subtask = "SUBTASK" in first_user_text(request)
            return reply if subtask else Reply((*before, *reply.blocks, *after))
        return say("end")

    async with ClaudeRig.open(tmp_path, version, policy) as rig:
        await rig.go()
        process = rig.worker()
        await rig.until(running("toolu_inner3"))
        await rig.kill(process)
        paid = rig.paid()
        state = await rig.finished()
        assert state.turns["m-1"].status == "completed"
        assert sorted((rig.workspace / "m").read_text().split()) == ["one", "three"]
        assert rig.seen("toolu_before") == "ONE"
        assert state.tool_calls["toolu_after"].outcome == "completed"
        assert rig.paid() - paid == 2


async def test_files_that_a_subagent_wrote_are_not_written_twice(tmp_path: Path, version: str) -> None:
    path = tmp_path / "work space" / "file"

    def policy(request: Request) -> Reply:
        if "SUBTASK" not in first_user_text(request):
            return delegating(request)
        known = results(request)
        if "toolu_write" not in known:
            content: dict[str, object] = {"file_path": str(path), "content": "first\n"}
            return Reply((ToolUse("Write", content, id="toolu_write"),))
        if not any("sleep" in str(call.input) for call in tool_calls(request)):
            return Reply((bash("echo more >> file; sleep 3", ""),))
        return say("sub result")

    async with ClaudeRig.open(tmp_path, version, policy) as rig:
        await rig.go()
        process = rig.worker()
        await rig.until(lambda _: path.exists() and "more" in path.read_text())
        await rig.kill(process)
        state = await rig.finished()
        assert state.turns["m-1"].status == "completed"
        assert state.tool_calls["toolu_write"].outcome == "completed"
        assert path.read_text().startswith("first\nmore\n")
        assert not any(call.open for call in state.tool_calls.values())
