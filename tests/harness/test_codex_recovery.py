"""Kills in the middle of Codex's turns, with both real binaries: what is told, what runs, what is paid."""

from __future__ import annotations

import json
from pathlib import Path
from typing import cast

import anyio
import pytest

from harness_durable.journal import Inbox
from harness_durable.policy import AGAIN, CANCELLED, NOT_STARTED, UNKNOWN
from harness_durable.sandbox import LifeRef
from harness_durable.state import Session
from harness_durable.testing.provider import Reply, Request, Style, Text, ToolUse, Usage, say
from harness_durable.testing.provider.messages import results, tool_calls
from harness_durable.testing.provider.policies.simple import Script
from harness_durable_adapters.codex.rollout import parse
from harness_durable_adapters.common.shapes import Json
from tests.harness.claude_rig import tried
from tests.harness.codex_rig import SESSION, VERSIONS, CodexRig, bash, patch

FILES = sorted(Path(__file__).parents[3].glob("shared/cases/files/codex/*.jsonl"))

pytestmark = [pytest.mark.slow, pytest.mark.parametrize("version", tried(VERSIONS))]


async def begun(rig: CodexRig, text: str = "go") -> None:
    await rig.inbox.accept("m-1", text)


def _running(state: Session, call: str) -> bool:
    known = state.tool_calls.get(call)
    return known is not None and known.released_in is not None


async def test_a_call_that_was_cut_off_is_unknown_and_its_repeat_is_refused_once(
    tmp_path: Path, version: str
) -> None:
    def policy(request: Request) -> Reply:
        calls, known = tool_calls(request), results(request)
        if len(calls) < 3 and (not calls or known[calls[-1].id].text.startswith("outcome_unknown")):
            return Reply((bash("echo a >> a; sleep 3; echo slept", f"call_{len(calls) + 1}"),))
        return say("done")

    async with CodexRig.open(tmp_path, version, policy, tools=None) as rig:
        await begun(rig)
        await rig.crashed("tool.released")
        state = await rig.finished()
        assert state.turns["m-1"].status == "completed"
        assert rig.seen("call_1") == UNKNOWN
        assert rig.seen("call_2").startswith("outcome_unknown: refused once")
        assert "slept" in rig.seen("call_3")
        assert (rig.workspace / "a").read_text() in ("a\n", "a\na\n")
        assert rig.paid() == 4


async def test_finished_calls_keep_their_results_beside_a_slow_one_that_was_cut_off(
    tmp_path: Path, version: str
) -> None:
    waits = "until [ -s a ]; do sleep 0.05; done; echo one >> a; echo ONE"
    both = Reply((bash("echo two >> a; sleep 9", "call_1"), bash(waits, "call_2")))
    async with CodexRig.open(tmp_path, version, Script((both, say("done"))), tools=None) as rig:
        await begun(rig)
        await rig.crashed("tool.completed")
        state = await rig.finished()
        assert state.turns["m-1"].status == "completed"
        assert "ONE" in rig.seen("call_2")
        assert rig.seen("call_1") == UNKNOWN
        assert sorted((rig.workspace / "a").read_text().split()) == ["one", "two"]
        assert rig.paid() == 2


async def test_a_call_in_line_behind_one_that_was_cut_off_never_started(tmp_path: Path, version: str) -> None:
    both = Reply((bash("echo a >> a; sleep 5", "call_1"), patch("b", "b", "call_2")))
    async with CodexRig.open(tmp_path, version, Script((both, say("done"))), tools=None) as rig:
        await begun(rig)
        await rig.crashed("tool.released")
        state = await rig.finished()
        assert (rig.seen("call_1"), rig.seen("call_2")) == (UNKNOWN, NOT_STARTED)
        assert not (rig.workspace / "b").exists()
        assert state.tool_calls["call_2"].released_in is None


@pytest.mark.parametrize("at", ["model.completed", "model.forwarding", "tool.requested"])
async def test_a_response_that_the_harness_never_got_is_replayed(
    tmp_path: Path, version: str, at: str
) -> None:
    script = Script((Reply((bash("echo a >> a", "call_1"),)), say("done")))
    async with CodexRig.open(tmp_path, version, script, tools=None) as rig:
        await begun(rig)
        await rig.crashed(at, "machine")
        state = await rig.finished()
        assert state.turns["m-1"].status == "completed"
        assert (rig.workspace / "a").read_text() == "a\n"
        assert rig.paid() == 2


async def test_an_answer_to_a_request_after_a_tool_is_replayed(tmp_path: Path, version: str) -> None:
    """The request repeats the tool's output to the letter, so the recorded answer fits."""
    script = Script((Reply((bash("echo a >> a", "call_1"),)), say("done")))
    async with CodexRig.open(tmp_path, version, script, tools=None) as rig:
        await begun(rig)
        await rig.crashed("model.completed:2", "machine")
        state = await rig.finished()
        assert state.turns["m-1"].status == "completed"
        assert rig.paid() == 2


async def test_a_rude_stream_is_replayed_and_rebuilt_like_a_tidy_one(tmp_path: Path, version: str) -> None:
    rude = Style(
        seed=1, pretty=True, escape=True, split_text=2, split_input=2, split_bytes=7, pings=True, crlf=True
    )
    both = Reply(
        (Text("é 🙂 two"), bash("echo 'ü🙂'", "call_1"), bash("echo b; sleep 2", "call_2")), style=rude
    )
    async with CodexRig.open(tmp_path, version, Script((both, say("done"))), tools=None) as rig:
        await begun(rig, "/slash first")
        await rig.crashed("tool.completed", "machine")
        state = await rig.finished()
        assert state.turns["m-1"].status == "completed"
        assert "ü🙂" in rig.seen("call_1")
        assert rig.paid() == 2


async def test_a_finished_turn_whose_end_was_not_recorded_is_only_closed(
    tmp_path: Path, version: str
) -> None:
    async with CodexRig.open(tmp_path, version, Script((say("the answer"),)), tools=None) as rig:
        await begun(rig)
        await rig.crashed("turn.completing", "machine")
        state = await rig.finished()
        text = state.turns["m-1"].text
        assert (state.turns["m-1"].status, text and text.text) == ("completed", "the answer")
        assert rig.paid() == 1


async def test_a_running_command_survives_its_worker(tmp_path: Path, version: str) -> None:
    slow = bash("echo a >> a; sleep 10; echo slept", "call_1", yield_time_ms=20000)
    async with CodexRig.open(tmp_path, version, Script((Reply((slow,)), say("done"))), tools=None) as rig:
        await begun(rig)
        await rig.crashed("tool.released", "worker")
        state = await rig.finished()
        assert len(state.lives) == 1
        assert state.tool_calls["call_1"].outcome == "completed"
        assert "slept" in rig.seen("call_1")
        assert (rig.workspace / "a").read_text() == "a\n"
        assert rig.paid() == 2


@pytest.mark.parametrize("at", ["life.started", "model.requested", "model.completed", "transcript.appended"])
async def test_a_worker_that_dies_alone_changes_nothing(tmp_path: Path, version: str, at: str) -> None:
    script = Script((Reply((bash("echo a >> a", "call_1"),)), say("done")))
    async with CodexRig.open(tmp_path, version, script, tools=None) as rig:
        await begun(rig)
        await rig.crashed(at, "worker")
        state = await rig.finished()
        assert state.turns["m-1"].status == "completed"
        assert state.tool_calls["call_1"].outcome == "completed"
        assert (rig.workspace / "a").read_text() == "a\n"


async def test_a_look_at_a_picture_that_was_cut_off_may_be_repeated(tmp_path: Path, version: str) -> None:
    script = Script((Reply((ToolUse("view_image", {"path": "/none.png"}, id="call_1"),)), say("done")))
    async with CodexRig.open(tmp_path, version, script, tools=None) as rig:
        await begun(rig)
        await rig.crashed("tool.released")
        state = await rig.finished()
        assert state.turns["m-1"].status == "completed"
        assert rig.seen("call_1") == AGAIN


async def test_a_custom_tool_that_was_cut_off_is_unknown_and_ran_once(tmp_path: Path, version: str) -> None:
    use = ToolUse("durable_effect", {"token": "t"}, id="call_1")
    async with CodexRig.open(tmp_path, version, Script((Reply((use,)), say("done"))), tools=None) as rig:
        await begun(rig)
        await rig.crashed("tool.effect_done")
        state = await rig.finished()
        assert rig.effects.read_text() == "t\n"
        assert state.tool_calls["call_1"].outcome == "unknown"
        assert rig.seen("call_1") == UNKNOWN


async def test_a_custom_tool_whose_worker_died_is_settled_and_the_harness_goes_on(
    tmp_path: Path, version: str
) -> None:
    use = ToolUse("durable_effect", {"token": "t"}, id="call_1")
    async with CodexRig.open(tmp_path, version, Script((Reply((use,)), say("done"))), tools=None) as rig:
        await begun(rig)
        await rig.crashed("tool.effect_done", "worker")
        state = await rig.finished()
        assert len(state.lives) == 1
        assert rig.effects.read_text() == "t\n"
        assert rig.seen("call_1") == UNKNOWN


async def test_a_stop_while_nobody_works_wins_over_recovery(tmp_path: Path, version: str) -> None:
    script = Script((Reply((bash("echo a >> a; sleep 5", "call_1"),)), say("after")))
    async with CodexRig.open(tmp_path, version, script, tools=None) as rig:
        await begun(rig)
        await rig.crashed("tool.released")
        await (await Inbox.open(rig.world, SESSION)).request_stop("Ann")
        state = await rig.finished()
        assert state.turns["m-1"].status == "cancelled"
        await (await Inbox.open(rig.world, SESSION)).accept("m-2", "and now?")
        state = await rig.finished()
        assert state.turns["m-2"].status == "completed"
        assert rig.seen("call_1") == UNKNOWN
        said = [block.text for message in rig.requests[-1].messages for block in message.blocks()]
        assert [text for text in said if text in ("go", "and now?")] == ["go", "and now?"]


async def test_a_stop_cuts_off_a_custom_tool_that_runs(tmp_path: Path, version: str) -> None:
    use = ToolUse("durable_effect", {"token": "t", "nap": 60}, id="call_1")
    async with CodexRig.open(tmp_path, version, Script((Reply((use,)), say("after"))), tools=None) as rig:
        await begun(rig)
        process = rig.worker()
        await rig.until(lambda _: rig.effects.exists())
        await (await Inbox.open(rig.world, SESSION)).request_stop("Ann")
        assert await anyio.to_thread.run_sync(process.wait) == 0, rig.tail()
        state = await rig.state()
        assert state.turns["m-1"].status == "cancelled"
        assert state.tool_calls["call_1"].outcome == "cancelled"
        await (await Inbox.open(rig.world, SESSION)).accept("m-2", "and now?")
        await rig.finished()
        assert rig.seen("call_1") == CANCELLED


async def test_a_steer_that_was_lost_with_the_harness_is_given_again(tmp_path: Path, version: str) -> None:
    first = Reply((bash("sleep 4; echo one", "call_1"),))
    second = Reply((bash("sleep 1; echo two", "call_2"),))
    async with CodexRig.open(tmp_path, version, Script((first, second, say("done"))), tools=None) as rig:
        await begun(rig)
        process = rig.worker()
        await rig.until(lambda state: _running(state, "call_1"))
        await (await Inbox.open(rig.world, SESSION)).accept("s-1", "look left", "steer")
        process.kill()
        await anyio.to_thread.run_sync(process.wait)
        await rig.kill_life()
        state = await rig.finished()
        assert state.messages["s-1"].status == "delivered"
        assert str(rig.requests[-1].body).count("look left") == 1
        assert state.turns["m-1"].status == "completed"


async def test_a_steer_that_was_taken_is_not_given_again(tmp_path: Path, version: str) -> None:
    first = Reply((bash("sleep 2; echo one", "call_1"),))
    second = Reply((bash("sleep 9; echo two", "call_2"),))
    async with CodexRig.open(tmp_path, version, Script((first, second, say("done"))), tools=None) as rig:
        await begun(rig)
        process = rig.worker()
        await rig.until(lambda state: _running(state, "call_1"))
        await (await Inbox.open(rig.world, SESSION)).accept("s-1", "look left", "steer")
        await rig.until(lambda state: _running(state, "call_2"))
        process.kill()
        await anyio.to_thread.run_sync(process.wait)
        await rig.kill_life()
        state = await rig.finished()
        assert state.messages["s-1"].status == "delivered"
        assert str(rig.requests[-1].body).count("look left") == 1
        assert rig.paid() == 3


@pytest.mark.parametrize("death", ["worker", "harness"])
async def test_an_answer_that_is_given_while_nobody_works_is_used_by_the_next(
    tmp_path: Path, version: str, death: str
) -> None:
    script = Script((Reply((bash("echo a >> a", "call_1"),)), say("done")))
    async with CodexRig.open(tmp_path, version, script, tools=None, permission_mode="ask") as rig:
        await begun(rig)
        await rig.crashed("permission.asked", death)
        assert not (rig.workspace / "a").exists()
        await (await Inbox.open(rig.world, SESSION)).answer("call_1", allow=True, by="Ann")
        state = await rig.finished()
        assert state.turns["m-1"].status == "completed"
        assert (rig.workspace / "a").read_text() == "a\n"
        assert len(state.permissions) == 1
        assert rig.paid() == 2


async def test_a_harness_that_dies_alone_is_replaced(tmp_path: Path, version: str) -> None:
    script = Script((Reply((bash("echo a >> a; sleep 30", "call_1"),)), say("done")))
    async with CodexRig.open(tmp_path, version, script, tools=None) as rig:
        await begun(rig)
        process = rig.worker()
        await rig.until(lambda state: _running(state, "call_1") and (rig.workspace / "a").exists())
        rig.kill_harness()
        assert await anyio.to_thread.run_sync(process.wait) == 0, rig.tail()
        state = await rig.state()
        assert state.turns["m-1"].status == "completed"
        assert next(iter(state.lives.values())).code == -9
        assert rig.seen("call_1") == UNKNOWN


@pytest.mark.parametrize("at", ["model.completed:4", "model.requested:5", "model.completed:5"])
async def test_a_compaction_survives_and_nothing_is_done_or_paid_twice(
    tmp_path: Path, version: str, at: str
) -> None:
    def policy(request: Request) -> Reply:
        said, calls = str(request.body["input"]), tool_calls(request)
        if _compacts(request):
            return say("SUMMARY of it all")
        if "SUMMARY" in said:
            return say("end") if any("nine" in str(c.input) for c in calls) else Reply((_echo("nine"),))
        usage = Usage(250_000 if len(calls) > 1 else 1000, 10)
        return Reply((_echo(str(len(calls))),), usage=usage)

    async with CodexRig.open(tmp_path, version, policy, tools=None) as rig:
        await begun(rig)
        await rig.crashed(at, "machine")
        state = await rig.finished()
        assert state.turns["m-1"].status == "completed", state.turns["m-1"].reason
        assert (rig.workspace / "a").read_text().split() == ["0", "1", "2", "nine"]
        assert rig.paid() == 6
        assert "SUMMARY" in str(rig.requests[-1].body["input"])


async def test_a_message_before_which_the_harness_compacts_is_not_lost(tmp_path: Path, version: str) -> None:
    """The question for the summary comes before the first one that shows the message."""

    def policy(request: Request) -> Reply:
        if _compacts(request):
            return say("SUMMARY of it all")
        return say("one") if len(tool_calls(request)) else Reply((_echo("0"),), usage=Usage(1000, 10))

    async with CodexRig.open(tmp_path, version, policy, tools=None) as rig:
        await begun(rig)
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


async def _sent(rig: CodexRig, message: str, text: str) -> str:
    await (await Inbox.open(rig.world, SESSION)).accept(message, text)
    return message


def _echo(word: str) -> ToolUse:
    return bash(f"echo {word} >> a")


def _compacts(request: Request) -> bool:
    about = request.body.get("client_metadata")
    return '"request_kind":"compaction"' in str(about)


# ------------------------------------------------------------------------------- real transcripts


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
        async with CodexRig.open(root, version, lambda _: say("read"), tools=None) as rig:
            journal = await rig.journal()
            native = journal.state.native_id
            await journal.transcript_appended("imported", {f"{native}.jsonl": lines}, offset=0)
            await rig.world.release(SESSION, journal.state.epoch)
            state = await rig.say("what did we do?")
            assert state.turns["m-1"].status == "completed", (name, state.turns["m-1"].reason)
            assert [line.kind for line in rig.provider.ledger.tally().lines].count("refused") == 0, name
            items = len(parse(lines)[0])
            assert len(cast(list[object], rig.requests[-1].body["input"])) >= items, name
