"""Which blobs a log names: all that it needs, and nothing that was only stored beside it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import partial
from typing import cast

import msgspec

from harness_durable import events, workspace
from harness_durable.payload import Payload
from harness_durable.world import World


async def named(world: World, session: str, entries: Iterable[events.Entry]) -> set[str]:
    """The blobs of these entries of a session, with all contents of the workspace as of each step.

    Raises ``DamagedLog`` if a manifest is missing or damaged, so that nobody can know."""
    found, roots = set[str](), set[str]()
    for entry in entries:
        found.update(blobs_of(entry.event))
        if isinstance(entry.event, events.WorkspaceCommitted):
            roots.add(entry.event.root)
    return found | await workspace.names(roots, partial(world.blob, session))


def blobs_of(value: object) -> Iterator[str]:
    """The blobs of all payloads within an event."""
    if isinstance(value, Payload):
        if value.blob is not None:
            yield value.blob
    elif isinstance(value, msgspec.Struct):
        for field in value.__struct_fields__:
            yield from blobs_of(getattr(value, field))
    elif isinstance(value, tuple):
        for each in cast(tuple[object, ...], value):
            yield from blobs_of(each)
