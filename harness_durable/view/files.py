"""What a step changed in the workspace, as a row. Pure."""

from __future__ import annotations

from harness_durable import events as ev
from harness_durable.state import Session
from harness_durable.view.row import Row, row
from harness_durable.view.words import bare, counted, cut

_WHY = {
    "call": "Files changed by",
    "turn_start": "Files changed before the turn",
    "turn_end": "Files changed at the turn's end",
    "found": "Files found after the crash",
    "restored": "Files restored from the log",
    "fork": "Files of the fork",
}
_SIGNS = {"added": "+", "modified": "~", "removed": "-"}


def committed(state: Session, entry: ev.Entry, event: ev.WorkspaceCommitted, word: str) -> Row:
    call = state.tool_calls.get(event.call)
    title = _WHY.get(event.cause, "Files") + (f" {bare(call)}" if call is not None else "")
    if event.skipped:
        return row(entry, "files", "skipped", f"{title}: not saved", cut(event.skipped), word=word)
    names = " ".join(f"{_SIGNS[change.op]}{change.path}" for change in event.changes[:8])
    number = event.counts.added + event.counts.modified + event.counts.removed
    badges = (counted(number, "file"),) if number else ("the first snapshot",) if not event.parent else ()
    return row(entry, "files", "committed", title, cut(names), word=word, badges=badges)
