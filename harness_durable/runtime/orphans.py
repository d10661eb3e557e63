"""Ending lives on this host that nobody will come back for.

The session went on elsewhere while this host's worker was away, or it was deleted: then a keeper would hold
its harness until its ``ttl``. Every worker looks for such lives at its start and again and again. Only the
log decides, and only about lives that belong to this World and app.
"""

from __future__ import annotations

import logging
import os
import random
import shutil
from functools import partial
from pathlib import Path

from anyio import to_thread

from harness_durable import clock, recovery
from harness_durable.errors import HarnessDurableError, NotFound, StorageUnavailable
from harness_durable.journal import Reader
from harness_durable.runtime.equipment import ref_of
from harness_durable.runtime.worker import Worker
from harness_durable.sandbox import FoundLife, LifeRef, ListsLives, Sandbox
from harness_durable.state import Session

log = logging.getLogger("harness_durable.worker")

SWEEP_SECONDS = 30.0
ASK_SECONDS = 3600.0


class Sweeper:
    """A task of the worker service."""

    def __init__(self, worker: Worker) -> None:
        self._worker = worker

    async def run(self) -> None:
        """Sweep for ever; workers of one host not all at once."""
        while True:
            try:
                await self.sweep()
            except (HarnessDurableError, OSError) as trouble:
                log.warning("lives that were left behind could not be looked for: %s", trouble)
            await clock.sleep(SWEEP_SECONDS * random.uniform(0.8, 1.2))

    async def sweep(self) -> list[str]:
        """Look once; the ids of the lives that were ended. Raises ``StorageError``."""
        await self._sweep_folders()
        ended: list[str] = []
        for name in self._worker.equipment.sandboxes():
            for sandbox, found in await self._listed(name):
                if await self._try(sandbox, found):
                    ended.append(found.ref.life)
        return ended

    async def _listed(self, name: str) -> list[tuple[Sandbox, FoundLife]]:
        """A sandbox that cannot be asked, such as one whose engine is away, holds up no other."""
        try:
            sandbox = self._worker.equipment.sandbox(name)
            lives = await sandbox.list_lives() if isinstance(sandbox, ListsLives) else ()
        except (HarnessDurableError, OSError) as trouble:
            log.warning("lives that were left behind in %s could not be looked for: %s", name, trouble)
            return []
        return [(sandbox, found) for found in lives]

    async def _sweep_folders(self) -> None:
        """What this host keeps beside the logs of sessions that were deleted, or have gone elsewhere. Each is
        asked about once in ``ASK_SECONDS``."""
        folders = await to_thread.run_sync(_old, self._worker.equipment.beside("x").parent)
        for folder in folders:
            if folder.name not in self._worker.driving and await self._is_over(folder.name):
                await to_thread.run_sync(partial(shutil.rmtree, folder, ignore_errors=True))

    async def _is_over(self, session: str) -> bool:
        try:
            row = await self._worker.contact.ask(partial(self._worker.world.session, session))
        except NotFound:
            return True
        return row.status == "closed"

    async def _try(self, sandbox: Sandbox, found: FoundLife) -> bool:
        """A life that cannot be judged or ended, such as one whose log is damaged, holds up no other."""
        try:
            return await self._end_orphan(sandbox, found)
        except StorageUnavailable:
            raise
        except HarnessDurableError as trouble:
            log.warning("life %s of session %s is left as it is: %s", found.ref.life, found.session, trouble)
            return False

    async def _end_orphan(self, sandbox: Sandbox, found: FoundLife) -> bool:
        """Nothing that is driven here is read again for it. A life of another host is not ours to end."""
        if found.origin != self._worker.equipment.origin:
            return False
        state, life = await self._state(found.session), found.ref.life
        why = recovery.orphaned(state, life) if state is not None else "its session was deleted"
        if not why or not await sandbox.reap(_ref(state, found)):
            return False
        log.info("life %s of session %s was left behind and is ended: %s", life, found.session, why)
        return True

    async def _state(self, session: str) -> Session | None:
        driver = self._worker.driving.get(session)
        if driver is not None:
            return driver.journal.state
        try:
            return await self._worker.contact.ask(Reader(self._worker.world, session).load)
        except NotFound:
            return None


def _old(root: Path) -> list[Path]:
    """Folders that were not looked at for long; from now on they were."""
    before = clock.now_ms() / 1000 - ASK_SECONDS
    found = [one for one in root.glob("*") if one.is_dir() and one.stat().st_mtime < before]
    for folder in found:
        os.utime(folder)
    return found


def _ref(state: Session | None, found: FoundLife) -> LifeRef:
    """Where the log says that it is: a directory that hosts share may hold lives of another one."""
    known = state.lives.get(found.ref.life) if state is not None else None
    return ref_of(known) if known is not None else found.ref
