"""Whole turns of the real OpenCode, where it differs from others."""

from __future__ import annotations

from pathlib import Path

import anyio
import pytest

from harness_durable.events import TranscriptAppended
from harness_durable.journal import Reader
from harness_durable.testing.provider import Reply, ToolUse, say
from harness_durable.testing.provider.policies.simple import Script
from tests.harness.rig import SESSION
from tests.harness.rigs import OpenCodeRig, thorough, versions

pytestmark = [pytest.mark.slow, versions(OpenCodeRig)]

bash = OpenCodeRig.shell


@thorough
async def test_a_call_that_fails_is_a_failed_call(tmp_path: Path, version: str) -> None:
    calls = (
        ToolUse("read", {"filePath": "/no/such/file"}, id="call_1"),
        ToolUse("bash", {"cmd": 1}, id="call_2"),
    )
    async with OpenCodeRig.open(tmp_path, version, Script((Reply(calls), say("done")))) as rig:
        state = await rig.say("go")
        assert {call.outcome for call in state.tool_calls.values()} == {"failed"}
        assert "File not found" in await rig.result_of("call_1", state)


async def test_the_log_does_not_grow_with_each_piece_of_a_commands_output(
    tmp_path: Path, version: str
) -> None:
    """The harness itself writes the whole output so far with each of them: about 3 MB here."""
    chatty = bash(
        "for i in $(seq 150); do head -c 250 /dev/zero | tr '\\0' x; echo; sleep 0.02; done", "call_1"
    )
    async with OpenCodeRig.open(tmp_path, version, Script((Reply((chatty,)), say("done")))) as rig:
        state = await rig.say("go")
        [transcript] = state.transcripts.values()
        assert transcript.lines < 20
        assert len(rig.seen("call_1").split()) == 150
        written = [entry.event async for entry in Reader(rig.world, SESSION).entries()]
        assert sum(isinstance(event, TranscriptAppended) for event in written) <= transcript.lines
        assert len(written) < 50
        size = sum([len(blob) async for _, blob in rig.world.blobs(SESSION)])
        size += sum(len(record.body) for record in await rig.world.read(SESSION))
        assert size < 400_000


async def test_a_question_is_answered_by_its_id_also_while_nobody_works(tmp_path: Path, version: str) -> None:
    question: dict[str, object] = {"question": "Which?", "header": "Colour", "options": []}
    use = ToolUse("question", {"questions": [question, question]}, id="call_1")
    script = Script((Reply((use,)), say("done")))
    async with OpenCodeRig.open(tmp_path, version, script, tools=("question",)) as rig:
        await rig.go("ask me")
        await rig.crashed("permission.asked")
        await rig.answer("call_1", "blue\nred")
        await rig.crashed("tool.completed", "machine")  # before the harness has heard of it
        state = await rig.finished()
        assert state.turns["m-1"].status == "completed"
        assert state.tool_calls["call_1"].outcome == "completed"
        assert set(state.permissions) == {"call_1"}
        assert '"Which?"="blue", "Which?"="red"' in rig.seen("call_1")
        assert await rig.result_of("call_1", state) == rig.seen("call_1")
        assert rig.paid() == 2


@thorough
async def test_an_answered_question_is_told_in_the_words_of_the_harness(tmp_path: Path, version: str) -> None:
    """The log has them before the harness says them."""
    option: dict[str, object] = {"label": "blue", "description": "like the sky"}
    question: dict[str, object] = {"question": "Which?", "header": "Colour", "options": [option]}
    use = ToolUse("question", {"questions": [question]}, id="call_1")
    async with OpenCodeRig.open(
        tmp_path, version, Script((Reply((use,)), say("done"))), tools=("question",)
    ) as rig:
        await rig.go("ask me")
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(rig.work)
            await rig.until(lambda state: "call_1" in state.permissions)
            await rig.answer("call_1", "blue")
        state = await rig.state()
        assert await rig.result_of("call_1", state) == rig.seen("call_1")
        assert "blue" in rig.seen("call_1")


@thorough
async def test_a_question_that_nobody_wants_to_answer_is_refused(tmp_path: Path, version: str) -> None:
    question: dict[str, object] = {"question": "Which?", "header": "Colour", "options": []}
    use = ToolUse("question", {"questions": [question]}, id="call_1")
    script = Script((Reply((use,)), say("done")))
    async with OpenCodeRig.open(tmp_path, version, script, tools=("question",)) as rig:
        await rig.go("ask me")
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(rig.work)
            await rig.until(lambda state: "call_1" in state.permissions)
            await rig.answer("call_1", "you know", allow=False)
        assert "you know" in rig.seen("call_1")
