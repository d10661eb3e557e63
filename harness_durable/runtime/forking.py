"""Forking a session: another one that has the same past up to some event, and from there on its own future.

Whatever the fork's records name is copied, so that deleting the parent loses nothing of it; the parent is
only read, and may be running. What surprises: the fork's folder is not made here. It is pinned to the files
as of that event, and whoever drives the fork makes it, since that may be another host."""

from __future__ import annotations

import os
import uuid
from collections.abc import Set
from contextlib import suppress
from pathlib import Path, PurePath

import anyio
import msgspec

from harness_durable import events, fold
from harness_durable.copying import BATCH, read_all, row_of
from harness_durable.errors import BadInput, DamagedLog, HarnessDurableError, NotFound, WorkspaceMissing
from harness_durable.events import AgentSpec
from harness_durable.journal import Reader, forking
from harness_durable.journal.naming import named
from harness_durable.journal.reader import entry_of
from harness_durable.payload import expand
from harness_durable.runtime.equipment import Equipment
from harness_durable.state import Session
from harness_durable.workspace import is_empty, refuse
from harness_durable.world import World, check_session_id

FORGET_SECONDS = 5.0
"""How long one that failed takes to remove what it has copied, at most."""


class Forked(msgspec.Struct, frozen=True):
    """``session`` has what ``parent`` had up to event ``at``. ``workspace`` is its own, as the log calls it;
    ``blobs`` were copied, ``bytes`` of them."""

    session: str
    parent: str
    at: int
    workspace: str
    blobs: int
    bytes: int


async def fork(
    world: World,
    equipment: Equipment,
    parent: str,
    *,
    at: int | None = None,
    name: str | None = None,
    files: Path | None = None,
) -> Forked:
    """Fork ``parent`` after its event ``at`` (None: where it was settled last) as session ``name``, which
    works in the folder ``files``. By default that is one beside the parent's, under the fork's own name; of a
    session whose files are not in the log it must be named, and holds them already.

    Cut off, the same call again goes on, if it names the fork. Raises ``BadInput``, ``NotFound``;
    ``DamagedLog`` and ``LogTooNew`` if what is to be copied is not whole.
    """
    now = await Reader(world, parent).load()
    at = _settled(now) if at is None else at
    if not 0 < at <= now.seq:
        raise BadInput(f"session {parent!r} has the events 1 to {now.seq}, and not {at}; see `trace`")
    nameless = not name
    name = check_session_id(name or f"{parent[:110]}-fork-{uuid.uuid4().hex[:6]}")
    if await row_of(world, name) is not None:
        raise BadInput(f"session {name!r} is there already; name the fork otherwise")
    records = await read_all(world, parent, at)
    state = fold.fold(entry_of(record, parent) for record in records)
    if state.moved is not None:
        raise BadInput(
            f"session {parent!r} was moved to {state.moved.to}; fork it there, or before event {at}"
        )
    if state.agent is None:
        raise DamagedLog(f"session {parent!r}", 0, None, "it has no session.created event")
    agent = _own_place(equipment, state, state.agent, parent, name, files)
    names = await named(world, parent, (entry_of(record, parent) for record in records))
    event = events.SessionForked(parent, at, agent.workspace, agent.files)
    try:
        copied = await _copy(world, parent, name, names)
        await forking.begin(world, name, records, state, event)
    except BaseException:
        if nameless:
            await _forget(world, name)
        raise
    return Forked(name, parent, at, agent.workspace, *copied)


def _settled(state: Session) -> int:
    """The last place at which no turn was open."""
    return state.seq if state.turn is None else state.turn.started_seq - 1


def _own_place(
    equipment: Equipment, state: Session, agent: AgentSpec, parent: str, name: str, files: Path | None
) -> AgentSpec:
    """The agent in a place of the fork's own: two sessions never work in one. What only another host can know
    is left to whoever makes the folder there."""
    durable = agent.files == "durable"
    if durable and not state.files.root:
        raise BadInput(f"no files were saved yet at event {state.seq}: fork it at a later one, see `trace`")
    if not durable and files is None:
        raise BadInput(
            f"the files of this session are {agent.files}, not in its log, and a fork needs its own: name a "
            "folder that has them (`--files DIR`), such as a copy of the parent's"
        )
    if files is not None:
        workspace = equipment.named(files)
    elif PurePath(agent.workspace).name:
        workspace = str(PurePath(agent.workspace).with_name(name))
    else:
        raise BadInput(
            "beside this session's workspace there is no place for another: name one (`--files DIR`)"
        )
    own = msgspec.structs.replace(agent, workspace=workspace, files="durable" if durable else "kept")
    place = _place(equipment, own, name)
    if place is not None:
        _check(place, _place(equipment, agent, parent), durable)
    elif workspace == agent.workspace:
        raise BadInput(f"{workspace} is the workspace of the parent; name the fork otherwise")
    return own


def _place(equipment: Equipment, agent: AgentSpec, session: str) -> Path | None:
    """Where that is on this host, if anybody here can know."""
    try:
        scratch = equipment.beside(session) / "scratch"
        return Path(scratch if agent.files == "scratch" else equipment.place(agent)).resolve()
    except WorkspaceMissing:
        return None


def _check(place: Path, parents: Path | None, durable: bool) -> None:
    if parents is not None and (place.is_relative_to(parents) or parents.is_relative_to(place)):
        raise BadInput(
            f"{place} is, holds or lies in the workspace of the parent, {parents}; name another folder"
        )
    if not durable:
        if not place.is_dir():
            raise BadInput(f"{place} is no folder: copy the files there that the fork is to work on, first")
        return
    refuse(place)
    if os.path.lexists(place) and not (place.is_dir() and is_empty(place)):
        raise BadInput(f"{place} is not empty; name a folder that is, or none yet (`--files DIR`)")


async def _copy(world: World, parent: str, name: str, names: Set[str]) -> tuple[int, int]:
    """How many blobs were copied, and their bytes. What is there already was copied by a try that was cut
    off."""
    missing = await world.missing_blobs(name, names)
    batch, size, total = dict[str, bytes](), 0, 0
    for blob in sorted(missing):
        stored = await _stored(world, parent, blob)
        if batch and size + len(stored) > BATCH:
            await world.put_blobs(name, batch)
            batch, size = {}, 0
        batch[blob] = stored
        size += len(stored)
        total += len(stored)
    if batch:
        await world.put_blobs(name, batch)
    return len(missing), total


async def _forget(world: World, name: str) -> None:
    """What was copied under a name that nobody heard of, and so nobody will go on with."""
    with anyio.move_on_after(FORGET_SECONDS, shield=True), suppress(HarnessDurableError):
        await world.delete(name)


async def _stored(world: World, session: str, blob: str) -> bytes:
    try:
        stored = await world.blob(session, blob)
    except NotFound as missing:
        raise DamagedLog(f"session {session!r}, blob {blob}", 0, None, "it is missing") from missing
    expand(blob, stored)
    return stored
