"""Kills in the middle of turns of the real Codex, where it differs from others."""

from __future__ import annotations

import json
from pathlib import Path
from typing import cast

import pytest

from harness_durable.journal import Inbox
from harness_durable.policy import UNKNOWN
from harness_durable.sandbox import LifeRef
from harness_durable.testing.provider import Reply, Request, Usage, say
from harness_durable.testing.provider.messages import results, tool_calls
from harness_durable_adapters.codex.rollout import parse
from harness_durable_adapters.common.shapes import Json
from tests.harness.rig import SESSION, Rig
from tests.harness.rigs import CodexRig, versions

FILES = sorted(Path(__file__).parents[3].glob("shared/cases/files/codex/*.jsonl"))

pytestmark = [pytest.mark.slow, versions(CodexRig)]

bash = CodexRig.bash


async def test_a_call_that_was_cut_off_is_unknown_and_its_repeat_is_refused_once(
    tmp_path: Path, version: str
) -> None:
    def policy(request: Request) -> Reply:
        calls, known = tool_calls(request), results(request)
        if len(calls) < 3 and (not calls or known[calls[-1].id].text.startswith("outcome_unknown")):
            return Reply((bash("echo a >> a; sleep 3; echo slept", f"call_{len(calls) + 1}"),))
        return say("done")

    async with CodexRig.open(tmp_path, version, policy) as rig:
        await rig.go()
        await rig.crashed("tool.released")
        state = await rig.finished()
        assert state.turns["m-1"].status == "completed"
        assert rig.seen("call_1") == UNKNOWN
        assert rig.seen("call_2").startswith("outcome_unknown: refused once")
        assert "slept" in rig.seen("call_3")
        assert (rig.workspace / "a").read_text() in ("a\n", "a\na\n")
        assert rig.paid() == 4


async def test_a_message_before_which_the_harness_compacts_is_not_lost(tmp_path: Path, version: str) -> None:
    """The question for the summary comes before the first one that shows the message."""

    def policy(request: Request) -> Reply:
        if _compacts(request):
            return say("SUMMARY of it all")
        return (
            say("one") if len(tool_calls(request)) else Reply((bash("echo 0 >> a"),), usage=Usage(1000, 10))
        )

    async with CodexRig.open(tmp_path, version, policy) as rig:
        await rig.go()
        state = await rig.finished()
        assert state.turns["m-1"].status == "completed"
        journal = await rig.journal()
        await journal.turn_started(await _sent(rig, "m-2", "and now?"))
        about = json.dumps({"request_kind": "compaction"})
        body: Json = {"model": "m", "input": [], "client_metadata": {"x-codex-turn-metadata": about}}
        await journal.life_started(LifeRef("L9", "local", "/none", "elsewhere"), "m-2", version)
        await journal.model_requested(
            key="k",
            life="L9",
            wire="openai-responses",
            model="m",
            path="/v1/responses",
            body=json.dumps(body).encode(),
            field="input",
            agent=None,
        )
        await rig.world.release(SESSION, journal.state.epoch)
        state = await rig.finished()
        assert state.turns["m-2"].status == "completed"
        assert str(rig.requests[-1].body["input"]).count("'text': 'and now?'") == 1


async def _sent(rig: Rig, message: str, text: str) -> str:
    await (await Inbox.open(rig.world, SESSION)).accept(message, text)
    return message


def _compacts(request: Request) -> bool:
    about = request.body.get("client_metadata")
    return '"request_kind":"compaction"' in str(about)


def conversations() -> list[tuple[str, list[bytes]]]:
    """Rollout files of real sessions where they are at hand, and one that is always there."""
    line = {"timestamp": "2026-01-01T00:00:00.000Z", "type": "response_item"}
    call = {"type": "function_call", "call_id": "call_old", "name": "shell", "arguments": "{}"}
    said = {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "hi"}]}
    made = [json.dumps({**line, "payload": said}), '{"torn', json.dumps({**line, "payload": call})]
    found = [(file.name, file.read_bytes().split(b"\n")) for file in FILES]
    return [("damaged", [one.encode() for one in made]), *found]


async def test_transcripts_of_other_versions_and_damaged_ones_go_on(tmp_path: Path, version: str) -> None:
    for number, (name, lines) in enumerate(conversations()):
        root = tmp_path / str(number)
        root.mkdir()
        async with CodexRig.open(root, version, lambda _: say("read")) as rig:
            await rig.brought(lines)
            state = await rig.say("what did we do?")
            assert state.turns["m-1"].status == "completed", (name, state.turns["m-1"].reason)
            assert [line.kind for line in rig.provider.ledger.tally().lines].count("refused") == 0, name
            items = len(parse(lines)[0])
            assert len(cast(list[object], rig.requests[-1].body["input"])) >= items, name
