"""Which blobs a log names: all that it needs, and nothing that was only stored beside it."""

from __future__ import annotations

import re
from collections.abc import AsyncGenerator, Iterable, Iterator
from functools import partial
from typing import cast

import msgspec

from harness_durable import events, workspace
from harness_durable.errors import DamagedLog, LogTooNew
from harness_durable.journal.reader import PAGE, entry_of
from harness_durable.payload import Payload
from harness_durable.world import World

_NAME = re.compile(rb"[0-9a-f]{64}")


async def named(world: World, session: str, entries: Iterable[events.Entry]) -> set[str]:
    """The blobs of these entries of a session, with all contents of the workspace as of each step.

    Raises ``DamagedLog`` if a manifest is missing or damaged, so that nobody can know."""
    found, roots = set[str](), set[str]()
    for entry in entries:
        found.update(blobs_of(entry.event))
        if isinstance(entry.event, events.WorkspaceCommitted):
            roots.add(entry.event.root)
    return found | await workspace.names(roots, partial(world.blob, session))


async def needed(world: World, session: str) -> set[str] | None:
    """The blobs without which a session may lack something, as of now. ``None`` if nobody can know, since
    something of it is damaged, or of a kind that a newer version has added: then it may need each.

    What it has and does not need was stored by a worker that died before it could say what for. In a record's
    body whatever looks like a blob's name is one: a newer version may name it in a field unknown here."""
    found, roots, after = set[str](), set[str](), 0
    try:
        while records := await world.read(session, after, PAGE):
            for record in records:
                found.update(name.decode() for name in _NAME.findall(record.body))
                event = entry_of(record, session).event
                if isinstance(event, events.WorkspaceCommitted):
                    roots.add(event.root)
            after = records[-1].seq
        return found | await workspace.names(roots, partial(world.blob, session))
    except (DamagedLog, LogTooNew):
        return None


async def needed_blobs(world: World, session: str) -> AsyncGenerator[tuple[str, bytes]]:
    """As ``World.blobs``, without those that nothing needs. For whoever copies a session."""
    needs = await needed(world, session)
    async for name, body in world.blobs(session):
        if needs is None or name in needs:
            yield name, body


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
