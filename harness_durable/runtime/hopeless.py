"""Sessions that nobody has been able to drive for too long: they are put before a person.

What keeps a session from being driven here (tools, an adapter, a damaged log) another worker may have, so all
get their chance first. But one that is claimed and fails for ever costs every worker, and nobody hears of it.
"""

from __future__ import annotations

import logging

import msgspec

from harness_durable import clock
from harness_durable.errors import (
    BadTool,
    DamagedLog,
    HarnessDurableError,
    LogTooNew,
    SandboxUnavailable,
    StaleEpoch,
    StorageUnavailable,
    UnknownName,
    WriterFenced,
)
from harness_durable.journal import Journal, set_aside
from harness_durable.runtime.equipment import ref_of
from harness_durable.runtime.worker import Worker
from harness_durable.world import Claim

log = logging.getLogger("harness_durable.worker")

FAILURES, SECONDS = 8, 180.0
"""In a row, and since the first of them: so that a worker that starts meanwhile has had its chance."""

PASSING = (StorageUnavailable, WriterFenced, StaleEpoch, SandboxUnavailable, LogTooNew)
"""Not the session's fault, or not ours to write about: a newer worker will understand its log."""


UNREAD = (BadTool, UnknownName, LogTooNew, DamagedLog)
"""What keeps a worker from even beginning, so that it writes nothing but its claim."""


class Failures(msgspec.Struct):
    """Of one session, as one worker has seen them. ``count``: in a row, for the pauses between them;
    ``streak``: those between which nothing but claims came into the log. Whatever else did is somebody's
    success, or news."""

    count: int = 0
    streak: int = 0
    since: float = 0.0
    told: int = -1

    def add(self, claim: Claim, trouble: Exception) -> int:
        """One more; the count now."""
        told = claim.head - claim.epoch
        if told != self.told:
            self.told, self.streak, self.since = told, 0, clock.monotonic()
            self.count = 0 if isinstance(trouble, UNREAD) else self.count
        self.count, self.streak = self.count + 1, self.streak + 1
        return self.count

    def are_enough(self, trouble: Exception) -> bool:
        lasted = clock.monotonic() - self.since
        return self.streak >= FAILURES and lasted >= SECONDS and not isinstance(trouble, PASSING)


async def give_up(worker: Worker, session: str, trouble: Exception) -> bool:
    """Its turn, or that of its next message, waits for a person from now on; a session whose log cannot be
    read is parked as ``damaged``. False if that could not be done now."""
    try:
        claim = await worker.world.claim_session(worker.owner, session)
        try:
            await _put_before_a_person(worker, claim, f"no worker could drive it: {trouble}")
        except DamagedLog:
            await set_aside(worker.world, claim, "damaged")
        finally:
            await worker.world.release(session, claim.epoch)
    except HarnessDurableError as other:
        log.warning("session %s could not be put before a person: %s", session, other)
        return False
    log.warning("session %s waits for a person: %s", session, trouble)
    return True


async def _put_before_a_person(worker: Worker, claim: Claim, why: str) -> None:
    """Raises ``DamagedLog``, and what a store, a sandbox and the registry raise."""
    journal = await Journal.open(worker.world, claim)
    life, message = journal.state.life, journal.state.next_message(clock.now_ms())
    if life is not None:
        await worker.equipment.sandbox(life.sandbox).reap(ref_of(life), claim.epoch)
        await journal.life_lost(life.id, why, planned=True)
    if message is not None:
        await journal.turn_started(message.id)
    await journal.turn_needs_input(why)
    await journal.released(why)
