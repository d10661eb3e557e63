"""Coding agents that outlive their process, their container and their machine.

    from harness_durable import Durable, tool

    async with Durable.open() as durable:                      # HARNESS_DURABLE_WORLD
        agent = durable.agent("claude-code", tools=[deploy], workspace="./repo")
        session = await agent.session("ticket-42")             # created or found
        turn = await session.send("Fix the failing tests", message_id="m-1")
        print((await turn.result()).text)

Names are imported on first use, so that the command line starts quickly.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from harness_durable.errors import HarnessDurableError as HarnessDurableError
    from harness_durable.runtime.api import Agent as Agent
    from harness_durable.runtime.api import Durable as Durable
    from harness_durable.runtime.sessions import Session as Session
    from harness_durable.runtime.sessions import Turn as Turn
    from harness_durable.runtime.sessions import TurnResult as TurnResult
    from harness_durable.tools import NOT_HAPPENED as NOT_HAPPENED
    from harness_durable.tools import UNSURE as UNSURE
    from harness_durable.tools import Tool as Tool
    from harness_durable.tools import ToolContext as ToolContext
    from harness_durable.tools import tool as tool

_HOMES = {
    "Agent": "harness_durable.runtime.api",
    "Durable": "harness_durable.runtime.api",
    "HarnessDurableError": "harness_durable.errors",
    "NOT_HAPPENED": "harness_durable.tools",
    "Session": "harness_durable.runtime.sessions",
    "Tool": "harness_durable.tools",
    "ToolContext": "harness_durable.tools",
    "Turn": "harness_durable.runtime.sessions",
    "TurnResult": "harness_durable.runtime.sessions",
    "UNSURE": "harness_durable.tools",
    "tool": "harness_durable.tools",
}

__version__ = "0.1.0"

__all__ = (
    "NOT_HAPPENED",
    "UNSURE",
    "Agent",
    "Durable",
    "HarnessDurableError",
    "Session",
    "Tool",
    "ToolContext",
    "Turn",
    "TurnResult",
    "tool",
)


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        from importlib import import_module

        return getattr(import_module(_HOMES[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
