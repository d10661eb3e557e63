"""What must be the same in every life of a session with a real Codex, and what its model may ask for."""

from __future__ import annotations

import json
from pathlib import Path

import anyio
import pytest

from harness_durable.testing.provider import Reply, Request, ToolUse, Usage, say
from harness_durable.testing.provider.messages import tool_calls
from harness_durable.testing.provider.policies.simple import Script
from harness_durable_adapters.common.shapes import objects
from tests.harness.rigs import CodexRig, versions

pytestmark = [pytest.mark.slow, versions(CodexRig)]

bash = CodexRig.bash

COLOUR = ToolUse(
    "request_user_input",
    {
        "questions": [
            {
                "id": name,
                "header": name,
                "question": f"Which {name}?",
                "options": [{"label": "red", "description": "r"}, {"label": "blue", "description": "b"}],
            }
            for name in ("door", "wall")
        ]
    },
    id="call_1",
)
ASKING = ("exec_command", "request_user_input")


async def test_a_provider_finds_in_its_cache_what_an_earlier_life_has_said(
    tmp_path: Path, version: str
) -> None:
    """All that the model was told in one life is how the next one begins, under the same name."""
    script = Script((Reply((bash("echo hi", "call_1"),)), say("one"), say("two")))
    async with CodexRig.open(tmp_path, version, script) as rig:
        skill = rig.workspace / ".agents" / "skills" / "mend" / "SKILL.md"
        skill.parent.mkdir(parents=True)
        skill.write_text("---\nname: mend\ndescription: mends what is broken\n---\nMend it.\n")
        await rig.say("first")
        state = await rig.say("second", "m-2")
        assert len(state.lives) == 2
        _, before, after = rig.requests
        assert before.body["prompt_cache_key"] == after.body["prompt_cache_key"] == state.native_id
        told, again = _texts(before), _texts(after)
        assert again[: len(told)] == told
        assert before.body["tools"] == after.body["tools"]
        assert "mends what is broken" in "".join(told), "the workspace's skills are offered"


def _texts(request: Request) -> list[str]:
    """The items as the model reads them: their ids are not shown to it."""
    kept = ("type", "role", "content", "name", "arguments", "call_id", "output")
    items = objects(request.body["input"])
    return [json.dumps({name: item.get(name) for name in kept}, sort_keys=True) for item in items]


@pytest.mark.parametrize("model", ["gpt-5.5", "gpt-6-sol"])
async def test_no_model_can_begin_an_agent_that_a_crash_would_lose(
    tmp_path: Path, version: str, model: str
) -> None:
    """Codex offers them by a search (gpt-5.5) or at once (the newer ones), unless it is told not to."""

    class Chosen(CodexRig):
        pass

    Chosen.model = model
    spawn = ToolUse("spawn_agent", {"message": "do it for me", "task_name": "helper"}, id="call_1")
    async with Chosen.open(tmp_path, version, Script((Reply((spawn,)), say("alone then")))) as rig:
        state = await rig.say("go")
        assert state.turns["m-1"].status == "completed", state.turns["m-1"].reason
        assert state.tool_calls["call_1"].outcome == "failed"
        assert rig.seen("call_1") == "unsupported call: spawn_agent"
        assert {call.agent for call in state.model_calls.values()} == {None}
        offered = json.dumps([request.body.get("tools") for request in rig.requests])
        assert "agent" not in offered.lower().replace("user-agent", "")


@pytest.mark.parametrize("death", ["worker", "machine"])
async def test_a_question_keeps_its_id_over_a_death_and_its_answers_reach_the_model(
    tmp_path: Path, version: str, death: str
) -> None:
    script = Script((Reply((COLOUR, bash("echo a >> a", "call_2"))), say("done")))
    async with CodexRig.open(tmp_path, version, script, tools=ASKING) as rig:
        await rig.go()
        await rig.crashed("permission.asked", death)
        assert list((await rig.state()).permissions) == ["call_1"]
        await rig.answer("call_1", "green\nblue")
        state = await rig.finished()
        assert state.turns["m-1"].status == "completed"
        assert json.loads(rig.seen("call_1")) == {
            "answers": {"door": {"answers": ["green"]}, "wall": {"answers": ["blue"]}}
        }
        assert {call.outcome for call in state.tool_calls.values()} == {"completed"}
        assert list(state.permissions) == ["call_1"]
        assert (rig.workspace / "a").read_text() == "a\n"
        assert rig.paid() == 2


async def test_answers_that_were_given_survive_the_harness(tmp_path: Path, version: str) -> None:
    script = Script((Reply((COLOUR, bash("echo a >> a; sleep 30", "call_2"))), say("done")))
    async with CodexRig.open(tmp_path, version, script, tools=ASKING) as rig:
        await rig.go()
        process = rig.worker()
        await rig.until(lambda state: "call_1" in state.permissions)
        await rig.answer("call_1", "red")
        await rig.until(lambda _: (rig.workspace / "a").exists())  # which Codex begins only now
        await rig.kill(process)
        state = await rig.finished()
        assert state.turns["m-1"].status == "completed"
        assert json.loads(rig.seen("call_1"))["answers"]["wall"] == {"answers": ["red"]}
        assert state.tool_calls["call_2"].outcome == "unknown"


async def test_a_model_of_code_mode_asks_people_in_the_same_way(tmp_path: Path, version: str) -> None:
    class Newest(CodexRig):
        model = "gpt-6-sol"

    async with Newest.open(tmp_path, version, Script((say("no question"),)), tools=ASKING) as rig:
        await rig.say("go")
        (offered,) = [{tool.name for tool in request.tools} for request in rig.requests]
        assert {name for name in offered if "user" in name} == {"request_user_input"}


async def test_nobody_has_to_answer_a_question(tmp_path: Path, version: str) -> None:
    async with CodexRig.open(tmp_path, version, Script((Reply((COLOUR,)), say("done"))), tools=ASKING) as rig:
        await rig.go()
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(rig.work)
            await rig.until(lambda state: "call_1" in state.permissions)
            await rig.answer("call_1", "you decide", allow=False)
        state = await rig.state()
        assert state.turns["m-1"].status == "completed"
        assert state.tool_calls["call_1"].outcome == "not_started"
        assert "on the call call_1: Ann did not allow this call: you decide" in str(rig.requests[-1].body)


@pytest.mark.parametrize("at", ["model.forwarding:1", "model.completed:1"])
async def test_a_summary_that_is_given_again_survives_the_worker_that_gives_it(
    tmp_path: Path, version: str, at: str
) -> None:
    """Dead once with everything, once alone: the harness sums up in a turn of its own, and the next worker
    does not take its end for the end of the turn, neither while it runs nor in the turn after it."""
    async with CodexRig.open(tmp_path, version, _fills_its_window) as rig:
        await rig.go()
        await rig.crashed("model.completed:3", "machine")
        await rig.crashed(at, "worker")
        state = await rig.finished()
        assert (state.turns["m-1"].status, len(state.lives)) == ("completed", 2)
        assert (rig.workspace / "a").read_text().split() == ["0", "1", "nine"]
        assert rig.paid() == 5


async def test_a_stop_ends_a_turn_whose_conversation_is_being_summed_up_again(
    tmp_path: Path, version: str
) -> None:
    asked = list[Request]()

    def policy(request: Request) -> Reply:
        if not request.tools and not asked:
            asked.append(request)
        elif not request.tools:
            return Reply(say("SUMMARY").blocks, start_delay=20.0)
        return _fills_its_window(request)

    async with CodexRig.open(tmp_path, version, policy) as rig:
        await rig.go()
        await rig.crashed("model.upstream_done:3", "machine")
        process = rig.worker()
        await rig.until(lambda state: len(state.model_calls) == 4)
        await rig.stop()
        state = await rig.ended(process)
        assert state.turns["m-1"].status == "cancelled"


def _fills_its_window(request: Request) -> Reply:
    if not request.tools:
        return say("SUMMARY of it all")
    calls, summed_up = tool_calls(request), "SUMMARY" in str(request.body["input"])
    if any("nine" in str(call.input) for call in calls):
        return say("end")
    if summed_up or len(calls) > 2:
        return Reply((bash("echo nine >> a"),))
    return Reply((bash(f"echo {len(calls)} >> a"),), usage=Usage(250_000 if calls else 1000, 10))
