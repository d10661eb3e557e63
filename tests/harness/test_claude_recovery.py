"""Kills in the middle of turns of the real Claude Code, where it differs from others."""

from __future__ import annotations

import json
import signal
from pathlib import Path

import anyio
import pytest

from harness_durable.journal import Reader
from harness_durable.testing.provider import Reply, Request, Usage, say
from harness_durable.testing.provider.messages import tool_calls
from harness_durable.testing.provider.policies.simple import Script
from tests.harness.rig import SESSION, running
from tests.harness.rigs import ClaudeRig, some, versions
from tests.unit.claude_samples import EVERY

pytestmark = [pytest.mark.slow, versions(ClaudeRig)]

bash = ClaudeRig.shell


async def test_a_steer_that_an_answered_request_held_is_not_said_again(tmp_path: Path, version: str) -> None:
    """The harness was lost after it had sent the steer to the model, and before it had written that down."""
    first = Reply((bash("until [ -e said ]; do sleep 0.1; done; sleep 1; echo one", "toolu_1"),))
    second = Reply((bash("echo two", "toolu_2"),))
    third = Reply((bash("echo three", "toolu_3"),))
    async with ClaudeRig.open(tmp_path, version, Script((first, second, third, say("done")))) as rig:
        await rig.go()
        process = rig.worker(
            HARNESS_DURABLE_CRASH_AT="model.completed:2", HARNESS_DURABLE_CRASH_DEATH="harness"
        )
        await rig.until(running("toolu_1"))
        await rig.steer("look left")
        (rig.workspace / "said").touch()
        assert await anyio.to_thread.run_sync(process.wait) == -signal.SIGKILL, rig.tail()
        assert "look left" in str(rig.requests[-1].body)
        state = await rig.finished()
        assert state.messages["s-1"].status == "delivered"
        assert str(rig.requests[-1].body).count("look left") == 1
        assert state.turns["m-1"].status == "completed"


@pytest.mark.parametrize("at", ["model.completed:5", "model.requested:6", "model.completed:6"])
async def test_a_compaction_survives_and_is_paid_once(
    tmp_path: Path, version: str, at: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CLAUDE_CODE_AUTO_COMPACT_WINDOW", "100000")

    def policy(request: Request) -> Reply:
        said = "".join(block.text for block in request.messages[-1].blocks())
        if "Respond with TEXT ONLY" in said:
            return say("<summary>SUMMARY</summary>")
        compacted, calls = "SUMMARY" in str(request.body), tool_calls(request)
        if compacted and any("nine" in str(call.input) for call in calls):
            return say("end")
        if compacted:
            return Reply((bash("echo nine >> a", ""),))
        usage = Usage(195_000 if len(calls) == 3 else 1000, 10)
        return Reply((bash(f"echo {len(calls)} >> a", ""),), usage=usage)

    async with ClaudeRig.open(tmp_path, version, policy) as rig:
        await rig.go()
        await rig.crashed(at, "machine")
        state = await rig.finished()
        assert state.turns["m-1"].status == "completed"
        assert (rig.workspace / "a").read_text().split() == ["0", "1", "2", "3", "nine"]
        assert rig.paid() == 7


def conversations() -> list[tuple[str, list[bytes]]]:
    """Transcripts of real sessions where they are at hand, and made-up ones that are always there."""
    found = [
        (name, lines)
        for name, lines in EVERY.items()
        if not any(word in name for word in ("synthetic", "acompact", "trimmed"))
    ]
    line = {"timestamp": "2026-01-01T00:00:00.000Z", "isSidechain": False, "sessionId": "s"}
    orphan = {"type": "tool_use", "id": "toolu_old", "name": "Bash", "input": {"command": "x"}}
    damaged = [
        json.dumps({**line, "type": "user", "uuid": "a", "message": {"role": "user", "content": "hi"}}),
        '{"torn',
        json.dumps(
            {
                **line,
                "type": "assistant",
                "uuid": "b",
                "parentUuid": "gone",
                "message": {"id": "msg_old", "role": "assistant", "model": "m", "content": [orphan]},
            }
        ),
    ]
    return [*some(found[:3], *found[3:]), ("damaged", [entry.encode() for entry in damaged])]


async def test_transcripts_of_other_versions_and_damaged_ones_go_on(tmp_path: Path, version: str) -> None:
    for number, (name, lines) in enumerate(conversations()):
        root = tmp_path / str(number)
        root.mkdir()
        async with ClaudeRig.open(root, version, lambda _: say("read")) as rig:
            file = await rig.brought(lines)
            state = await rig.say("what did we do?")
            assert state.turns["m-1"].status == "completed", (name, state.turns["m-1"].reason)
            assert [line.kind for line in rig.provider.ledger.tally().lines].count("refused") == 0, name
            kept = await Reader(rig.world, SESSION).load()
            assert kept.transcripts[file].lines > 0
