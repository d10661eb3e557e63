"""Names that must be the same in every life, so that recovery finds what is there already."""

from __future__ import annotations

import uuid

PROVIDER = "durable"
"""What the gateway is called in the harness's configuration."""

_SPACE = uuid.UUID("7a4f6f0e-3a53-5d0c-8a0e-55d0d5b1c0de")


def message_number(native: str, message: str) -> str:
    """What a message is known by at the harness."""
    return str(uuid.uuid5(_SPACE, f"{native}/message/{message}"))


def transcript_file(native: str) -> str:
    """The conversation, as the log names it."""
    return f"{native}.jsonl"
