"""The model APIs that the scripted provider speaks, one file each."""

from __future__ import annotations

from harness_durable.testing.provider.wires.anthropic import Anthropic
from harness_durable.testing.provider.wires.chat import Chat
from harness_durable.testing.provider.wires.responses import Responses
from harness_durable.testing.provider.wires.wire import Answer, Wire

__all__ = ("WIRES", "Answer", "Wire", "at", "named")

WIRES: dict[str, Wire] = {wire.name: wire for wire in (Anthropic(), Responses(), Chat())}
"""By the names that the gateway's wires have."""


def at(path: str) -> Wire | None:
    """The wire whose model calls go to this path (without a query); None if there is none."""
    return next((wire for wire in WIRES.values() if path == wire.path), None)


def named(name: str) -> Wire:
    """The wire of that name, such as a log's ``model.requested`` has. Raises ``KeyError``."""
    return WIRES[name]
