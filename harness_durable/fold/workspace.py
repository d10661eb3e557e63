"""The files that the harness works on: the last root, and whether it still describes them."""

from __future__ import annotations

from harness_durable import events as ev
from harness_durable.state import Session

FOUND = 20
"""Paths that a state keeps of those that were found changed: what a model is told of them."""


def committed(state: Session, entry: ev.Entry, event: ev.WorkspaceCommitted) -> None:
    files = state.files
    if event.left_out is not None:
        files.left_out, files.left_out_more = event.left_out, event.left_out_more
    if event.skipped:
        files.skipped, files.uncovered_seq = event.skipped, files.uncovered_seq or entry.seq
        files.seq = entry.seq if event.cause == "fork" else files.seq  # they were made all the same
        return
    found = tuple(change.path for change in event.changes) if event.cause == "found" else ()
    known = dict.fromkeys((*files.found, *found)) if event.cause == "found" else {}
    files.found = tuple(known)[:FOUND]
    more = event.more + files.found_more if event.cause == "found" else 0
    files.found_more = more + len(known) - len(files.found)
    files.root, files.seq, files.steps = event.root, entry.seq, files.steps + 1
    files.base = files.base if event.cause == "found" else event.root
    files.skipped, files.uncovered_seq = "", 0
