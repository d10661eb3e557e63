"""What changed in a session's files between two places of its log, for people who look. Reads only.

A *step* is one event that holds a new root; steps are numbered from 1. What a step changed follows from its
root and the one before, so nothing here needs the workspace itself."""

from __future__ import annotations

import difflib
from collections.abc import AsyncIterator, Callable
from functools import partial

import msgspec

from harness_durable import events as ev
from harness_durable import workspace
from harness_durable.errors import NotFound
from harness_durable.journal import Reader

MOST_BYTES = 1 << 20
"""Of a file's content; larger ones are told, and not compared line by line."""

MOST_LINES = 20_000
"""Of both versions together: comparing takes long for many."""


Clean = Callable[[bytes], bytes]
"""Takes out of a content what must not be seen."""


def as_it_is(raw: bytes) -> bytes:
    return raw


class Step(msgspec.Struct, frozen=True):
    """``seq`` is its event's place, ``parent`` the root before (empty: there was none)."""

    number: int
    seq: int
    time: int
    event: ev.WorkspaceCommitted


class Difference(msgspec.Struct, frozen=True):
    """One path. ``text``: a unified diff without its head; empty if there is none, and then ``note`` says
    why."""

    change: ev.Change
    text: str = ""
    note: str = ""


async def steps(reader: Reader) -> list[Step]:
    """All steps of a session, in order."""
    found: list[Step] = []
    async for entry in reader.entries():
        event = entry.event
        if isinstance(event, ev.WorkspaceCommitted) and not event.skipped:
            found.append(Step(len(found) + 1, entry.seq, entry.time, event))
    return found


def step_at(found: list[Step], session: str, seq: int | None = None) -> Step:
    """The step that describes the files as of event ``seq`` (None: now). Raises ``NotFound``."""
    before = [step for step in found if seq is None or step.seq <= seq]
    if not before:
        where = "" if seq is None else f" at event {seq}"
        raise NotFound(
            f"the log of session {session!r} has no files{where}: they are saved from the first turn on, and "
            "only of a session with durable files"
        )
    return before[-1]


def numbered(found: list[Step], session: str, number: int) -> Step:
    """The step of that number. Raises ``NotFound``."""
    if not 1 <= number <= len(found):
        raise NotFound(f"session {session!r} has {len(found)} steps, not {number}; see `trace`")
    return found[number - 1]


def reading(reader: Reader) -> workspace.Read:
    """How ``workspace`` gets a session's blobs."""
    return partial(reader.world.blob, reader.session)


async def differences(reader: Reader, old: str, new: str) -> AsyncIterator[Difference]:
    """What changed between two roots, path by path."""
    read = reading(reader)
    for change in await workspace.diff(old, new, read):
        yield await compared(change, read)


async def compared(change: ev.Change, read: workspace.Read, clean: Clean = as_it_is) -> Difference:
    """One path; contents go through ``clean`` before they are compared. Raises ``NotFound`` or
    ``DamagedLog`` for a content that is not there."""
    if change.path.endswith("/"):
        return Difference(change, note="a folder")
    if change.old[:1] == "@" or change.new[:1] == "@":
        ends = [clean(ref[1:].encode()).decode("utf-8", "replace") or "-" for ref in (change.old, change.new)]
        return Difference(change, note=f"a link: {ends[0]} to {ends[1]}")
    if change.old == change.new:
        return Difference(change, note="only its mode")
    texts = [await _text(ref, read, clean) for ref in (change.old, change.new)]
    if texts[0] is None or texts[1] is None:
        return Difference(change, note="binary, or too large to compare")
    old, new = _lines(texts[0]), _lines(texts[1])
    if len(old) + len(new) > MOST_LINES:
        return Difference(change, note="too many lines to compare")
    return Difference(change, "".join(list(difflib.unified_diff(old, new))[2:]))


def _lines(text: str) -> list[str]:
    """Whatever else may look like the end of a line stays within it."""
    return [f"{line}\n" for line in text.removesuffix("\n").split("\n")] if text else []


async def _text(ref: str, read: workspace.Read, clean: Clean) -> str | None:
    """A file's content if it is text; of no file, none."""
    if not ref:
        return ""
    parts, size = list[bytes](), 0
    async for piece in workspace.pieces(ref, read):
        parts.append(piece)
        size += len(piece)
        if size > MOST_BYTES or b"\0" in piece:
            return None
    try:
        return clean(b"".join(parts)).decode()
    except UnicodeDecodeError:
        return None
