"""Subagents with the real OpenCode: their calls are gated and told like any other, and a death in their
middle costs nothing that was done."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness_durable.policy import CANCELLED, NOT_STARTED, UNKNOWN
from harness_durable.testing.provider import Policy, Reply, Request, Text, ToolUse, say
from harness_durable.testing.provider.messages import results
from harness_durable.testing.provider.policies.simple import Script
from tests.harness.rig import Rig, running
from tests.harness.rigs import OpenCodeRig, some, thorough, versions

pytestmark = [pytest.mark.slow, versions(OpenCodeRig)]

bash = OpenCodeRig.shell


ERRAND = "run the errand"
POINTS = ("model.completed:2", "tool.completed:1", "model.completed:4", "model.requested:5")
"""The first answer of the subagent, its first result, its last answer, and what comes after it."""


def errand(call: str = "call_task", kind: str = "general", prompt: str = ERRAND, **more: object) -> ToolUse:
    given: dict[str, object] = {"description": "errand", "prompt": prompt, "subagent_type": kind, **more}
    return ToolUse("task", given, id=call)


def story(main: Script, inner: Script) -> Policy:
    """Two conversations: that of the session, and that of whoever is sent on an errand."""

    def policy(request: Request) -> Reply:
        first = next(message for message in request.messages if message.role == "user")
        return (inner if ERRAND in str(first.content) else main)(request)

    return policy


STEPS = Script(
    (
        Reply((Text("first"), bash("echo one >> a; echo ONE", "call_1"))),
        Reply((bash("echo two >> a; echo TWO", "call_2"),)),
        say("the errand is done"),
    )
)


def told(rig: Rig) -> str:
    """What the session's own model was told about the errand."""
    return rig.seen("call_task")


@thorough
async def test_a_subagent_works_behind_the_same_barrier(tmp_path: Path, version: str) -> None:
    main = Script((Reply((errand(),)), say("all is done"), say("and again")))
    async with OpenCodeRig.open(tmp_path, version, story(main, STEPS)) as rig:
        state = await rig.say("go")
        assert state.turns["m-1"].status == "completed"
        calls = state.tool_calls
        assert {call.outcome for call in calls.values()} == {"completed"}
        assert (calls["call_1"].agent, calls["call_task"].agent) == (calls["call_2"].agent, None)
        assert calls["call_1"].agent is not None
        assert "<task_result>\nthe errand is done\n</task_result>" in told(rig)
        assert await rig.result_of("call_task", state) == told(rig)
        offered = {tool.name for tool in rig.requests[1].tools}
        assert "bash" in offered
        assert not {"task", "todowrite"} & offered
        assert len(state.transcripts) == 2
        assert (await rig.say("more", "m-2")).turns["m-2"].status == "completed"
        assert "the errand is done" in told(rig)
        assert rig.paid() == 6


@pytest.mark.parametrize("death", some(("machine",), "harness"))
@pytest.mark.parametrize("at", some(POINTS[1:2], *POINTS[:1], *POINTS[2:]))
async def test_a_subagent_goes_on_in_its_own_middle(
    tmp_path: Path, version: str, at: str, death: str
) -> None:
    main = Script((Reply((errand(),)), say("all is done")))
    async with OpenCodeRig.open(tmp_path, version, story(main, STEPS)) as rig:
        await rig.go()
        await rig.crashed(at, death)
        state = await rig.finished()
        assert state.turns["m-1"].status == "completed"
        assert (rig.workspace / "a").read_text().split() == ["one", "two"]
        assert [call.outcome for call in state.tool_calls.values()] == ["completed"] * 3
        assert "<task_result>\nthe errand is done\n</task_result>" in told(rig)
        statuses = [call.status for call in state.model_calls.values()]
        assert statuses.count("completed") == 5
        assert 5 <= rig.paid() <= 5 + statuses.count("lost")


async def test_what_was_cut_off_within_it_is_told_to_it_call_by_call(tmp_path: Path, version: str) -> None:
    batch = Reply((bash("echo QUICK", "call_q"), bash("echo slow >> a; sleep 60", "call_s")))
    main = Script((Reply((errand(), bash("echo BESIDE", "call_b"))), say("all is done")))
    policy = story(main, Script((batch, say("I have looked"))))
    async with OpenCodeRig.open(tmp_path, version, policy) as rig:
        await rig.go()
        process = rig.worker()
        await rig.until(
            lambda state: (
                running("call_s")(state)
                and not any(state.tool_calls[call].open for call in ("call_q", "call_b"))
                and (rig.workspace / "a").exists()
            )
        )
        await rig.kill(process)
        state = await rig.finished()
        assert state.turns["m-1"].status == "completed"
        inner = next(results(r) for r in reversed(rig.requests) if "call_s" in results(r))
        assert (inner["call_q"].text, inner["call_s"].text) == ("QUICK\n", UNKNOWN)
        assert "I have looked" in told(rig)
        assert rig.seen("call_b") == "BESIDE\n"
        assert (rig.workspace / "a").read_text() == "slow\n"
        assert rig.paid() == 4


@thorough
async def test_a_sibling_that_never_ran_is_said_not_to_have_started(tmp_path: Path, version: str) -> None:
    """Nobody allowed it before the death, and the answer of which it is part is not given again."""
    main = Script((Reply((errand(), bash("echo b >> b", "call_b"))), say("all is done")))
    inner = Script((Reply((ToolUse("glob", {"pattern": "*"}, id="call_g"),)), say("I have looked")))
    async with OpenCodeRig.open(tmp_path, version, story(main, inner), permission_mode="ask") as rig:
        await rig.go()
        process = rig.worker(RIG_PERMISSION="ask")
        await rig.until(lambda state: "call_b" in state.permissions and running("call_g")(state))
        await rig.kill(process)
        await rig.answer("call_b")
        state = await rig.finished()
        assert state.turns["m-1"].status == "completed"
        assert state.tool_calls["call_b"].outcome == "not_started"
        assert rig.seen("call_b") == NOT_STARTED
        assert not (rig.workspace / "b").exists()
        assert "I have looked" in told(rig)


@thorough
async def test_its_command_survives_the_worker(tmp_path: Path, version: str) -> None:
    inner = Script((Reply((bash("echo a >> a; sleep 5; echo slept", "call_1"),)), say("I slept")))
    main = Script((Reply((errand(),)), say("all is done")))
    async with OpenCodeRig.open(tmp_path, version, story(main, inner)) as rig:
        await rig.go()
        process = rig.worker()
        await rig.until(lambda _: (rig.workspace / "a").exists())
        await rig.kill(process, life=False)
        state = await rig.finished()
        assert (state.turns["m-1"].status, len(state.lives)) == ("completed", 1)
        assert {call.outcome for call in state.tool_calls.values()} == {"completed"}
        assert "I slept" in told(rig)
        assert rig.paid() == 4


@thorough
async def test_a_stop_reaches_a_subagent_that_was_taken_up_again(tmp_path: Path, version: str) -> None:
    """In the first life one command is cut off; in the second one the stop cuts off the next."""
    first, second = bash("echo a > a; sleep 60", "call_1"), bash("echo b > b; sleep 60", "call_2")
    inner = Script((Reply((first,)), Reply((second,)), say("not asked for")))
    main = Script((Reply((errand(),)), say("what happened?")))
    async with OpenCodeRig.open(tmp_path, version, story(main, inner)) as rig:
        await rig.go()
        process = rig.worker()
        await rig.until(lambda _: (rig.workspace / "a").exists())
        await rig.kill(process)
        heir = rig.worker()
        await rig.until(lambda _: (rig.workspace / "b").exists())
        await rig.stop()
        state = await rig.ended(heir)
        assert state.turns["m-1"].status == "cancelled"
        outcomes = {call: known.outcome for call, known in state.tool_calls.items()}
        assert outcomes == {"call_task": "cancelled", "call_1": "unknown", "call_2": "cancelled"}
        state = await rig.next()
        assert state.turns["m-2"].status == "completed"
        assert told(rig) == CANCELLED


@thorough
async def test_a_person_who_is_asked_by_a_subagent_may_answer_while_nobody_works(
    tmp_path: Path, version: str
) -> None:
    inner = Script((Reply((bash("echo a >> a", "call_1"),)), say("it was allowed")))
    main = Script((Reply((errand(),)), say("all is done")))
    async with OpenCodeRig.open(tmp_path, version, story(main, inner), permission_mode="ask") as rig:
        await rig.go()
        await rig.crashed("permission.asked", "machine")
        assert set((await rig.state()).permissions) == {"call_1"}
        await rig.answer("call_1")
        state = await rig.finished()
        assert state.turns["m-1"].status == "completed"
        assert set(state.permissions) == {"call_1"}
        assert (rig.workspace / "a").read_text() == "a\n"
        assert "it was allowed" in told(rig)
        assert rig.paid() == 4


@thorough
async def test_a_later_turn_can_go_on_with_a_subagent_of_an_earlier_one(tmp_path: Path, version: str) -> None:
    """By the id that the model was told. Its session is in each life."""

    def policy(request: Request) -> Reply:
        mine = [message for message in request.messages if message.role == "user"]
        if ERRAND in str(mine[0].content):
            return say(f"errand number {len(mine)}")
        known = results(request)
        if "call_task" not in known:
            return Reply((errand(),))
        if len(mine) > 1 and "call_again" not in known:
            number = known["call_task"].text.split('"')[1]
            return Reply((errand("call_again", task_id=number),))
        return say("done")

    async with OpenCodeRig.open(tmp_path, version, policy) as rig:
        await rig.say("go")
        assert "errand number 1" in told(rig)
        state = await rig.say("go on", "m-2")
        assert state.turns["m-2"].status == "completed"
        assert "errand number 2" in rig.seen("call_again")
        assert len(state.transcripts) == 2
