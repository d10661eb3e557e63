"""Names that must be the same in every life, so that recovery finds what is there already."""

from __future__ import annotations

import uuid
from pathlib import PurePosixPath

from harness_durable.gateway import anthropic as gateway

SERVER = "durable"
"""Our MCP server, which holds the custom tools."""

RESUME_SENTINEL = gateway.RESUME_SENTINEL
"""What the harness says to itself when it continues a turn; the gateway takes it out of every request."""

_SPACE = uuid.UUID("0f1a3c52-6d0e-5b7a-9c41-2f6f0a7de001")


def custom_tool(tool: str) -> str:
    """How the model sees a custom tool."""
    return f"mcp__{SERVER}__{tool}"


def is_custom(name: str) -> bool:
    return name.startswith(f"mcp__{SERVER}__")


def message_uuid(native: str, message: str) -> str:
    """The uuid of a message's line in the transcript."""
    return str(uuid.uuid5(_SPACE, f"{native}/message/{message}"))


def line_uuid(native: str, what: str) -> str:
    """The uuid of a line that we write ourselves. ``what`` says what it stands for."""
    return str(uuid.uuid5(_SPACE, f"{native}/line/{what}"))


def main_file(native: str) -> str:
    """The conversation's own transcript, as the log names it."""
    return f"{native}.jsonl"


def file_name(path: str, native: str) -> str:
    """How the log names a transcript file: from the session's id on, since the folders before it are named
    after the workspace's path, which another machine may not have."""
    parts = PurePosixPath(path).parts
    for place, part in enumerate(parts):
        if part in (native, main_file(native)):
            return "/".join(parts[place:])
    return "/".join(parts[-2:])
