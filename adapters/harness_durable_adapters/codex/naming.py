"""Names that must be the same in every life, so that recovery finds what is there already."""

from __future__ import annotations

import uuid

PROVIDER = "durable"
"""What the gateway is called in the harness's configuration."""

PREFIX = "durable_"
"""Begins the names of custom tools: the harness has tools of its own, and a name must not be taken twice."""

_SPACE = uuid.UUID("7a4f6f0e-3a53-5d0c-8a0e-55d0d5b1c0de")


def custom_tool(tool: str) -> str:
    """How the model sees a custom tool."""
    return f"{PREFIX}{tool}"


def is_custom(name: str) -> bool:
    return name.startswith(PREFIX)


def plain(name: str) -> str:
    """The custom tool's own name."""
    return name.removeprefix(PREFIX)


def message_number(native: str, message: str) -> str:
    """What a message is known by at the harness."""
    return str(uuid.uuid5(_SPACE, f"{native}/message/{message}"))


def transcript_file(native: str) -> str:
    """The conversation, as the log names it."""
    return f"{native}.jsonl"
