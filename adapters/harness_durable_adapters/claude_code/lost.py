"""What of a transcript cannot be read, in words for the model, and how that waits to be told. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from ..common.shapes import word
from .transcript import Finding, Line, made

_PENDING = "harness-durable-lost"
_LISTED = 5
"""Damaged lines whose places the model is told."""


def lost(findings: Sequence[Finding]) -> str:
    """A clause about the lines that cannot be read; empty if there are none."""
    gone = [finding for finding in findings if finding.lost]
    if not gone:
        return ""
    places = [_place(finding) for finding in gone[:_LISTED]]
    if len(gone) > _LISTED:
        places.append(f"and {len(gone) - _LISTED} more")
    lines, are = ("1 line", "is") if len(gone) == 1 else (f"{len(gone)} lines", "are")
    where = ", ".join(places)
    return f"{lines} of this conversation's record could not be read and {are} left out ({where})"


def _place(finding: Finding) -> str:
    zeros = "zero " if finding.zeros == finding.length else ""
    return f"{finding.length} {zeros}bytes at byte {finding.offset}"


def pending_line(clause: str) -> Line:
    """Keeps in the log what the model is still to be told. The harness never gets it."""
    return made({"type": _PENDING, "lost": clause})


def is_pending(line: Line) -> bool:
    return line.kind == _PENDING


def pending(line: Line) -> str:
    """The clause that such a line keeps."""
    return word(line.value.get("lost"))
