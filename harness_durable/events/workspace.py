"""What became of the files that the harness works on.

The log holds the root of a tree of manifests and what changed since the root before, never a list of all
files. What surprises: nothing changed is no event, so an outcome without one stands for the same root."""

from __future__ import annotations

from typing import Literal

import msgspec

from harness_durable.events.base import Event

Op = Literal["added", "modified", "removed"]

Cause = Literal["call", "turn_start", "turn_end", "found", "restored", "fork"]
"""Why the files were looked at. ``call``: it may have changed them. ``turn_start``: whatever is new was not
the agent. ``found``: what lay there when the session was taken up after a crash. ``restored``: they were
made anew from the log. ``fork``: so were those of a fork, in a folder of its own."""

MAX_CHANGES = 200
"""Changes that an event names. All of them follow from the two roots."""


class Change(msgspec.Struct, frozen=True, omit_defaults=True):
    """One path. ``path`` is escaped as in a line of a manifest; ``old`` and ``new`` are contents: a blob, or
    ``+`` and the blob that lists the pieces."""

    op: Op
    path: str
    old: str = ""
    new: str = ""


class LeftOut(msgspec.Struct, frozen=True):
    """A path, escaped, that is not saved, with all below it."""

    path: str
    reason: str


class Counts(msgspec.Struct, frozen=True, omit_defaults=True):
    """Of all changes, also those that the event does not name."""

    added: int = 0
    modified: int = 0
    removed: int = 0

    @property
    def total(self) -> int:
        return self.added + self.modified + self.removed


class WorkspaceCommitted(Event, frozen=True, tag="workspace.committed"):
    """The files as they are at this place in the log. ``parent`` is the root before (empty: there was none),
    ``call`` the call whose outcome stands beside it, ``beside`` those that were running meanwhile. ``more``
    changes are not named. ``left_out`` is set when it is another than before; ``torn`` are files that were
    written to while they were read. ``skipped``: why the files could not be saved; then ``root`` is the old
    one, and does not describe them. Sizes in bytes, ``ms`` is how long it took."""

    root: str
    parent: str
    cause: Cause
    call: str = ""
    beside: tuple[str, ...] = ()
    counts: Counts = Counts()
    changes: tuple[Change, ...] = ()
    more: int = 0
    new_bytes: int = 0
    stored_bytes: int = 0
    left_out: tuple[LeftOut, ...] | None = None
    left_out_more: int = 0
    torn: tuple[str, ...] = ()
    skipped: str = ""
    ms: int = 0
