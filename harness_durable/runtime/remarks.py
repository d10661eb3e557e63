"""What a model is told of its files, where it cannot know: the same words for every harness. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from harness_durable.events import LeftOut
from harness_durable.state import Files

NAMED = 10
"""Paths that a sentence names."""


def remark_on_roll_back(seq: int, kept: Sequence[LeftOut]) -> str:
    """``seq`` has what was there before; ``kept`` could not or must not be touched."""
    return "\n".join(
        [
            "[harness-durable] The files of the workspace were put back, as a person asked, to how they were "
            f"at the last step that was recorded. What was there instead is kept at event {seq} of the log.",
            *_untouched(kept),
        ]
    )


def remark_on_catching_up(files: Files, seq: int, kept: Sequence[LeftOut]) -> str:
    """``files``: as they were recorded last, elsewhere."""
    return "\n".join(
        [
            "[harness-durable] You go on in another place, where the files were older. They were brought to "
            f"the last step that was recorded; what was there instead is kept at event {seq} of the log.",
            *_lacking(files, "Not brought along"),
            *_untouched(kept),
        ]
    )


def remark_on_restored(files: Files, redacted: Sequence[str], setup: str, *, forked: bool = False) -> str:
    """What a model has to know of files that were made from the log; nothing if all is there."""
    told = _lacking(files, "Not restored")
    if redacted:
        told.append(f"Restored without their credentials: {_named(redacted)}.")
    told += [setup] if setup else []
    why = "This session was forked" if forked else "The place where you worked was lost"
    begin = f"[harness-durable] {why}. Its files were made anew from the log."
    return "\n".join([begin, *told]) if told else ""


def _lacking(files: Files, how: str) -> list[str]:
    told: list[str] = []
    if files.left_out or files.left_out_more:
        told.append(f"{how}, because not saved: {_named(_reasons(files.left_out), files.left_out_more)}.")
    if files.uncovered_seq:
        told.append(
            f"Changes since event {files.uncovered_seq} were not saved ({files.skipped}) and are lost."
        )
    return told


def _untouched(kept: Sequence[LeftOut]) -> list[str]:
    return [f"Left as they are: {_named(_reasons(kept))}."] if kept else []


def _reasons(left: Sequence[LeftOut]) -> list[str]:
    return [f"{each.path} ({each.reason})" for each in left]


def changed_meanwhile(files: Files) -> str:
    """For a call of which nobody knows what it did: what is known of the files."""
    if not files.found:
        return ""
    return f" Files that changed since the last recorded step: {_named(files.found, files.found_more)}."


def _named(names: Sequence[str], more: int = 0) -> str:
    more += max(0, len(names) - NAMED)
    return ", ".join(names[:NAMED]) + (f" and {more} more" if more else "")
