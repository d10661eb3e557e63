"""Names that must be the same in every life, so that recovery finds what is there already."""

from __future__ import annotations

import hashlib
import uuid

COMMAND = "durable-continue"
"""The harness's command, from our extension, that goes on with a turn in its middle."""
LOST = "durable-lost"
"""The type of an entry of ours that keeps what the model is still to be told of damage."""
TITLE = "harness-durable"
"""Of the dialogs that are our extension's questions."""
MARK = "<durable:"
"""Before each message, with its number: so none is taken for a command, and each is known again."""

_SPACE = uuid.UUID("5f0d5a0e-6b1c-5e53-9d0c-0d1f6b8c7a11")


def message_number(native: str, message: str) -> str:
    """What a message is known by in the session file."""
    return str(uuid.uuid5(_SPACE, f"{native}/message/{message}"))


def marked(text: str, number: str) -> str:
    """A message as it is sent."""
    return f"{MARK}{number}>\n{text}"


def entry_id(native: str, what: str) -> str:
    """The id of an entry that we write ourselves. ``what`` says what it stands for."""
    return hashlib.sha256(f"{native}/{what}".encode()).hexdigest()[:12]


def transcript_file(native: str) -> str:
    """The session file, as the log names it."""
    return f"{native}.jsonl"
