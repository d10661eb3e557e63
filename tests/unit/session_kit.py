"""Hand-made sessions: a journal in a turn, with calls that a model asked for."""

from __future__ import annotations

import json
from collections.abc import Sequence

from harness_durable.events import AgentSpec, ReplayPolicy, ToolOrigin
from harness_durable.journal import Inbox, Journal
from harness_durable.journal.calls import Asked, Response
from harness_durable.sandbox import LifeRef
from harness_durable.tools import Tool
from harness_durable.tools.host import ToolHost
from harness_durable.world import Owner, World
from tests.unit.memory_world import OWNER, MemoryWorld

AGENT = AgentSpec("claude-code", "2.1.0", "model-x", "local", "/ws")
SESSION = "s"


def seen(name: str) -> str:
    return f"mcp__dur__{name}"


async def begun(world: World) -> Journal:
    """A session whose first turn is running in life L1."""
    inbox = await Inbox.create(world, SESSION, AGENT)
    await inbox.accept("m-1", "do it")
    journal = await taken(world, OWNER)
    await journal.turn_started("m-1")
    await life(journal, "L1")
    return journal


async def taken(world: World, owner: Owner) -> Journal:
    """Driven by this owner from now on, whoever had it."""
    await world.register(owner)
    return await Journal.open(world, await world.claim_session(owner, SESSION, take_over=True), patience=0.2)


async def life(journal: Journal, name: str) -> None:
    ref = LifeRef(sandbox="local", life=name, run_dir="run", host="here")
    await journal.life_started(ref, "m-1", "2.1.0")


async def asked(
    journal: Journal,
    *calls: tuple[str, str, object],
    policy: ReplayPolicy = "never",
    origin: ToolOrigin = "custom",
    agent: str | None = None,
) -> None:
    """One response that asks for these calls: id, the tool's plain name, arguments (bytes are kept raw)."""
    model = await journal.model_requested(
        key="k", life="L1", wire="anthropic", model="x", path="/", body=b"{}", field="messages", agent=agent
    )
    tools = tuple(
        Asked(
            id,
            seen(name) if origin == "custom" else name,
            arguments if isinstance(arguments, bytes) else json.dumps(arguments).encode(),
            policy,
            origin,
        )
        for id, name, arguments in calls  # noqa: A001 (the word for it)
    )
    await journal.model_completed(model, Response(200, "application/json", b"{}", tools=tools))


def host(journal: Journal, tools: Sequence[Tool], life: str = "L1") -> ToolHost:
    return ToolHost(tools, journal, SESSION, life, custom_name=seen)


async def kinds(world: MemoryWorld, prefix: str = "tool.") -> list[str]:
    return [record.kind for record in await world.read(SESSION) if record.kind.startswith(prefix)]
