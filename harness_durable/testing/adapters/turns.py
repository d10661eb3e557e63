"""Checks without a death: what is declared, turns, calls, a stop, a steer, a person's answer."""

from __future__ import annotations

from collections.abc import Callable
from typing import get_args

from harness_durable.events import ReplayPolicy
from harness_durable.gateway import wire
from harness_durable.state import Session
from harness_durable.testing.adapters.bench import MESSAGE, Bench, NotOffered, expect
from harness_durable.testing.provider import Policy, Reply, Request, Text, ToolUse, say
from harness_durable.testing.provider.messages import results, user_text

CALL = "toolu_check1"
"""The call that a check is about."""
LONG = 60
"""Seconds that a command would go on if nobody ended it."""


def one_call(use: Callable[[Request], ToolUse]) -> Policy:
    """A model that makes one call, and has the last word when it was told what came of it."""

    def policy(request: Request) -> Reply:
        return say("done") if CALL in results(request) else Reply((Text("I do it"), use(request)))

    return policy


def runs(bench: Bench, command: str) -> Policy:
    """One call of the shell."""
    return one_call(lambda request: bench.shell(request, command, CALL))


def released(state: Session) -> bool:
    return CALL in state.tool_calls and state.tool_calls[CALL].released_in is not None


async def what_is_declared_fits(bench: Bench) -> str:
    adapter = bench.adapter
    expect(adapter.name == bench.subject.adapter, f"it is registered under another name than {adapter.name}")
    wire(adapter.wire)
    expect(bool(adapter.versions), "it names no tested version")
    wrong = {name: held for name, held in adapter.policies.items() if held not in get_args(ReplayPolicy)}
    expect(not wrong, f"these are no replay policies: {wrong}")
    names = {adapter.custom_name(name) for name in ("one", "two")}
    expect(len(names) == 2, "two custom tools have the same name for the model")
    harness = await adapter.find()
    again = await adapter.find(harness.version)
    expect(again.version == harness.version, "a session that is pinned to this version would get another")
    return f"{adapter.name} {harness.version}"


async def what_it_relies_on_holds(bench: Bench) -> str:
    troubles = await bench.adapter.check()
    expect(not troubles, "; ".join(troubles))
    return "its own check found nothing"


async def a_conversation_goes_on(bench: Bench) -> str:
    bench.policy = lambda request: say(f"{sum(bool(user_text(one)) for one in request.messages)} heard")
    first = await bench.finish("first words")
    expect(first.messages[MESSAGE].status == "delivered", "the message is not recorded as delivered")
    await bench.finish("second words", message="m-2")
    said = "\n".join(user_text(one) for one in bench.requests[-1].messages)
    expect(said.count("first words") == 1, "the first message is not once in the second request")
    expect(said.count("second words") == 1, "the second message is not once in its request")
    return await bench.close()


async def a_call_is_recorded(bench: Bench) -> str:
    bench.policy = runs(bench, f"{bench.marks('t')}; echo it is done")
    state = await bench.finish()
    call = state.tool_calls[CALL]
    expect(call.outcome == "completed", f"the outcome of a command is {call.outcome}")
    expect(released(state), "the call was never released")
    expect(bench.effects() == ["t"], f"its effect happened {len(bench.effects())} times")
    expect("it is done" in bench.seen(CALL), "the model does not see its result")
    expect("it is done" in await bench.recorded(CALL), "the log does not have its result")
    return await bench.close()


async def a_custom_tool_runs_here(bench: Bench) -> str:
    if not bench.adapter.capabilities.custom_tools:
        raise NotOffered
    bench.policy = one_call(lambda _: bench.custom("t", CALL))
    state = await bench.finish()
    call = state.tool_calls[CALL]
    expect(bench.effects() == ["t"], f"its effect happened {len(bench.effects())} times")
    expect(
        (call.origin, call.policy) == ("custom", "never"), f"it is recorded as {call.origin}/{call.policy}"
    )
    expect((call.outcome, call.source) == ("completed", "host"), f"the log says {call.outcome}/{call.source}")
    expect(await bench.recorded(CALL) == "did t", "the log does not have its result")
    expect("did t" in bench.seen(CALL), "the model does not see its result")
    return await bench.close()


async def a_stop_is_heeded(bench: Bench) -> str:
    if not bench.adapter.capabilities.stop:
        raise NotOffered
    bench.policy = runs(bench, f"{bench.marks('t')}; sleep {LONG}; {bench.marks('late')}")
    worker = await bench.begin()
    await bench.until(lambda state: released(state) and bench.effects() == ["t"], "a running command")
    await (await bench.inbox()).request_stop("the check")
    await bench.ended(worker, 1)
    state = await bench.state()
    expect(state.turns[MESSAGE].status == "cancelled", f"the turn is {state.turns[MESSAGE].status}")
    expect(state.tool_calls[CALL].outcome == "cancelled", f"the call is {state.tool_calls[CALL].outcome}")
    await bench.finish("go on", message="m-2")
    bench.seen(CALL)
    expect("late" not in bench.effects(), "the command went on")
    return await bench.close()


async def a_steer_arrives(bench: Bench) -> str:
    if not bench.adapter.capabilities.steer:
        raise NotOffered
    bench.policy = runs(bench, f"{bench.marks('t')}; sleep 2")
    worker = await bench.begin()
    await bench.until(lambda state: released(state) and bench.effects() == ["t"], "a running command")
    await (await bench.inbox()).accept("s-1", "look to the left", "steer")
    await bench.ended(worker, 0)
    state = await bench.state()
    expect(state.messages["s-1"].status == "delivered", "the steer is not recorded as delivered")
    said = "\n".join(str(one.content) for one in bench.requests[-1].messages)
    expect(said.count("look to the left") == 1, "the model does not read it once")
    return await bench.close()
