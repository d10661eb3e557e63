"""Which blobs a log names: all that it needs, and nothing that was only stored beside it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import partial
from typing import cast

import msgspec

from harness_durable import events, workspace
from harness_durable.errors import DamagedLog, LogTooNew
from harness_durable.journal.reader import Reader
from harness_durable.payload import Payload
from harness_durable.world import World


class Names:
    """What the entries that were taken name. ``blobs``: without contents of the workspace, whose ``roots``
    lead to them."""

    def __init__(self) -> None:
        self.blobs, self.roots = set[str](), set[str]()

    def take(self, entry: events.Entry) -> None:
        self.blobs.update(blobs_of(entry.event))
        if isinstance(entry.event, events.WorkspaceCommitted):
            self.roots.add(entry.event.root)

    async def all(self, world: World, session: str) -> set[str]:
        """Raises ``DamagedLog`` if a manifest is missing or damaged, so that nobody can know."""
        return self.blobs | await workspace.names(self.roots, partial(world.blob, session))


async def named(world: World, session: str, entries: Iterable[events.Entry]) -> set[str]:
    """The blobs of these entries of a session, with all contents of the workspace as of each step. Raises as
    ``Names.all`` does."""
    names = Names()
    for entry in entries:
        names.take(entry)
    return await names.all(world, session)


async def needed(world: World, session: str) -> set[str] | None:
    """The blobs without which a session would lack something, as of now. ``None`` if nobody can know, since
    something of it is damaged, or written by a newer version: then it may need each that it has.

    What it has and does not need was stored by a worker that died before it could say what for."""
    names = Names()
    try:
        async for entry in Reader(world, session).entries():
            names.take(entry)
        return await names.all(world, session)
    except (DamagedLog, LogTooNew):
        return None


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
