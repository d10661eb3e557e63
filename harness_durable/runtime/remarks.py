"""What a model is told of its files, where it cannot know: the same words for every harness. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from harness_durable.state import Files

NAMED = 10
"""Paths that a sentence names."""

ROLLED_BACK = (
    "[harness-durable] The files of the workspace were put back, as a person asked, to how they were at the "
    "last step that was recorded. What was there instead is kept at event {seq} of the log."
)


def remark_on_restored(files: Files, redacted: Sequence[str], setup: str) -> str:
    """What a model has to know of files that were made from the log; nothing if all is there."""
    told: list[str] = []
    if files.left_out or files.left_out_more:
        names = [f"{left.path} ({left.reason})" for left in files.left_out]
        told.append(f"Not restored, because not saved: {_named(names, files.left_out_more)}.")
    if redacted:
        told.append(f"Restored without their credentials: {_named(redacted)}.")
    if files.uncovered_seq:
        told.append(
            f"Changes since event {files.uncovered_seq} were not saved ({files.skipped}) and are lost."
        )
    told += [setup] if setup else []
    begin = "[harness-durable] The place where you worked was lost. Its files were made anew from the log."
    return "\n".join([begin, *told]) if told else ""


def changed_meanwhile(files: Files) -> str:
    """For a call of which nobody knows what it did: what is known of the files."""
    if not files.found:
        return ""
    return f" Files that changed since the last recorded step: {_named(files.found, files.found_more)}."


def _named(names: Sequence[str], more: int = 0) -> str:
    more += max(0, len(names) - NAMED)
    return ", ".join(names[:NAMED]) + (f" and {more} more" if more else "")
