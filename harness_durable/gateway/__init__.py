"""The model endpoint that a harness is pointed at: the barrier in front of everything that costs or acts.

A ``Gateway`` stores a response before the harness gets a byte of it. What differs between providers is a
``Wire``; where requests go, and with which key, is an ``Upstream``."""

from __future__ import annotations

from harness_durable.errors import UnknownName
from harness_durable.gateway.anthropic import RESUME_SENTINEL, Anthropic
from harness_durable.gateway.asking import Classify, Kind
from harness_durable.gateway.openai_chat import Chat
from harness_durable.gateway.openai_responses import Responses
from harness_durable.gateway.progress import Progress
from harness_durable.gateway.routes import Routes
from harness_durable.gateway.server import Gateway
from harness_durable.gateway.upstream import Upstream
from harness_durable.gateway.way_out import WayOut
from harness_durable.gateway.wire import Wire

__all__ = (
    "RESUME_SENTINEL",
    "WIRES",
    "Classify",
    "Gateway",
    "Kind",
    "Progress",
    "Routes",
    "Upstream",
    "WayOut",
    "Wire",
    "wire",
)

WIRES: dict[str, Wire] = {known.name: known for known in (Anthropic(), Responses(), Chat())}
"""By the name that an adapter's ``wire`` gives. They keep no state, so one object serves everybody."""


def wire(name: str) -> Wire:
    """The wire of that name. Raises ``UnknownName``."""
    if name not in WIRES:
        raise UnknownName("wire", name, tuple(WIRES))
    return WIRES[name]
