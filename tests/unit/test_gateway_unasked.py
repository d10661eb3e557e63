"""Calls that a harness runs without asking: released with their response, and never given out twice."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import anyio
import pytest

from harness_durable import recovery
from harness_durable.errors import HarnessStuck, WriterFenced
from harness_durable.gateway import asking, server
from harness_durable.journal import Inbox
from harness_durable.testing.provider import Reply, ScriptedProvider, Text, ToolUse
from harness_durable.world import Record
from tests.unit.gateway_kit import Rig, body, gateway, until
from tests.unit.memory_world import OTHER, MemoryWorld
from tests.unit.session_kit import SESSION, life, taken

SHELL, ASKED = ToolUse("Shell", id="toolu_1"), ToolUse("Bash", id="toolu_2")
RELEASED = "tool.released"


class Died(Exception):
    """Stands for the death of the worker."""


def provider(*tools: ToolUse) -> ScriptedProvider:
    return ScriptedProvider(lambda _: Reply((Text("I do it."), *(tools or (SHELL,)))), check=False)


async def ended(rig: Rig) -> None:
    with anyio.fail_after(20):
        await rig.ended.wait()


async def dead_while_forwarding(url: str, monkeypatch: pytest.MonkeyPatch) -> Rig:
    """A gateway whose worker died at ``model.forwarding``: the harness got no byte."""

    def reach(point: str) -> None:
        if point == "model.forwarding":
            raise Died

    with monkeypatch.context() as patched:
        patched.setattr(server, "reach", reach)
        async with gateway(url) as rig:
            sent = await rig.start(body())
            await ended(rig)
            got = await sent.response()
    assert isinstance(rig.failure, Died)
    assert got.raw == b""
    assert rig.kinds()[-1] == RELEASED, "before the harness gets anything"
    return rig


async def test_they_are_released_in_one_append_before_the_harness_has_their_response(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    appends: list[list[str]] = []
    append = MemoryWorld.append

    async def noted(world: MemoryWorld, session: str, *, records: Sequence[Record], **more: Any) -> None:
        appends.append([record.kind for record in records])
        await append(world, session, records=records, **more)

    async with provider(SHELL, ASKED, ToolUse("Shell", id="toolu_3")) as model, gateway(model.url) as rig:
        monkeypatch.setattr(MemoryWorld, "append", noted)
        got = await rig.ask(body())
        calls = rig.journal.state.tool_calls
    assert got.status == 200
    assert appends[-1] == [RELEASED, RELEASED]
    assert len(appends) == 3, "requested, completed, released"
    assert {name: (call.released_in, call.request) for name, call in calls.items()} == {
        "toolu_1": ("L1", 1),
        "toolu_2": (None, None),
        "toolu_3": ("L1", 1),
    }


async def test_a_response_whose_tools_all_ask_costs_no_further_append() -> None:
    tools = ASKED, ToolUse("mcp__dur__pay", id="toolu_3")
    async with provider(*tools) as model, gateway(model.url) as rig:
        await rig.ask(body())
    assert rig.kinds() == ["model.requested", "model.completed", "tool.requested", "tool.requested"]


async def test_the_next_worker_gives_the_held_request_the_same_response(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with provider() as model:
        dead = await dead_while_forwarding(model.url, monkeypatch)
        journal = await taken(dead.world, OTHER)
        alive = recovery.plan(journal.state, recovery.Facts(keeper_alive=True))
        async with gateway(model.url, journal=journal, world=dead.world) as rig:
            got = await rig.ask(body())
    assert [(call.call, call.action) for call in alive.calls] == [("toolu_1", "wait")]
    assert b"toolu_1" in got.body
    assert rig.kinds().count(RELEASED) == 1, "it is the same release"
    assert len(model.requests) == 1, "nothing is paid twice"


async def test_a_harness_that_asks_anew_may_be_running_them_so_its_life_is_given_up(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with provider() as model:
        dead = await dead_while_forwarding(model.url, monkeypatch)
        journal = await taken(dead.world, OTHER)
        async with gateway(model.url, journal=journal, world=dead.world) as rig:
            rig.count = 1  # so it is not the request that the keeper held
            sent = await rig.start(body())
            got = await sent.response()
            await ended(rig)
    assert isinstance(rig.failure, HarnessStuck)
    assert got.raw == b""
    assert len(model.requests) == 1


async def test_without_the_harness_they_are_unknown_and_their_response_is_never_given_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with provider() as model:
        dead = await dead_while_forwarding(model.url, monkeypatch)
        journal = await taken(dead.world, OTHER)
        plan = recovery.plan(journal.state, recovery.Facts(keeper_alive=False))
        await life(journal, "L2")
        async with gateway(model.url, journal=journal, world=dead.world, life="L2") as rig:
            got = await rig.ask(body())
    assert [(call.call, call.action) for call in plan.calls] == [("toolu_1", "unknown")]
    assert got.status == 403
    assert rig.kinds().count(RELEASED) == 1
    assert len(model.requests) == 1


async def test_one_that_is_safe_may_run_again_in_another_life(monkeypatch: pytest.MonkeyPatch) -> None:
    async with provider(ToolUse("Look", id="toolu_1")) as model:
        dead = await dead_while_forwarding(model.url, monkeypatch)
        journal = await taken(dead.world, OTHER)
        await life(journal, "L2")
        async with gateway(model.url, journal=journal, world=dead.world, life="L2") as rig:
            got = await rig.ask(body())
    assert b"toolu_1" in got.body
    assert journal.state.tool_calls["toolu_1"].released_in == "L2"
    assert journal.state.tool_calls["toolu_1"].releases == 2


async def test_one_that_has_run_means_that_the_harness_has_its_response(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with provider() as model:
        dead = await dead_while_forwarding(model.url, monkeypatch)
        journal = await taken(dead.world, OTHER)
        await journal.tool_finished("toolu_1", ok=True, result=b"ran", source="transcript")
        async with gateway(model.url, journal=journal, world=dead.world) as rig:
            await rig.ask(body())
    assert len(model.requests) == 2, "an equal request is another one then"


async def test_once_a_stop_was_asked_for_they_are_kept_back() -> None:
    async with provider() as model, gateway(model.url, ready=False) as rig:
        sent = await rig.start(body())
        await until(lambda: "model.completed" in rig.kinds())
        await (await Inbox.open(rig.world, SESSION)).request_stop("anna")
        await rig.journal.still_ours()
        rig.ready.set()
        got = await sent.response()
    assert got.status == 403
    assert "the turn is being stopped" in got.error["message"]
    assert RELEASED not in rig.kinds()


@pytest.mark.parametrize("tool", [SHELL, ASKED])
async def test_a_superseded_worker_that_wakes_up_starts_nothing(tool: ToolUse) -> None:
    async with provider(tool) as model, gateway(model.url, ready=False) as rig:
        sent = await rig.start(body())
        await until(lambda: "model.completed" in rig.kinds())
        await taken(rig.world, OTHER)
        rig.ready.set()  # the reply is settled in its memory
        got = await sent.response()
        if tool is SHELL:
            await ended(rig)
            assert isinstance(rig.failure, WriterFenced)
            assert got.raw == b""
        else:
            with pytest.raises(WriterFenced):
                await rig.journal.tool_gate(tool.id, "L1")
    assert RELEASED not in rig.kinds()


async def test_the_model_is_shown_an_outcome_only_once_it_is_in_the_log() -> None:
    """A harness may tell of outcomes by another way, which is read a moment later."""
    async with provider() as model, gateway(model.url) as rig:
        await rig.ask(body())
        sent = await rig.start(body("toolu_1 said: done"))
        await anyio.wait_all_tasks_blocked()
        assert rig.kinds()[-1] == RELEASED, "the request waits for the outcome"
        await rig.journal.tool_finished("toolu_1", ok=True, result=b"done", source="hook")
        await sent.response()
    kinds = rig.kinds()
    assert kinds.index("tool.completed") < kinds.index("model.requested", kinds.index(RELEASED))


async def test_an_outcome_that_never_comes_holds_nothing_up_for_good(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(asking, "_OUTCOME_SECONDS", 0.01)
    async with provider() as model, gateway(model.url) as rig:
        await rig.ask(body())
        await rig.ask(body("toolu_1 said: done"))
    assert len(model.requests) == 2


async def test_an_outcome_that_never_comes_is_waited_for_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """By the requests of a life together: one that is lost must not slow down each of them."""
    monkeypatch.setattr(asking, "_OUTCOME_SECONDS", 0.01)
    async with provider() as model, gateway(model.url) as rig:
        await rig.ask(body())
        await rig.ask(body("toolu_1 said: done"))
        monkeypatch.setattr(asking, "_OUTCOME_SECONDS", 3600)
        with anyio.fail_after(20):
            await rig.ask(body("toolu_1 said: done; go on"))
    assert len(model.requests) == 3


async def test_of_a_harness_that_has_died_no_outcome_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """The next life begins when all is drained."""
    monkeypatch.setattr(asking, "_OUTCOME_SECONDS", 3600)
    async with provider() as model, gateway(model.url) as rig:
        await rig.ask(body())
        sent = await rig.start(body("toolu_1 said: done"))
        await anyio.wait_all_tasks_blocked()
        assert len(model.requests) == 1, "the request waits for the outcome"
        with anyio.fail_after(20):
            await rig.gateway.drained()
            await sent.response()
    assert len(model.requests) == 2
