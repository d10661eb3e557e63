"""What differs between two roots, without looking into what is equal in both."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from harness_durable.events.workspace import Change
from harness_durable.workspace.manifest import EMPTY, Line, shown

Entries = Callable[[bytes, str], Mapping[bytes, Line]]
"""The lines of a folder by name, given its path and its node; nothing if the node is empty."""


def changes(old: str, new: str, before: Entries, after: Entries, path: bytes = b"") -> Iterator[Change]:
    """In the order of paths. A file or link is one change, whatever of it differs. A folder (its path ends
    with "/") is one only if its mode differs, or if it came or went empty."""
    if old == new:
        return
    was, now = before(path, old), after(path, new)
    for name in sorted(was.keys() | now.keys()):
        one, other = was.get(name), now.get(name)
        if one == other:
            continue
        if one is None or other is None or one.is_folder != other.is_folder:
            yield from _replaced(one, other, before, after, path + name)
        elif not one.is_folder:
            yield Change("modified", shown(path + name), one.shown, other.shown)
        else:
            yield from _same_folder(one, other, before, after, path + name + b"/")


def _same_folder(one: Line, other: Line, before: Entries, after: Entries, path: bytes) -> Iterator[Change]:
    if one.mode != other.mode:
        yield Change("modified", shown(path), one.ref, other.ref)
    yield from changes(one.ref, other.ref, before, after, path)


def _replaced(
    one: Line | None, other: Line | None, before: Entries, after: Entries, path: bytes
) -> Iterator[Change]:
    """What went, then what came."""
    if one is not None and one.is_folder:
        yield from _whole(Change("removed", shown(path + b"/"), old=one.ref), one.ref)
        yield from changes(one.ref, "", before, after, path + b"/")
    elif one is not None:
        yield Change("removed", shown(path), old=one.shown)
    if other is not None and other.is_folder:
        yield from _whole(Change("added", shown(path + b"/"), new=other.ref), other.ref)
        yield from changes("", other.ref, before, after, path + b"/")
    elif other is not None:
        yield Change("added", shown(path), new=other.shown)


def _whole(change: Change, ref: str) -> Iterator[Change]:
    if ref == EMPTY:
        yield change
