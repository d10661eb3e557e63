"""The worker service: claims what is due, as many sessions as it has slots, until it is told to stop.

Fair: a session with more messages gives its slot back after each turn while every slot is taken, and goes to
the end of the queue. Bounded: no question to the store hangs (``contact``), no helper can stall unnoticed
(``watch``). To be told to stop is no failure: turns get ``drain_seconds`` to settle, or to come to a point at
which it costs nothing to leave them; then they are ended as planned, which uses up no attempt.
"""

from __future__ import annotations

import logging
import random
from collections.abc import Callable
from functools import partial

import anyio
from anyio.abc import TaskGroup

from harness_durable import clock
from harness_durable.errors import (
    BadTool,
    HarnessDurableError,
    LogTooNew,
    StorageUnavailable,
    UnknownName,
    WorkspaceMissing,
)
from harness_durable.runtime.driver import Terms
from harness_durable.runtime.groups import beside
from harness_durable.runtime.hopeless import Failures, give_up
from harness_durable.runtime.lease import STORE_PAUSE
from harness_durable.runtime.orphans import Sweeper
from harness_durable.runtime.worker import Worker
from harness_durable.world import ANSWER_SECONDS, NOW, Claim

log = logging.getLogger("harness_durable.worker")

UNFIT = (BadTool, UnknownName, LogTooNew, WorkspaceMissing)
"""What another worker may have and this one lacks: tools, an adapter, a newer version, a folder."""

MOST_PATIENT = 60.0
"""Seconds. The longest pause between two tries at a session that cannot be driven now."""

NEWER_SECONDS = 600.0
"""The same for one that a newer version has written to, which is there until we are replaced."""

LOOK_SECONDS = 1.0
"""How long the queue is waited on at a time, so that the loop is seen to go round; and how often that is
watched."""


class Service:
    """One per process. ``rounds`` counts how often the claim loop went round; ``hung`` says that it does not;
    ``stopped`` that somebody said ``stop``, which calls ``stopping``. ``alive`` is called about once a
    second, as long as there is progress."""

    def __init__(
        self,
        worker: Worker,
        *,
        alive: Callable[[], None] = lambda: None,
        stopping: Callable[[], None] = lambda: None,
    ) -> None:
        self.worker, self.settings = worker, worker.equipment.settings
        self._alive, self._stopping = alive, stopping
        self.rounds, self.hung, self.stopped = 0, False, False
        self.claims: set[Claim] = set()
        self._at_once = self._woken = False
        self._leaving = anyio.Event()
        self._waiting = anyio.CancelScope()
        self._abstain_until = 0.0
        self._failures: dict[str, Failures] = {}

    @property
    def free(self) -> int:
        """Slots without a session."""
        return max(0, self.settings.concurrency - len(self.claims))

    def stop(self) -> None:
        """Claim nothing more, let turns settle; said again: end them now. Called by signal handlers."""
        if not self.stopped:
            self._stopping()
        self._at_once, self.stopped = self.stopped, True
        self._leaving.set()
        self._wake()

    async def run(self) -> None:
        """Serve until ``stop`` was said and nothing runs here any more. To be cancelled ends what runs at
        once, as planned. Raises ``StorageUnavailable`` when a new start is better than going on."""
        async with beside() as helpers:
            helpers.start_soon(self._watch)
            helpers.start_soon(Sweeper(self.worker).run)
            async with beside() as drivers:
                await self._claim(drivers)
                await self._drain()

    async def _watch(self) -> None:
        """Notices that nothing happens any more. Counts rounds: a process that was paused has not hung."""
        seen, still = 0, 0
        while True:
            await clock.sleep(LOOK_SECONDS)
            self.worker.contact.give_up_after(self.settings.store_patience_seconds)
            still = 0 if self.stopped or self.rounds != seen else still + 1
            seen = self.rounds
            self.hung = still * LOOK_SECONDS > 2 * ANSWER_SECONDS
            if still * LOOK_SECONDS > 2 * ANSWER_SECONDS + self.settings.store_patience_seconds:
                raise StorageUnavailable(
                    "the store gives no answer, and does not let go of the question either; this worker ends "
                    "with an error, so that whoever supervises it starts it anew. Nothing is lost"
                )
            if not self.hung:
                self._alive()

    # ----------------------------------------------------------------------------------- claiming

    async def _claim(self, drivers: TaskGroup) -> None:
        pause = 0.1
        while not self.stopped:
            self.rounds += 1
            try:
                await self._fill(drivers)
                await self._look()
                pause = 0.1
            except StorageUnavailable as trouble:
                level = logging.WARNING if pause < STORE_PAUSE else logging.DEBUG
                log.log(level, "no sessions can be claimed: %s", trouble)
                await self._sleep(pause * random.uniform(0.5, 1.0))
                pause = min(pause * 2, STORE_PAUSE, self.settings.store_patience_seconds / 4)
        self.worker.contact.needs_no_more("queue")

    async def _fill(self, drivers: TaskGroup) -> None:
        for claim in await self.worker.claim(self._room()) if self._room() else ():
            self.claims.add(claim)
            drivers.start_soon(self._drive, claim)

    def _room(self) -> int:
        abstains = clock.monotonic() < self._abstain_until or not self.worker.holds_lease
        return 0 if abstains else self.free

    async def _look(self) -> None:
        """Return when a session may have become due, or a slot free, or we are told to stop."""
        if not self._room():
            await self._sleep(LOOK_SECONDS)
            return
        look = partial(self.worker.world.wait_due, LOOK_SECONDS)
        with anyio.CancelScope() as self._waiting:
            if not self._woken:
                await self.worker.contact.ask(look, need="queue")
        self._woken = False

    async def _sleep(self, seconds: float) -> None:
        """Until somebody calls ``_wake``."""
        with anyio.CancelScope() as self._waiting:
            if not self._woken:
                await clock.sleep(seconds)
        self._woken = False

    def _wake(self) -> None:
        self._woken = True
        self._waiting.cancel()

    # ------------------------------------------------------------------------------------ driving

    async def _drive(self, claim: Claim) -> None:
        """One session that cannot be driven is tried again later and later, and holds up no other."""
        session = claim.session
        later, keep = partial(self._later, claim), self.settings.on_stop == "keep"
        try:
            terms = Terms(self._yields, later, self._leaving, keep)
            await self.worker.drive_claimed(claim, self.worker.equipment, terms)
            self._failures.pop(session, None)
        except Exception as trouble:
            if not isinstance(trouble, HarnessDurableError):
                log.exception("session %s", session)
            await self._failed(session, trouble)
        finally:
            self.claims.discard(claim)
            self._wake()

    async def _failed(self, session: str, trouble: Exception) -> None:
        failures = self._failures.get(session)
        if failures is not None and failures.are_enough(trouble):
            if await give_up(self.worker, session, trouble):
                self._failures.pop(session, None)
            return
        log.warning("session %s is tried again later: %s", session, trouble)

    def _yields(self, turns: int) -> bool:
        """Before its next turn: are others first?"""
        return self.stopped or (turns > 0 and not self.free)

    def _later(self, claim: Claim, trouble: Exception) -> int:
        """When it is due again, for all workers. What another worker may have is left to it: due at once the
        first time, while this worker holds back for a moment."""
        failures = self._failures.setdefault(claim.session, Failures()).add(claim, trouble)
        longest = NEWER_SECONDS if isinstance(trouble, LogTooNew) else MOST_PATIENT
        if isinstance(trouble, UNFIT):
            failures -= 1
            self._abstain_until = clock.monotonic() + LOOK_SECONDS
        pause = min(2.0 ** min(failures - 1, 16), longest) if failures else 0.0
        return clock.now_ms() + int(pause * 1000) if pause else NOW

    # ----------------------------------------------------------------------------------- stopping

    async def _drain(self) -> None:
        seconds = self.settings.drain_seconds
        if self.claims:
            log.info(
                "stopping: nothing new is claimed; up to %g s for %s to settle; once more stops at once",
                seconds,
                self._named(),
            )
        give_up = clock.monotonic() + seconds
        while self.claims and not self._at_once and (left := give_up - clock.monotonic()) > 0:
            await self._sleep(left)
        if self.claims:
            log.info("ending %s; what was begun goes on elsewhere, from the log", self._named())

    def _named(self) -> str:
        """The sessions in its slots, for people."""
        names = sorted(claim.session for claim in self.claims)
        more = f" and {len(names) - 5} more" if len(names) > 5 else ""
        return f"{len(names)} session{'s' * (len(names) != 1)} ({', '.join(names[:5])}{more})"
