"""Whole turns with each real harness: tools, custom tools, permissions, stops, steers, further messages.

What only one of them does is in a file of its own."""

from __future__ import annotations

from pathlib import Path

import anyio
import pytest

from harness_durable import tool
from harness_durable.policy import CANCELLED, STOPPED
from harness_durable.testing.provider import HttpError, Reply, Request, Text, say
from harness_durable.testing.provider.messages import last_user_text, results
from harness_durable.testing.provider.policies.simple import Script
from tests.harness.rig import does, running
from tests.harness.rigs import FULL, QUICK, RIGS, ClaudeRig, CodexRig, Kind, OpenCodeRig, PiRig, each

pytestmark = pytest.mark.slow


@each(short=RIGS)
async def test_a_message_is_answered_and_its_tools_are_recorded(tmp_path: Path, kind: Kind) -> None:
    """The message is one that a harness could take for an order to itself."""
    use = kind.rig.shell("echo out; sleep 0.5; echo err >&2", "call_1")  # two pipes keep no order
    async with kind.open(tmp_path, Script((does(Text("I look"), use), say("done")))) as rig:
        state = await rig.say(rig.texts[0])
        assert last_user_text(rig.requests[0]).strip() == rig.texts[0]
        turn = state.turns["m-1"]
        assert (turn.status, turn.text and turn.text.text) == ("completed", "done"), turn.reason
        call = state.tool_calls["call_1"]
        assert (call.outcome, call.releases) == ("completed", 1)
        for heard in (rig.seen("call_1"), await rig.result_of("call_1", state)):
            assert rig.printed(heard, "out\nerr")
        assert state.messages["m-1"].status == "delivered"


@each()
async def test_calls_that_never_run_are_not_said_to_have_run(tmp_path: Path, kind: Kind) -> None:
    calls, words = kind.rig.mistakes
    async with kind.open(tmp_path, Script((does(*calls), say("done")))) as rig:
        state = await rig.say("go")
        assert {call.outcome for call in state.tool_calls.values()} == {"not_started"}
        assert all(call.released_in is None for call in state.tool_calls.values())
        assert words in await rig.result_of(calls[-1].id, state)
        assert words in rig.seen(calls[-1].id)


@each(ClaudeRig, CodexRig, PiRig)
async def test_a_failed_command_is_a_failed_call(tmp_path: Path, kind: Kind) -> None:
    script = Script((does(kind.rig.shell("echo no; exit 3", "call_1")), say("done")))
    async with kind.open(tmp_path, script) as rig:
        state = await rig.say("go")
        assert state.tool_calls["call_1"].outcome == "failed"
        told = await rig.result_of("call_1", state)
        assert "no" in told
        assert "3" in told


@each()
async def test_custom_tools_run_in_the_worker_once(tmp_path: Path, kind: Kind) -> None:
    ran: list[str] = []

    @tool(replay="never")
    def deploy(version: str, times: int = 1) -> str:
        """Deploy."""
        ran.append(f"{version} {times}")
        if times > 1:
            raise ValueError("too often")
        return f"deployed {version}"

    own = kind.rig.own
    use, bad = own("deploy", "call_1", version="7"), own("deploy", "call_2", version="7", times=2)
    async with kind.open(tmp_path, Script((does(use), does(bad), say("done")))) as rig:
        rig.tools = (deploy,)
        state = await rig.say("deploy it")
        assert ran == ["7 1", "7 2"]
        assert (state.tool_calls["call_1"].outcome, rig.seen("call_1")) == ("completed", "deployed 7")
        assert state.tool_calls["call_2"].outcome == "failed"
        assert "too often" in results(rig.requests[-1])["call_2"].text
        offered = {tool.name: tool for tool in rig.requests[0].tools}
        assert offered[use.name].takes("times")
        assert "durable_barrier" not in offered


@each(ClaudeRig, OpenCodeRig, PiRig)
async def test_a_second_message_goes_on_with_the_same_conversation(tmp_path: Path, kind: Kind) -> None:
    """Each turn is a life of its own, and all have the binary that the session began with."""
    first = does(Text(" a "), kind.rig.shell("echo hi", "call_1"))
    async with kind.open(tmp_path, Script((first, say("one"), say("two")))) as rig:
        await rig.say("first")
        state = await rig.say("second", "m-2")
        assert [turn.status for turn in state.turns.values()] == ["completed", "completed"]
        said = [text.strip() for text in rig.texts_of_last()]
        assert [text for text in said if text in ("first", "one", "second")] == ["first", "one", "second"]
        assert not any("No response requested" in text for text in said)
        assert rig.printed(rig.seen("call_1"), "hi")
        assert [life.harness_version for life in state.lives.values()] == [kind.version] * 2
        assert rig.paid() == 3


TEXTS = [
    pytest.param(Kind(rig, version), text, id=f"{rig.pinned.name}-{version}-{text}")
    for rig in (RIGS if FULL else QUICK)
    for version in (rig.pinned.supported if FULL else rig.pinned.supported[:1])
    for text in (rig.texts if FULL else rig.texts[1:3])
]


@pytest.mark.parametrize(("kind", "text"), TEXTS)
async def test_every_text_reaches_the_model(tmp_path: Path, kind: Kind, text: str) -> None:
    """Once, and also in the turn after it."""
    async with kind.open(tmp_path, Script((say("read"), say("again")))) as rig:
        await rig.say(text)
        state = await rig.say("and now?", "m-2")
        assert state.turns["m-2"].status == "completed"
        assert last_user_text(rig.requests[-1]) == "and now?"
        assert [one.strip() for one in rig.texts_of_last()].count(text.strip()) == 1


@each()
async def test_a_steer_reaches_the_running_turn(tmp_path: Path, kind: Kind) -> None:
    slow = kind.rig.shell("sleep 2; echo slept", "call_1")
    async with kind.open(tmp_path, Script((does(slow), *[say("done")] * 2))) as rig:
        await rig.go()
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(rig.work)
            await rig.until(running("call_1"))
            await rig.steer("/look left")
        state = await rig.state()
        assert state.messages["s-1"].status == "delivered"
        assert list(state.turns) == ["m-1"]
        assert state.turns["m-1"].status == "completed"
        assert [text.strip() for text in rig.texts_of_last()].count("/look left") == 1


@each(short=RIGS)
async def test_c044_a_stop_ends_the_turn_and_the_next_one_knows_what_ran(tmp_path: Path, kind: Kind) -> None:
    """The next request has a result for each call."""
    both = does(kind.rig.shell("echo a > a; sleep 60", "call_1"), kind.rig.behind("call_2"))
    async with kind.open(tmp_path, Script((both, say("after")))) as rig:
        await rig.go()
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(rig.work)
            await rig.until(running("call_1"))
            await rig.stop()
        state = await rig.state()
        assert state.turns["m-1"].status == "cancelled"
        assert state.tool_calls["call_1"].outcome == "cancelled"
        assert not any(call.open for call in state.tool_calls.values())
        state = await rig.say("and now?", "m-2")
        assert state.turns["m-2"].status == "completed"
        assert rig.seen("call_1") == CANCELLED
        if rig.supplies:
            assert rig.seen("call_2") == STOPPED
            assert not (rig.workspace / "b").exists()
        heard = str(rig.requests[-1].body)
        assert "doesn't want to proceed" not in heard
        assert heard.count("it was stopped before its end, because Ann asked for a stop") == 1


@each(short=RIGS)
async def test_c067_a_person_is_asked_before_what_is_not_safe(tmp_path: Path, kind: Kind) -> None:
    """The answer comes through the log, by the call's id."""
    bash = kind.rig.shell
    two = does(bash("echo a > a", "call_1")), does(bash("echo b > b", "call_2")), say("done")
    async with kind.open(tmp_path, Script(two), permission_mode="ask") as rig:
        await rig.go()
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(rig.work)
            await rig.until(lambda state: "call_1" in state.permissions)
            assert not (rig.workspace / "a").exists()
            await rig.answer("call_1")
            await rig.until(lambda state: "call_2" in state.permissions)
            await rig.answer("call_2", "not today", allow=False)
        state = await rig.state()
        assert state.turns["m-1"].status == "completed"
        assert (rig.workspace / "a").exists()
        assert not (rig.workspace / "b").exists()
        assert state.tool_calls["call_2"].outcome == "not_started"
        assert "not today" in str(rig.requests[-1].body)
        assert (len(state.lives), rig.paid()) == (1, 3)


@each(short=(PiRig,))
async def test_a_stop_reaches_a_call_that_waits_for_a_person(tmp_path: Path, kind: Kind) -> None:
    script = Script((does(kind.rig.shell("echo a > a", "call_1")), say("after")))
    async with kind.open(tmp_path, script, permission_mode="ask") as rig:
        await rig.go()
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(rig.work)
            await rig.until(lambda state: "call_1" in state.permissions)
            await rig.stop()
        state = await rig.state()
        assert (state.turns["m-1"].status, len(state.lives)) == ("cancelled", 1)
        assert state.tool_calls["call_1"].outcome == "not_started"
        await rig.say("and now?", "m-2")
        assert rig.seen("call_1") == STOPPED


@each(short=RIGS)
async def test_c041_an_api_error_fails_the_turn_with_its_code(tmp_path: Path, kind: Kind) -> None:
    def refuse(_: Request) -> Reply:
        return Reply(faults=(HttpError(401, message="no such key"),))

    async with kind.open(tmp_path, refuse) as rig:
        state = await rig.say("go")
        assert (state.turns["m-1"].status, state.turns["m-1"].code) == ("failed", "api_401")


@each(OpenCodeRig, PiRig)
async def test_a_provider_that_is_busy_is_asked_again_by_the_harness(tmp_path: Path, kind: Kind) -> None:
    script = Script((does(kind.rig.shell("echo hi", "call_1")), say("done")))
    failures = [HttpError(529, message="busy")]

    def policy(request: Request) -> Reply:
        return Reply(faults=(failures.pop(),)) if failures else script(request)

    async with kind.open(tmp_path, policy) as rig:
        state = await rig.say("go")
        assert state.turns["m-1"].status == "completed"
        assert [call.status for call in state.model_calls.values()].count("failed") == 1
        assert len(state.lives) == 1
