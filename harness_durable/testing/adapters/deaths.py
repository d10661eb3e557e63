"""Checks with a death: of the worker alone, of its harness with it, of the machine."""

from __future__ import annotations

from harness_durable.policy import UNKNOWN
from harness_durable.testing.adapters.bench import MESSAGE, Bench, NotOffered, expect
from harness_durable.testing.adapters.turns import CALL, LONG, one_call, released, runs

_REQUEST_AGAIN = "the turn was begun anew instead of continued: the model was paid {} times, not twice"


async def nothing_runs_before_its_release(bench: Bench) -> str:
    bench.policy = runs(bench, bench.marks("t"))
    await bench.crash("tool.requested", "harness")
    expect(bench.effects() == [], "a call ran before it was released")
    state = await bench.finish()
    expect(state.tool_calls[CALL].outcome in ("completed", "not_started"), "a call that never ran is lost")
    return await bench.close()


async def a_lost_release_is_unknown(bench: Bench) -> str:
    """It was released, and never ran: nobody can know that."""
    bench.policy = runs(bench, bench.marks("t"))
    await bench.crash("tool.released", "harness")
    expect(bench.effects() == [], "a call ran before its release was durable")
    return await _told_unknown(bench, [])


async def a_call_that_is_cut_off_is_unknown(bench: Bench) -> str:
    bench.policy = runs(bench, f"{bench.marks('t')}; sleep {LONG}; {bench.marks('late')}")
    worker = await bench.begin()
    await bench.until(lambda state: released(state) and bench.effects() == ["t"], "a running command")
    await bench.kill(worker, life=True)
    return await _told_unknown(bench, ["t"])


async def a_custom_tool_that_is_cut_off_is_unknown(bench: Bench) -> str:
    if not bench.adapter.capabilities.custom_tools:
        raise NotOffered
    bench.policy = one_call(lambda _: bench.custom("t", CALL))
    await bench.crash("tool.effect_done", "harness")
    return await _told_unknown(bench, ["t"])


async def _told_unknown(bench: Bench, effects: list[str]) -> str:
    """The call is not repeated, and the model is told once that nobody knows what became of it."""
    state = await bench.finish()
    outcome = state.tool_calls[CALL].outcome
    expect(outcome == "unknown", f"the outcome of a call that was cut off is {outcome}")
    expect(bench.effects() == effects, f"{bench.effects()} happened instead of {effects}")
    expect(UNKNOWN in bench.seen(CALL), f"the model is told {bench.seen(CALL)[:200]!r} instead")
    expect(bench.paid() == 2, _REQUEST_AGAIN.format(bench.paid()))
    return await bench.close()


async def a_result_outlives_the_machine(bench: Bench) -> str:
    bench.policy = runs(bench, f"{bench.marks('t')}; echo it is done")
    await bench.crash("tool.completed", "machine")
    state = await bench.finish()
    expect(state.tool_calls[CALL].outcome == "completed", "a recorded result is lost")
    expect(bench.effects() == ["t"], f"the call ran {len(bench.effects())} times")
    expect("it is done" in bench.seen(CALL), "the model does not see the recorded result")
    expect(bench.paid() == 2, _REQUEST_AGAIN.format(bench.paid()))
    return await bench.close()


async def a_command_outlives_its_worker(bench: Bench) -> str:
    bench.policy = runs(bench, f"{bench.marks('t')}; sleep 3; echo it is done")
    worker = await bench.begin()
    await bench.until(lambda state: released(state) and bench.effects() == ["t"], "a running command")
    await bench.kill(worker, life=False)
    state = await bench.finish()
    expect(len(state.lives) == 1, f"there were {len(state.lives)} lives")
    expect(state.tool_calls[CALL].outcome == "completed", "the command's result is lost")
    expect("it is done" in bench.seen(CALL), "the model does not see the command's result")
    expect(bench.effects() == ["t"], f"the call ran {len(bench.effects())} times")
    return await bench.close()


async def a_persons_no_outlives_who_asked(bench: Bench) -> str:
    bench.policy = runs(bench, bench.marks("t"))
    await bench.crash("permission.asked", "harness", "--ask")
    expect(bench.effects() == [], "a call ran before a person allowed it")
    asked = list((await bench.state()).permissions)
    expect(len(asked) == 1, f"{len(asked)} questions are recorded")
    await (await bench.inbox()).answer(asked[0], allow=False, by="the check", reason="not today")
    state = await bench.finish()
    expect(list(state.permissions) == asked, "the person was asked again")
    expect(bench.effects() == [], "a call ran although a person did not allow it")
    outcome = state.tool_calls[CALL].outcome
    expect(outcome == "not_started", f"the outcome of a call that was not allowed is {outcome}")
    expect("not today" in str(bench.requests[-1].body), "the model is not told why it did not run")
    expect(state.turns[MESSAGE].status == "completed", "the turn did not go on")
    return await bench.close()
