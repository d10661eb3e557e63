"""Driving a Codex that has to sum up its conversation first, in a turn of its own: a double says it all."""

from __future__ import annotations

import json
from collections.abc import Sequence

import anyio
import pytest

from harness_durable.adapter import TurnEnd
from harness_durable.journal import Inbox, Journal
from harness_durable_adapters.codex import frames
from harness_durable_adapters.codex.naming import transcript_file
from harness_durable_adapters.codex.rollout import line_of
from harness_durable_adapters.common.shapes import Json
from tests.unit.memory_world import MemoryWorld
from tests.unit.session_kit import SESSION, begun
from tests.unit.test_claude_drive import until
from tests.unit.test_codex_drive import TURN, Codex, context, driven

SUMMING = "turn-0"
RUNNING = "Wall time: 1 seconds\nProcess running with session ID 7\nOutput:\n"


class Summing(Codex):
    """Begins to sum up when it is told to."""

    async def write(self, frame: bytes) -> None:
        await super().write(frame)
        said: Json = json.loads(frame)
        if said.get("method") == "thread/compact/start":
            self.say({"id": said.get("id"), "result": {}})
            self.say({"method": "turn/started", "params": {"turn": {"id": SUMMING}}})

    def summed_up(self, status: str = "completed") -> None:
        words: Json = {"role": "assistant", "content": [{"type": "output_text", "text": "SUMMARY"}]}
        item: Json = {"type": "message", **words}
        self.say({"method": "rawResponseItem/completed", "params": {"turnId": SUMMING, "item": item}})
        self.say({"method": "turn/completed", "params": {"turn": {"id": SUMMING, "status": status}}})

    def started(self) -> None:
        self.say({"method": "turn/started", "params": {"turn": {"id": TURN}}})

    def params(self, method: str) -> list[object]:
        return [frame.get("params") for frame in self.frames if frame.get("method") == method]


async def cut_off(*items: Json) -> Journal:
    """A journal whose last request, in the turn that goes on, asked to sum up these items."""
    journal = await begun(MemoryWorld())
    file = transcript_file(journal.state.native_id)
    await journal.transcript_appended("L0", {file: [line_of(item) for item in items]}, offset=0)
    await asked(journal, [*items, _said("now sum up")], "compaction")
    return journal


async def asked(journal: Journal, items: Sequence[Json], kind: str) -> None:
    about = json.dumps({"request_kind": kind})
    body: Json = {"model": "m", "input": list(items), "client_metadata": {"x-codex-turn-metadata": about}}
    await journal.model_requested(
        key=kind,
        life="L0",
        wire="openai-responses",
        model="m",
        path="/v1/responses",
        body=json.dumps(body).encode(),
        field="input",
        agent=None,
    )


def _said(text: str) -> Json:
    return {"type": "message", "role": "user", "content": [{"type": "input_text", "text": text}]}


def _left_running() -> list[Json]:
    call: Json = {"type": "function_call", "call_id": "c0", "name": "exec_command", "arguments": "{}"}
    return [_said("go"), call, {"type": "function_call_output", "call_id": "c0", "output": RUNNING}]


async def test_the_conversation_is_summed_up_before_the_turn_goes_on_and_what_is_new_comes_after() -> None:
    journal, double = await cut_off(*_left_running()), Summing()
    async with driven(context(journal, "continue"), double) as ends:
        await until(lambda: "thread/compact/start" in double.methods())
        assert "turn/start" not in double.methods()
        double.summed_up()
        await until(lambda: "turn/start" in double.methods())
        double.end()
    given = double.params("thread/inject_items")
    assert double.methods()[-4:] == [
        "thread/inject_items",
        "thread/compact/start",
        "thread/inject_items",
        "turn/start",
    ]
    assert "are gone with their process (session 7)" in str(given[1])
    assert "are gone" not in str(given[0]), "the recorded summary would not fit"
    assert ends == [TurnEnd("completed", text="done")]
    lines = [line async for line in journal.transcript_lines(transcript_file(journal.state.native_id))]
    assert b"SUMMARY" not in b"".join(lines)


async def test_one_that_cannot_sum_up_goes_on_as_it_is() -> None:
    journal, double = await cut_off(_said("go")), Summing()
    async with driven(context(journal, "continue"), double) as ends:
        await until(lambda: "thread/compact/start" in double.methods())
        double.summed_up("failed")
        await until(lambda: "turn/start" in double.methods())
        double.end()
    assert [end.kind for end in ends] == ["completed"]


async def test_a_takeover_tells_the_turn_of_the_summary_from_the_turn_that_goes_on() -> None:
    journal, first = await cut_off(_said("go")), Summing()
    async with driven(context(journal, "continue"), first):
        await until(lambda: "thread/compact/start" in first.methods())
        first.summed_up()
        await until(lambda: "turn/start" in first.methods())
        before = len(first.output_bytes)
        first.started()
        first.end()
    second = Summing(bytes(first.heard))
    second.output_bytes = first.output_bytes[:before]
    async with driven(context(journal, "attach"), second) as ends:
        second.started()
        second.end()
    assert ends == [TurnEnd("completed", text="done")]
    assert second.methods() == first.methods(), "nothing was said again"


async def test_a_takeover_waits_for_a_summary_that_is_under_way() -> None:
    journal, first = await cut_off(_said("go")), Summing()
    async with driven(context(journal, "continue"), first):
        await until(lambda: "thread/compact/start" in first.methods())
        before = bytes(first.heard), first.output_bytes
        first.summed_up()
        await until(lambda: "turn/start" in first.methods())
        first.end()
    second = Summing(before[0])
    second.output_bytes = before[1]
    async with driven(context(journal, "attach"), second) as ends:
        second.summed_up()
        await until(lambda: "turn/start" in second.methods())
        second.end()
    assert [end.kind for end in ends] == ["completed"]
    assert second.methods().count("thread/compact/start") == 1


@pytest.mark.parametrize("status", ["interrupted", "completed"])
async def test_a_stop_while_it_sums_up_ends_the_turn(status: str) -> None:
    journal, double = await cut_off(_said("go")), Summing()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(journal.watch)
        async with driven(context(journal, "continue"), double) as ends:
            await until(lambda: "thread/compact/start" in double.methods())
            await (await Inbox.open(journal.reader.world, SESSION)).request_stop("Ann")
            await until(lambda: "turn/interrupt" in double.methods())
            double.summed_up(status)
        assert ends == [TurnEnd("cancelled", reason="Ann asked for a stop")]
        tasks.cancel_scope.cancel()
    assert double.params("turn/interrupt") == [{"threadId": "thread-1", "turnId": SUMMING}]
    assert "turn/start" not in double.methods()


async def test_a_summary_of_which_the_model_knows_already_is_not_asked_for_again() -> None:
    journal, double = await cut_off(_said("go")), Summing()
    await asked(journal, [_said("go"), _said("SUMMARY")], "turn")
    async with driven(context(journal, "continue"), double):
        await until(lambda: "turn/start" in double.methods())
        double.end()
    assert frames.SUM_UP not in {frame.get("id") for frame in double.frames}
