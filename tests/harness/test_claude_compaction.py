"""With the real binary: what we leave out after a compaction, the harness does not miss."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import pytest

from harness_durable.testing.provider import Reply, Request, ToolUse, Usage, say
from harness_durable.testing.provider.messages import tool_calls
from harness_durable_adapters.claude_code import prepare
from harness_durable_adapters.claude_code.transcript import Line
from tests.harness.rig import SESSION
from tests.harness.rigs import ClaudeRig, versions

pytestmark = [pytest.mark.slow, versions(ClaudeRig)]


def fills_its_window(request: Request) -> Reply:
    """Four calls, of which the last one is said to have filled the window; a summary; and the end."""
    said = "".join(block.text for block in request.messages[-1].blocks())
    if "Respond with TEXT ONLY" in said:
        return say("<summary>SUMMARY</summary>")
    if "SUMMARY" in str(request.body):
        return say("end")
    number = len(tool_calls(request))
    call = ToolUse("Bash", {"command": f"echo call-{number}", "description": "test"})
    return Reply((call,), usage=Usage(195_000 if number == 3 else 1000, 10))


async def compacted(root: Path, version: str) -> tuple[str, list[bytes]]:
    """A conversation with a compaction: its id and its lines."""
    async with ClaudeRig.open(root, version, fills_its_window) as rig:
        state = await rig.say("go")
        assert state.turns["m-1"].status == "completed"
        journal = await rig.journal()
        native = journal.state.native_id
        return native, [line async for line in journal.transcript_lines(f"{native}.jsonl")]


async def next_request(root: Path, version: str, native: str, lines: list[bytes]) -> tuple[str, int]:
    """What the model is asked with the next message, without what names this run; and how many lines of the
    transcript are left."""
    async with ClaudeRig.open(root, version, lambda _: say("again")) as rig:
        journal = await rig.journal()
        now = journal.state.native_id
        mine = [line.replace(native.encode(), now.encode()) for line in lines]
        await journal.transcript_appended("imported", {f"{now}.jsonl": mine}, offset=0)
        await rig.world.release(SESSION, journal.state.epoch)
        state = await rig.say("what next?")
        assert state.turns["m-1"].status == "completed", state.turns["m-1"].reason
        body = {name: item for name, item in rig.requests[0].body.items() if name != "metadata"}
        asked = json.dumps(body, sort_keys=True).replace(now, "native").replace(str(root), "root")
        return asked, state.transcripts[f"{now}.jsonl"].lines


def all_of_them(lines: Sequence[Line]) -> tuple[list[Line], list[Line]]:
    return list(lines), []


async def test_c113_after_a_compaction_the_harness_asks_the_same_without_what_is_left_out(
    tmp_path: Path, version: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CLAUDE_CODE_AUTO_COMPACT_WINDOW", "100000")
    places = [tmp_path / name for name in ("first", "short", "whole")]
    for place in places:
        place.mkdir()
    native, lines = await compacted(places[0], version)
    short, count = await next_request(places[1], version, native, lines)
    monkeypatch.setattr(prepare, "without_summed", all_of_them)
    whole, total = await next_request(places[2], version, native, lines)
    assert short == whole
    assert "SUMMARY" in short
    assert "call-3" in short, "the compaction preserves the last call"
    assert "call-0" not in short
    assert count < total
