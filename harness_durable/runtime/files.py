"""The files that one session works on, on this host: found, saved, made anew where they are gone.

What surprises: on the host where they were, nothing is put back by itself. What lies there is looked at and
told; only a folder that is missing, or has nothing in it, is made from the log, and one that has stood still
since the session went elsewhere is brought up to date (``restoring``)."""

from __future__ import annotations

import logging
import shutil
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import cached_property, partial
from pathlib import Path
from typing import TypeVar

from harness_durable import clock
from harness_durable.errors import (
    BadSetting,
    StorageError,
    StorageUnavailable,
    WorkspaceMissing,
)
from harness_durable.events import AgentSpec
from harness_durable.journal import Journal
from harness_durable.runtime.equipment import Equipment
from harness_durable.runtime.remarks import remark_on_roll_back
from harness_durable.runtime.restoring import Restorer, in_thread
from harness_durable.sandbox import LifeRef, NamesProcesses
from harness_durable.state import Session
from harness_durable.workspace import Scanned, Tracker
from harness_durable.world import World

log = logging.getLogger("harness_durable.files")

PATIENCE = 10.0
"""Seconds for which blobs are stored again while the store is away, as an append is."""

OFF = "or leave the files as they are on this host: `--files kept`, in Python files='kept', for a new session"

T = TypeVar("T")


def unheard(text: str) -> None:
    """Nobody looks."""


class SessionFiles:
    """Those of one session in the hands of one worker. The journal's ``Tracks``."""

    def __init__(self, world: World, session: str, equipment: Equipment) -> None:
        self._world, self._session, self._equipment = world, session, equipment
        self._agent: AgentSpec | None = None
        self._tracker: Tracker | None = None
        self._lacking, self._stored = False, 0
        self.show: Callable[[str], None] = unheard
        self.life: LifeRef | None = None
        """The one that acts now."""

    def take(self, agent: AgentSpec) -> None:
        """The session's agent, as soon as its log has been read."""
        self._agent = agent

    @property
    def agent(self) -> AgentSpec:
        if self._agent is None:
            raise RuntimeError("the files of a session were asked for before its log was read")
        return self._agent

    @property
    def durable(self) -> bool:
        return self.agent.files == "durable"

    @cached_property
    def _restorer(self) -> Restorer:
        return Restorer(self._equipment, self.agent, self.folder, self._read, self._tell)

    def _tell(self, text: str) -> None:
        self.show(text)

    @property
    def folder(self) -> Path:
        """What this host keeps beside the log for the session."""
        return self._equipment.beside(self._session)

    def place(self) -> Path:
        """Where the harness works. Raises ``WorkspaceMissing`` if only another worker can know."""
        if self.agent.files == "scratch":
            return self.folder / "scratch"
        return Path(self._equipment.place(self.agent))

    # ------------------------------------------------------------------------------------- looking

    async def scan(self, parent: str) -> Scanned | None:
        """See ``journal.files.Tracks``."""
        if self._lacking:
            return None
        try:
            self._tracker = self._tracker or self._made()
            if not parent:
                self.show("saving the files of the workspace for the first time")
            return await self._tracker.scan(parent)
        except (OSError, WorkspaceMissing) as trouble:
            return Scanned(parent, skipped="error", why=str(trouble))
        except StorageError:
            raise
        except Exception as fault:  # an outcome is not lost for it
            log.exception("the files of session %s", self._session)
            why = f"{type(fault).__name__}: {fault} (an error of ours; see the worker's log)"
            return Scanned(parent, skipped="error", why=why)
        finally:
            if self._stored or not parent:
                self.show("")
            self._stored = 0

    async def landed(self, scanned: Scanned) -> None:
        """See ``journal.files.Tracks``."""
        if self._tracker is not None:
            self._tracker.landed(scanned)
            await self._tracker.remember()

    def _made(self) -> Tracker:
        self.folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        return Tracker(
            self.place(),
            self._equipment.limits(),
            cache=self.folder / "files.cache",
            put=self._put,
            missing=self._missing,
            read=self._read,
            processes=self._acting,
        )

    def _acting(self) -> Sequence[int]:
        sandbox = self._equipment.sandbox(self.agent.sandbox)
        life = self.life
        return sandbox.acting(life) if life is not None and isinstance(sandbox, NamesProcesses) else ()

    async def _put(self, blobs: Mapping[str, bytes]) -> None:
        await _patiently(partial(self._world.put_blobs, self._session, blobs))
        self._stored += sum(len(stored) for stored in blobs.values())
        self.show(f"saving the files of the workspace: {self._stored / 1e6:.0f} MB stored so far")

    async def _missing(self, names: Sequence[str]) -> set[str]:
        return await _patiently(partial(self._world.missing_blobs, self._session, names))

    async def _read(self, name: str) -> bytes:
        return await _patiently(partial(self._world.blob, self._session, name))

    # ------------------------------------------------------------------------------------ preparing

    async def prepare(self, journal: Journal, *, begins: bool) -> None:
        """Before a life begins: the files are there, and the log says how they are.
        ``begins``: the turn does, so that whatever is new is not the agent's.

        Raises ``BadSetting`` if they cannot be saved for the first time or made in their place, and
        ``DamagedWorkspace``; both are for a person."""
        if self.agent.files == "scratch":
            self.place().mkdir(parents=True, exist_ok=True, mode=0o700)
            await self._restorer.hand_over(self.place())
        if not self.durable:
            return
        try:
            place = self.place()
        except WorkspaceMissing:
            return  # the life says so, and another worker may know
        files = journal.state.files
        if begins:  # there is nothing yet to be put back, and what comes now is not to be
            self._equipment.rollback.discard(self._session)
        if await self._is_lacking(journal.state, place):
            await self._restore(journal, place)
        elif await self._is_behind(journal.state, place):
            await self._restorer.catch_up(journal, place)
        elif files.root and self._session in self._equipment.rollback:
            await self._restorer.roll_back(journal, place, files.base or files.root, remark_on_roll_back)
            self._equipment.rollback.discard(self._session)
        elif files.root or place.is_dir():
            skipped = await journal.files_committed("turn_start" if begins else "found")
            if skipped and not journal.state.files.root:
                raise BadSetting(f"the workspace {place} cannot be saved: {skipped}; {OFF}")

    async def look(self, journal: Journal) -> None:
        """Before a turn is given up: what lies there is in the log. Where the files would have to be made
        anew, nothing is done, and what lies there instead is not taken for them."""
        if not self.durable:
            return
        try:
            lacking = await self._is_lacking(journal.state, self.place())
        except WorkspaceMissing:
            return  # none of them is here
        if not lacking:
            await journal.files_committed("found")

    async def _is_lacking(self, state: Session, place: Path) -> bool:
        self._lacking = await self._restorer.is_lacking(state, place)
        return self._lacking

    async def attached(self, journal: Journal) -> None:
        """The harness has gone on meanwhile: what it did to the files stands there."""
        if self.durable:
            await journal.files_committed("found")

    async def _restore(self, journal: Journal, place: Path) -> None:
        remark = await self._restorer.restore(journal.state, place)
        self._lacking, self._tracker = False, None
        await journal.files_restored(remark)
        self._restorer.restored()

    async def _is_behind(self, state: Session, place: Path) -> bool:
        """Was the session elsewhere since it was here, and does the workspace stand as it left it here? Where
        hosts share the workspace, or somebody has worked in it, it is not so."""
        if self._restorer.has_begun:
            return True
        life = next(reversed(state.lives.values()), None)
        here = self._equipment.sandbox(self.agent.sandbox).locate("here").host
        if not state.files.root or life is None or life.host == here:
            return False
        self._tracker = self._tracker or self._made()
        last = await in_thread(_left_here, place, self._tracker)
        if last in ("", state.files.root):
            return False
        seen = await self.scan(last)
        return seen is not None and not seen.skipped and seen.root == last

    def forget(self) -> None:
        """The session is over, or goes on elsewhere: nothing of it stays here but its workspace. Of one that
        was deleted the sweeper hears (``orphans``)."""
        shutil.rmtree(self.folder, ignore_errors=True)


def _left_here(place: Path, tracker: Tracker) -> str:
    return tracker.remembered() if place.is_dir() else ""


async def _patiently(ask: Callable[[], Awaitable[T]]) -> T:
    give_up = clock.monotonic() + PATIENCE
    while True:
        try:
            return await ask()
        except StorageUnavailable:
            if clock.monotonic() > give_up:
                raise
        await clock.sleep(0.2)
