"""Ending lives on this host that nobody will come back for.

The session went on elsewhere while this host's worker was away, or it was deleted: then a keeper would hold
its harness until its ``ttl``. Every worker looks for such lives at its start and again and again. Only the
log decides, and only about lives that belong to this World and app.
"""

from __future__ import annotations

import logging
import random

from harness_durable import clock, recovery
from harness_durable.errors import HarnessDurableError, NotFound, StorageUnavailable
from harness_durable.journal import Reader
from harness_durable.runtime.equipment import ref_of
from harness_durable.runtime.worker import Worker
from harness_durable.sandbox import FoundLife, LifeRef, ListsLives, Sandbox
from harness_durable.state import Session

log = logging.getLogger("harness_durable.worker")

SWEEP_SECONDS = 30.0


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
        """Look once; the ids of the lives that were ended. Raises ``StorageError`` or ``SandboxError``."""
        ended: list[str] = []
        for sandbox in self._worker.equipment.sandboxes():
            if isinstance(sandbox, ListsLives):
                for found in await sandbox.list_lives():
                    if await self._try(sandbox, found):
                        ended.append(found.ref.life)
        return ended

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


def _ref(state: Session | None, found: FoundLife) -> LifeRef:
    """Where the log says that it is: a directory that hosts share may hold lives of another one."""
    known = state.lives.get(found.ref.life) if state is not None else None
    return ref_of(known) if known is not None else found.ref
