"""What custom tools are called where the harness has no place of its own for them."""

from __future__ import annotations

PREFIX = "durable_"
"""Begins their names: one that the harness has itself would be taken for its own, or replace it."""


def custom_tool(tool: str) -> str:
    """How the model sees a custom tool."""
    return f"{PREFIX}{tool}"


def is_custom(name: str) -> bool:
    return name.startswith(PREFIX)


def plain(name: str) -> str:
    """The custom tool's own name."""
    return name.removeprefix(PREFIX)
