"""Custom tools on the Worlds that ship: a worker dies with calls in flight, the next one settles them."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator
from pathlib import Path

import pytest

from harness_durable.recovery import Facts, plan
from harness_durable.tools import NOT_HAPPENED, tool
from harness_durable.tools.host import ToolHost
from harness_durable.tools.results import ToolResult
from harness_durable.world import World
from harness_durable.worlds import open_world
from tests.unit.memory_world import OTHER, OWNER
from tests.unit.session_kit import asked, begun, host, taken

ODD = "NUL \0, CRLF \r\n, 9007199254740993001, 😀 "


@pytest.fixture(params=["file", "sqlite"])
async def world(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncGenerator[World]:
    opened = await open_world(f"{request.param}:{tmp_path / 'world'}")
    yield opened
    await opened.aclose()


async def test_a_crash_in_a_batch_repeats_nothing_that_must_not_be_repeated(world: World) -> None:
    runs: list[str] = []

    def probe(name: str) -> object:
        return {"happened": "it did", "did-not": NOT_HAPPENED}[name]

    @tool(replay="never", probe=probe)
    async def pay(name: str) -> str:
        runs.append(name)
        return name

    @tool(replay="safe")
    def look(name: str) -> str:
        runs.append(name)
        return name

    journal = await begun(world)
    names = ("done", "happened", "did-not", "fresh")
    await asked(
        journal, *((name, "pay", {"name": name}) for name in names), ("reading", "look", {"name": "reading"})
    )
    await host(journal, [pay, look]).call("done", "pay", b'{"name":"done"}')
    for cut in ("happened", "did-not", "reading"):
        await journal.tool_gate(cut, "L1", key=cut)

    await world.unregister(OWNER)  # known to be gone: else a probe's "not happened" would prove nothing
    journal = await taken(world, OTHER)
    tools = host(journal, [pay, look], "L2")
    # "reading" was stored as never, as all of this response; the stricter of the two policies counts.
    facts = Facts(keeper_alive=False, policies=tools.policies, probes=tools.probes)
    await settle_all(tools, facts)
    assert runs == ["done", "did-not", "fresh"]
    outcomes = {name: call.outcome for name, call in journal.state.tool_calls.items()}
    assert outcomes == {
        "done": "completed",
        "happened": "completed",
        "did-not": "completed",
        "fresh": "completed",
        "reading": "unknown",
    }
    assert await tools.call("happened", "pay", b'{"name":"happened"}') == ToolResult("it did", False)


async def settle_all(tools: ToolHost, facts: Facts) -> None:
    """As the driver does."""
    for found in plan(tools.journal.state, facts).calls:
        match found.action:
            case "run" | "probe":
                await tools.settle(tools.journal.state.tool_calls[found.call], found.action)
            case _:
                await tools.journal.tool_closed(found.call, "unknown", "x")


@pytest.mark.parametrize("times", [1, 20_000])
async def test_odd_and_large_results_are_the_same_for_the_next_worker(world: World, times: int) -> None:
    """C107: NUL and the rest come back on every World, in keys and values."""
    got: list[dict[str, str]] = []

    @tool(replay="never")
    def dump(many: dict[str, str]) -> str:
        got.append(many)
        return ODD * times

    arguments = {"many": {ODD: ODD * times}}
    journal = await begun(world)
    await asked(journal, ("c1", "dump", arguments))
    first = await host(journal, [dump]).call("c1", "dump", json.dumps(arguments).encode())
    successor = await taken(world, OTHER)
    again = await host(successor, [dump], "L2").call("c1", "dump", b"{}")
    assert again == first == ToolResult(ODD * times, False)
    assert got == [arguments["many"]]
    kept = await successor.reader.content(successor.state.tool_calls["c1"].input)
    assert json.loads(kept) == arguments
