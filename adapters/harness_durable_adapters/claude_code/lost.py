"""What of a transcript cannot be read, in words for the model, and how that waits to be told. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from ..common import lost as common
from ..common.shapes import word
from .transcript import Finding, Line, made

_PENDING = "harness-durable-lost"


def lost(findings: Sequence[Finding]) -> str:
    """A clause about the lines that cannot be read; empty if there are none."""
    return common.lost(
        [common.Place(found.offset, found.length, found.zeros) for found in findings if found.lost]
    )


def pending_line(clause: str) -> Line:
    """Keeps in the log what the model is still to be told. The harness never gets it."""
    return made({"type": _PENDING, "lost": clause})


def is_pending(line: Line) -> bool:
    return line.kind == _PENDING


def pending(line: Line) -> str:
    """The clause that such a line keeps."""
    return word(line.value.get("lost"))
