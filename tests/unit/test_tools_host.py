"""The tool host against a real journal: gates, joins, outcomes, and what becomes of calls cut off."""

from __future__ import annotations

import queue
import threading
from collections.abc import Awaitable, Callable, Sequence

import anyio
import anyio.to_thread
import pytest

from harness_durable import policy
from harness_durable.errors import BadTool, StorageUnavailable, WriterFenced
from harness_durable.events import ReplayPolicy
from harness_durable.journal import Inbox, Journal
from harness_durable.state import ToolCall
from harness_durable.tools import NOT_HAPPENED, UNSURE, Tool, ToolContext, tool
from harness_durable.tools import host as hosting
from harness_durable.tools.host import ToolHost
from harness_durable.tools.results import ToolResult
from tests.unit.memory_world import OTHER, MemoryWorld
from tests.unit.session_kit import asked, begun, host, kinds, life, seen, taken

CALL = b'{"version": "1"}'


class Effects:
    """What tools did, and a probe that knows."""

    def __init__(self) -> None:
        self.seen: list[tuple[str, str]] = []
        self.answer: object = UNSURE

    def deploy(self, replay: ReplayPolicy = "never", *, probe: bool = False) -> Tool:
        async def deploy(version: str, ctx: ToolContext) -> str:
            self.seen.append((version, ctx.key))
            return f"deployed {version}"

        async def ask(version: str, key: str) -> object:
            if isinstance(self.answer, Exception):
                raise self.answer
            return self.answer

        return tool(replay=replay, probe=ask if probe else None)(deploy)


async def cut_off(
    replay: ReplayPolicy = "never", *, probe: bool = False
) -> tuple[MemoryWorld, Journal, Effects, Tool]:
    """A call c1 that was released in life L1 by a worker that is gone; driven by the next worker now."""
    world, effects = MemoryWorld(), Effects()
    journal = await begun(world)
    deploy = effects.deploy(replay, probe=probe)
    await asked(journal, ("c1", "deploy", {"version": "1"}), policy=replay)
    await journal.tool_gate("c1", "L1", key="s:first:c1")
    return world, await taken(world, OTHER), effects, deploy


def call(journal: Journal, call_id: str = "c1") -> ToolCall:
    return journal.state.tool_calls[call_id]


async def test_a_call_is_released_then_run_then_recorded() -> None:
    world, effects = MemoryWorld(), Effects()
    journal = await begun(world)
    await asked(journal, ("c1", "deploy", {"version": "1"}))
    result = await host(journal, [effects.deploy()]).call("c1", "deploy", CALL)
    assert result == ToolResult("deployed 1", False)
    assert await kinds(world) == ["tool.requested", "tool.released", "tool.completed"]
    assert (call(journal).outcome, call(journal).source) == ("completed", "host")


async def test_a_finished_call_gets_its_recorded_result_and_does_not_run() -> None:
    world, effects = MemoryWorld(), Effects()
    journal = await begun(world)
    await asked(journal, ("c1", "deploy", {"version": "1"}))
    first = await host(journal, [effects.deploy()]).call("c1", "deploy", CALL)
    again = await host(await taken(world, OTHER), [effects.deploy()], "L2").call("c1", "deploy", CALL)
    assert again == first
    assert len(effects.seen) == 1


async def test_the_same_id_joins_a_run_that_is_going_on() -> None:
    """C053, C059: one run, one release in the log."""
    world, gate, runs = MemoryWorld(), anyio.Event(), list[str]()
    journal = await begun(world)

    @tool(replay="safe")
    async def slow() -> str:
        runs.append("x")
        await gate.wait()
        return "done"

    await asked(journal, ("c1", "slow", {}), policy="safe")
    tools, results = host(journal, [slow]), list[ToolResult]()

    async def ask() -> None:
        results.append(await tools.call("c1", "slow", b"{}"))

    async with anyio.create_task_group() as group:
        for _ in range(3):
            group.start_soon(ask)
        await anyio.wait_all_tasks_blocked()
        gate.set()
    assert results == [ToolResult("done", False)] * 3
    assert runs == ["x"]
    assert (await kinds(world)).count("tool.released") == 1


async def test_each_result_of_a_parallel_batch_is_recorded_by_itself() -> None:
    world, journal_gate = MemoryWorld(), anyio.Event()
    journal = await begun(world)

    @tool(replay="never")
    async def step(n: int) -> int:
        if n > 2:
            await journal_gate.wait()
        return n

    await asked(journal, *((f"c{n}", "step", {"n": n}) for n in range(1, 5)))
    tools = host(journal, [step])
    async with anyio.create_task_group() as group:
        for n in range(1, 5):
            group.start_soon(tools.call, f"c{n}", "step", b'{"n": %d}' % n)
        await anyio.wait_all_tasks_blocked()
        # This is what a crash now would leave.
        seen_by_next = (await taken(world, OTHER)).state.tool_calls
        assert [seen_by_next[f"c{n}"].outcome for n in range(1, 5)] == ["completed", "completed", None, None]
        group.cancel_scope.cancel()


@pytest.mark.parametrize("replay", ["safe", "idempotent"])
async def test_a_cut_off_call_that_may_run_again_does_so_with_the_same_key(replay: ReplayPolicy) -> None:
    world, journal, effects, deploy = await cut_off(replay)
    await host(journal, [deploy], "L2").settle(call(journal), "run")
    assert effects.seen == [("1", "s:first:c1")]
    assert (call(journal).outcome, call(journal).source) == ("completed", "recovery")
    assert await kinds(world) == ["tool.requested", "tool.released", "tool.released", "tool.completed"]


@pytest.mark.parametrize("answer", [UNSURE, ValueError("the service is down")])
async def test_a_probe_that_cannot_tell_makes_the_outcome_unknown(answer: object) -> None:
    _, journal, effects, deploy = await cut_off(probe=True)
    effects.answer = answer
    await host(journal, [deploy], "L2").settle(call(journal), "probe")
    assert effects.seen == []
    assert (call(journal).outcome, policy.told(call(journal))) == ("unknown", policy.UNKNOWN)


async def test_a_probe_that_found_the_result_completes_the_call() -> None:
    _, journal, effects, deploy = await cut_off(probe=True)
    effects.answer = "deployed 1 earlier"
    await host(journal, [deploy], "L2").settle(call(journal), "probe")
    assert (call(journal).outcome, call(journal).source) == ("completed", "probe")
    assert policy.told(call(journal)) == "deployed 1 earlier"
    assert effects.seen == []


async def test_a_call_that_certainly_did_not_happen_runs_now() -> None:
    _, journal, effects, deploy = await cut_off(probe=True)
    effects.answer = NOT_HAPPENED
    await host(journal, [deploy], "L2").settle(call(journal), "probe")
    assert effects.seen == [("1", "s:first:c1")]
    assert (call(journal).outcome, call(journal).source) == ("completed", "recovery")


async def test_in_a_stopped_turn_a_call_that_did_not_happen_is_not_run_either() -> None:
    world, journal, effects, deploy = await cut_off(probe=True)
    await (await Inbox.open(world, "s")).request_stop("anna")
    await journal.still_ours()
    effects.answer = NOT_HAPPENED
    await host(journal, [deploy], "L2").settle(call(journal), "probe")
    assert effects.seen == []
    assert call(journal).outcome == "not_started"


async def test_the_crash_points_stand_right_before_and_after_the_function(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    journal, order = await begun(MemoryWorld()), list[str]()

    @tool(replay="never")
    async def work() -> None:
        order.append("work")

    def reach(point: str) -> None:
        known = journal.state.tool_calls["c1"]
        order.append(f"{point}: {'released' if known.released_in else '-'}, {known.outcome}")

    await asked(journal, ("c1", "work", {}))
    monkeypatch.setattr(hosting, "reach", reach)
    await host(journal, [work]).call("c1", "work", b"{}")
    assert order == ["tool.running: released, None", "work", "tool.effect_done: released, None"]


async def test_an_outcome_is_written_although_its_caller_goes_away_meanwhile() -> None:
    """C097: the outcome of an effect is written whoever is cancelled."""
    world, gate = MemoryWorld(), anyio.Event()
    journal = await begun(world)

    @tool(replay="never")
    async def work() -> str:
        world.between = gate.wait
        return "done"

    await asked(journal, ("c1", "work", {}))
    async with anyio.create_task_group() as group:
        group.start_soon(host(journal, [work]).call, "c1", "work", b"{}")
        await anyio.wait_all_tasks_blocked()
        group.cancel_scope.cancel()
        gate.set()
    assert call(journal).outcome == "completed"


async def test_a_plain_function_around_an_async_one_is_awaited() -> None:
    journal = await begun(MemoryWorld())

    async def inner() -> str:
        return "done"

    @tool(replay="safe")
    def outer() -> Awaitable[str]:
        return inner()

    await asked(journal, ("c1", "outer", {}), policy="safe")
    assert (await host(journal, [outer]).call("c1", "outer", b"{}")).text == "done"


async def test_a_second_caller_takes_over_when_the_first_goes_away_and_nothing_runs_twice() -> None:
    journal, results = await begun(MemoryWorld()), list[ToolResult]()
    tools, _ = slow_tools("never", None)
    await asked(journal, ("c1", "waits", {}))
    rig = host(journal, tools)

    async def second() -> None:
        results.append(await rig.call("c1", "waits", b"{}"))

    async with anyio.create_task_group() as outer, anyio.create_task_group() as first:
        first.start_soon(rig.call, "c1", "waits", b"{}")
        await anyio.wait_all_tasks_blocked()
        outer.start_soon(second)
        await anyio.wait_all_tasks_blocked()
        first.cancel_scope.cancel()
    assert results == [ToolResult(policy.UNKNOWN, True)]
    assert call(journal).releases == 1


async def test_a_call_that_was_never_released_is_settled_by_running_it() -> None:
    world, effects = MemoryWorld(), Effects()
    journal = await begun(world)
    await asked(journal, ("c1", "deploy", {"version": "1"}))
    await host(journal, [effects.deploy()], "L2").settle(call(journal), "run")
    assert len(effects.seen) == 1
    assert await kinds(world) == ["tool.requested", "tool.released", "tool.completed"]


async def test_settling_twice_runs_once() -> None:
    """C053, C059: the effect happens once."""
    _, journal, effects, deploy = await cut_off("idempotent")
    tools = host(journal, [deploy], "L2")
    await tools.settle(call(journal), "run")
    await tools.settle(call(journal), "run")
    assert len(effects.seen) == 1


@pytest.mark.parametrize("where", ["L1", "L2"])
async def test_a_cut_off_never_call_that_reaches_the_host_first_does_not_run(where: str) -> None:
    """C058: what is delivered again without an outcome is unknown."""
    _, journal, effects, deploy = await cut_off()
    result = await host(journal, [deploy], where).call("c1", "deploy", CALL)
    assert result == ToolResult(policy.UNKNOWN, True)
    assert effects.seen == []
    assert call(journal).outcome == "unknown"


@pytest.mark.parametrize(("stored", "today"), [("never", "safe"), ("safe", "never")])
async def test_the_stricter_of_the_two_policies_counts(stored: ReplayPolicy, today: ReplayPolicy) -> None:
    _, journal, effects, _ = await cut_off(stored)
    await host(journal, [effects.deploy(today)], "L2").call("c1", "deploy", CALL)
    assert effects.seen == []
    assert call(journal).outcome == "unknown"


async def test_the_first_identical_repeat_of_an_unknown_call_is_refused_and_the_second_runs() -> None:
    world, journal, effects, deploy = await cut_off()
    await journal.tool_closed("c1", "unknown", policy.UNKNOWN)
    await life(journal, "L2")
    await asked(journal, ("c2", "deploy", b'{"version":"1"}'))
    await asked(journal, ("c3", "deploy", {"version": "1"}))
    tools = host(journal, [deploy], "L2")
    assert await tools.call("c2", "deploy", CALL) == ToolResult(policy.REFUSED, True)
    assert effects.seen == []
    assert await tools.call("c3", "deploy", CALL) == ToolResult("deployed 1", False)
    assert "tool.refused" in await kinds(world)


async def test_a_call_that_the_log_does_not_know_never_runs() -> None:
    world, effects = MemoryWorld(), Effects()
    journal = await begun(world)
    result = await host(journal, [effects.deploy()]).call("zz", "deploy", CALL)
    assert result.is_error
    assert "not in the log" in result.text
    assert effects.seen == []


async def test_an_id_that_belongs_to_another_tools_call_does_not_run() -> None:
    world, effects = MemoryWorld(), Effects()
    journal = await begun(world)
    await asked(journal, ("c1", "search", {}))
    result = await host(journal, [effects.deploy()]).call("c1", "deploy", CALL)
    assert result.is_error
    assert effects.seen == []
    assert call(journal).outcome == "failed"


async def test_a_tool_that_is_gone_leaves_a_cut_off_call_unknown() -> None:
    _, journal, _, _ = await cut_off("safe")
    await host(journal, [], "L2").settle(call(journal), "run")
    assert call(journal).outcome == "unknown"


def boom() -> str:
    raise RuntimeError("no such branch")


def leave() -> str:
    raise SystemExit(3)


async def cancels_itself() -> str:
    raise anyio.get_cancelled_exc_class()


@pytest.mark.parametrize(
    ("function", "text"),
    [
        (boom, "RuntimeError: no such branch"),
        (leave, "SystemExit: 3"),
        (cancels_itself, "RuntimeError: the tool was cancelled from within"),
    ],
)
async def test_a_tool_that_raises_fails_its_call_only(function: Callable[[], object], text: str) -> None:
    journal = await begun(MemoryWorld())
    declared = tool(replay="never", name="t")(function)
    await asked(journal, ("c1", "t", {}))
    result = await host(journal, [declared]).call("c1", "t", b"")
    assert result == ToolResult(text, True)
    assert call(journal).outcome == "failed"


async def test_trouble_with_the_log_is_never_shown_to_the_model() -> None:
    world, effects = MemoryWorld(), Effects()
    journal = await begun(world)

    @tool(replay="never")
    async def fills_the_disk() -> str:
        world.fail_next = 10_000
        return "done"

    await asked(journal, ("c1", "fills_the_disk", {}), ("c2", "deploy", {"version": "1"}))
    tools = host(journal, [fills_the_disk, effects.deploy()])
    with pytest.raises(StorageUnavailable):
        await tools.call("c1", "fills_the_disk", b"{}")
    with pytest.raises(StorageUnavailable):
        await tools.call("c2", "deploy", CALL)
    assert effects.seen == []  # no effect without its record


async def test_a_worker_that_was_superseded_runs_nothing_more() -> None:
    world, effects = MemoryWorld(), Effects()
    journal = await begun(world)
    await asked(journal, ("c1", "deploy", {"version": "1"}))
    await taken(world, OTHER)
    with pytest.raises(WriterFenced):
        await host(journal, [effects.deploy()]).call("c1", "deploy", CALL)
    assert effects.seen == []


async def test_an_outcome_is_written_after_a_short_failure_of_the_store() -> None:
    """C058: written again until it is stored, and the work is not done again."""
    world, runs = MemoryWorld(), list[str]()
    journal = await begun(world)

    @tool(replay="never")
    async def flaky() -> str:
        runs.append("x")
        world.fail_next = 1
        return "done"

    await asked(journal, ("c1", "flaky", {}))
    assert await host(journal, [flaky]).call("c1", "flaky", b"{}") == ToolResult("done", False)
    assert runs == ["x"]
    assert (await kinds(world)).count("tool.completed") == 1


async def test_integers_that_the_harness_rounded_are_taken_from_the_log() -> None:
    journal, got = await begun(MemoryWorld()), list[int]()

    @tool(replay="safe")
    def look(id: int) -> int:  # noqa: A002 (the model's word)
        got.append(id)
        return id

    await asked(journal, ("c1", "look", b'{"id": 9007199254740993001}'))
    result = await host(journal, [look]).call("c1", "look", b'{"id": 9007199254740993000}')
    assert got == [9007199254740993001]
    assert result.text == "9007199254740993001"


async def test_arguments_that_a_hook_changed_are_the_ones_that_run() -> None:
    world, effects = MemoryWorld(), Effects()
    journal = await begun(world)
    await asked(journal, ("c1", "deploy", {"version": "1"}))
    await host(journal, [effects.deploy()]).call("c1", "deploy", b'{"version": "2"}')
    assert [version for version, _ in effects.seen] == ["2"]


async def test_keys_differ_between_calls_and_between_sessions_of_the_same_name() -> None:
    keys: set[str] = set()
    for _ in range(2):
        effects, journal = Effects(), await begun(MemoryWorld())
        await asked(journal, ("c1", "deploy", {"version": "1"}), ("c2", "deploy", {"version": "1"}))
        tools = host(journal, [effects.deploy()])
        await tools.call("c1", "deploy", CALL)
        await tools.call("c2", "deploy", CALL)
        keys.update(key for _, key in effects.seen)
    assert len(keys) == 4
    assert all(key.startswith("s:") for key in keys)


async def test_what_is_wrong_with_arguments_is_told_and_nothing_runs() -> None:
    effects, journal = Effects(), await begun(MemoryWorld())
    await asked(journal, ("c1", "deploy", {"versoin": "1"}))
    result = await host(journal, [effects.deploy()]).call("c1", "deploy", b'{"versoin": "1"}')
    assert result.is_error
    assert "version: Field required" in result.text
    assert effects.seen == []
    assert call(journal).outcome == "failed"


async def test_names_policies_probes_and_specs_are_those_that_each_side_knows() -> None:
    effects, journal = Effects(), await begun(MemoryWorld())
    tools = host(journal, [effects.deploy(probe=True)])
    assert tools.policies == {seen("deploy"): "never"}
    assert tools.probes == {seen("deploy")}
    assert [spec["name"] for spec in tools.specs()] == ["deploy"]


async def test_two_tools_of_one_name_are_refused() -> None:
    effects, journal = Effects(), await begun(MemoryWorld())
    with pytest.raises(BadTool, match="same name"):
        host(journal, [effects.deploy(), effects.deploy()])


# ------------------------------------------------------------------------------ stopping, time limits


def slow_tools(replay: ReplayPolicy, timeout: float | None) -> tuple[Sequence[Tool], threading.Event]:
    """An async and a sync tool that wait; the event lets the sync one go on."""
    go = threading.Event()

    @tool(replay=replay, timeout=timeout)
    async def waits() -> str:
        await anyio.sleep_forever()
        return "never"

    @tool(replay=replay, timeout=timeout)
    def blocks() -> str:
        go.wait(20)
        return "never"

    return (waits, blocks), go


@pytest.mark.parametrize("name", ["waits", "blocks"])
@pytest.mark.parametrize(
    ("replay", "outcome"), [("safe", "failed"), ("idempotent", "unknown"), ("never", "unknown")]
)
async def test_a_time_limit_fails_a_safe_call_and_leaves_others_unknown(
    name: str, replay: ReplayPolicy, outcome: str
) -> None:
    """C061: what may have had its effect is unknown and is never tried again by itself."""
    journal = await begun(MemoryWorld())
    tools, go = slow_tools(replay, 0.02)
    await asked(journal, ("c1", name, {}), policy=replay)
    result = await host(journal, tools).call("c1", name, b"{}")
    go.set()
    assert call(journal).outcome == outcome
    assert result.is_error
    assert ("timed out after 0.02 s" in result.text) == (outcome == "failed")


async def stopped(tools: ToolHost, name: str) -> ToolResult:
    results: list[ToolResult] = []

    async def ask() -> None:
        results.append(await tools.call("c1", name, b"{}"))

    async with anyio.create_task_group() as group:
        group.start_soon(ask)
        await anyio.wait_all_tasks_blocked()
        await tools.cancel("c1")
    return results[0]


async def test_a_call_that_is_stopped_is_cancelled() -> None:
    journal = await begun(MemoryWorld())
    tools, _ = slow_tools("never", None)
    await asked(journal, ("c1", "waits", {}))
    assert await stopped(host(journal, tools), "waits") == ToolResult(policy.CANCELLED, True)
    assert call(journal).outcome == "cancelled"


async def test_a_stopped_call_whose_thread_goes_on_is_unknown_and_its_repeat_refused_once() -> None:
    journal = await begun(MemoryWorld())
    tools, go = slow_tools("never", None)
    await asked(journal, ("c1", "blocks", {}))
    assert await stopped(host(journal, tools), "blocks") == ToolResult(policy.UNKNOWN, True)
    await asked(journal, ("c2", "blocks", {}))
    assert await host(journal, tools).call("c2", "blocks", b"{}") == ToolResult(policy.REFUSED, True)
    go.set()


async def test_a_tool_that_finishes_in_spite_of_the_stop_is_completed() -> None:
    journal = await begun(MemoryWorld())

    @tool(replay="never")
    async def stubborn() -> str:
        try:
            await anyio.sleep_forever()
        finally:
            return "the money is gone"  # noqa: B012 (it swallows the cancellation on purpose)

    await asked(journal, ("c1", "stubborn", {}))
    assert await stopped(host(journal, [stubborn]), "stubborn") == ToolResult("the money is gone", False)


async def test_a_call_whose_caller_is_gone_stays_open_for_recovery() -> None:
    journal = await begun(MemoryWorld())
    tools, _ = slow_tools("never", None)
    await asked(journal, ("c1", "waits", {}))
    async with anyio.create_task_group() as group:
        group.start_soon(host(journal, tools).call, "c1", "waits", b"{}")
        await anyio.wait_all_tasks_blocked()
        group.cancel_scope.cancel()
    assert call(journal).open
    assert call(journal).released_in == "L1"


async def test_not_happened_is_not_believed_while_a_thread_is_still_at_the_call() -> None:
    journal, go, runs = await begun(MemoryWorld()), threading.Event(), queue.Queue[bool]()

    def ask() -> object:
        return NOT_HAPPENED

    @tool(replay="never", probe=ask)
    def pay(ctx: ToolContext) -> str:
        go.wait(20)
        runs.put(ctx.cancelled)
        return "paid"

    await asked(journal, ("c1", "pay", {}))
    async with anyio.create_task_group() as group:
        group.start_soon(host(journal, [pay]).call, "c1", "pay", b"{}")
        await anyio.wait_all_tasks_blocked()
        group.cancel_scope.cancel()
    await host(journal, [pay], "L2").settle(call(journal), "probe")
    assert call(journal).outcome == "unknown"
    go.set()
    assert await anyio.to_thread.run_sync(lambda: runs.get(timeout=20)) is True


async def test_progress_reaches_the_owner_from_tasks_and_threads() -> None:
    journal, told = await begun(MemoryWorld()), list[tuple[str, str]]()

    @tool(replay="safe")
    def sync_work(ctx: ToolContext) -> None:
        ctx.progress("half")

    @tool(replay="safe")
    async def async_work(ctx: ToolContext) -> None:
        ctx.progress("whole")

    await asked(journal, ("c1", "sync_work", {}), ("c2", "async_work", {}))
    tools = ToolHost(
        [sync_work, async_work],
        journal,
        "s",
        "L1",
        custom_name=seen,
        progress=lambda call_id, text: told.append((call_id, text)),
    )
    await tools.call("c1", "sync_work", b"{}")
    await tools.call("c2", "async_work", b"{}")
    assert told == [("c1", "half"), ("c2", "whole")]
