"""Driving one claimed session: look at the log, do the next thing on the ladder, until nothing is left to do.

Every step can be cut off anywhere. That is why each looks at the log again, why whatever has an effect is
written down first, and why nothing here is remembered that the log does not know.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass

import anyio

from harness_durable import clock, recovery
from harness_durable.crashpoints import reach
from harness_durable.errors import DamagedLog
from harness_durable.journal import Journal, Known
from harness_durable.runtime.equipment import Equipment
from harness_durable.runtime.files import SessionFiles
from harness_durable.runtime.lives import LEAVE_SECONDS, SETTLED, Lives
from harness_durable.state import Session
from harness_durable.world import Claim, Owner, World

log = logging.getLogger("harness_durable.driver")

STOPPED = "the worker was stopped"

PAUSE = 0.5
"""Seconds before the third life of a turn that made no progress; twice as many before the fourth."""


def _never(turns: int) -> bool:
    return False


def _as_it_is(trouble: Exception) -> int | None:
    return None


@dataclass(frozen=True)
class Terms:
    """On what terms a worker drives a session.

    ``yields`` is asked before a turn is started, with how many this driver has started: whether to give the
    session back instead, still due. ``later`` says when (ms, wall clock) one that could not be driven is due
    again, for all workers; whoever asks for it by name, or sends it a message, has it tried at once. Once
    ``leaving`` is set, the driver leaves as soon as that costs nothing. ``keep``: a harness that runs when we
    have to go is left to its keeper, and its session to whoever would find it after a crash."""

    yields: Callable[[int], bool] = _never
    later: Callable[[Exception], int | None] = _as_it_is
    leaving: anyio.Event | None = None
    keep: bool = False


UNTIL_IDLE = Terms()
"""Those of programs that drive what they have sent themselves: to its end."""


class Driver:
    """One session in the hands of one worker, under one epoch. ``kept``: its harness was left running."""

    def __init__(
        self,
        journal: Journal,
        claim: Claim,
        owner: Owner,
        equipment: Equipment,
        abandoned: Callable[[], bool],
        terms: Terms,
        files: SessionFiles,
    ) -> None:
        agent = journal.state.agent
        if agent is None:
            raise DamagedLog(f"session {claim.session!r}", 0, None, "it has no session.created event")
        equipment.check_tools(agent)
        files.take(agent)
        self.journal, self.claim, self.equipment = journal, claim, equipment
        self.lives = Lives(journal, claim, owner, agent, equipment, files)
        self.kept = self._parks = False
        self._why = STOPPED
        self._abandoned, self._terms = abandoned, terms
        self._since = clock.monotonic()
        self._turns = 0

    @classmethod
    async def open(
        cls,
        world: World,
        claim: Claim,
        owner: Owner,
        equipment: Equipment,
        abandoned: Callable[[], bool] = lambda: False,
        terms: Terms = UNTIL_IDLE,
        known: Known | None = None,
    ) -> Driver:
        """``abandoned`` tells, when we are cancelled, whether the session may be somebody else's by now; if
        it is not, being cancelled is a planned stop.

        Raises ``BadTool`` for a session that needs tools we do not have, ``UnknownName``, ``DamagedLog``,
        ``LogTooNew``: another worker may have more luck with it.
        """
        reach("recovery.claimed")
        files = SessionFiles(world, claim.session, equipment)
        journal = await Journal.open(world, claim, tracker=files, known=known)
        return cls(journal, claim, owner, equipment, abandoned, terms, files)

    async def run(self) -> None:
        """Work until the session is idle, or waits for a person. Then give it back.

        Raises ``WriterFenced`` or ``StaleEpoch`` when a newer worker has it, ``StorageUnavailable`` when the
        World stays away, ``SandboxUnavailable`` when no life can be started now.
        """
        work = anyio.CancelScope()
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self.journal.watch)
            tasks.start_soon(self.lives.progress.run)
            with work:
                tasks.start_soon(self._leave_when_told, work)
                tasks.start_soon(self._leave_when_nobody_answers, work)
                await self._work()
            tasks.cancel_scope.cancel()
        if not work.cancelled_caught:
            idle = self.journal.state.due is None
            await self.journal.released("nothing left to do" if idle else "others come first")
        if self.journal.state.closed:
            self.lives.files.forget()

    async def _work(self) -> None:
        try:
            while await self._step():
                pass
        except anyio.get_cancelled_exc_class():
            if not self._abandoned():
                self.kept = await self.lives.leave(self._why, keep=self._terms.keep and not self._parks)
            raise

    async def _leave_when_told(self, work: anyio.CancelScope) -> None:
        if self._terms.leaving is None:
            return
        await self._terms.leaving.wait()
        containers = self.lives.adapter.containers
        await self.journal.when(lambda state: recovery.may_leave(state, containers), work.cancel)

    async def _leave_when_nobody_answers(self, work: anyio.CancelScope) -> None:
        """A person may take days, and a slot and a harness that wait for one are of no use to anybody."""
        while not self._parks:
            await self.journal.until(lambda state: bool(state.unanswered))
            await self._park_unless_answered(work, self.journal.state.unanswered)

    async def _park_unless_answered(self, work: anyio.CancelScope, asked: frozenset[str]) -> None:
        containers = self.lives.adapter.containers

        def decided(state: Session) -> bool:
            return not asked & state.unanswered or recovery.at_rest(state, containers)

        def park() -> None:
            if asked & self.journal.state.unanswered:
                self._parks, self._why = True, "a person is asked, and has not answered yet"
                work.cancel()

        await clock.sleep(self.equipment.settings.permission_patience_seconds)
        await self.journal.when(decided, park)

    async def _pause(self) -> None:
        """Lives that made no progress are given a moment: what kept them from it may pass."""
        turn = self.journal.state.turn
        if turn is not None and turn.fruitless > 1:
            await clock.sleep(PAUSE * 2 ** (turn.fruitless - 2))

    async def _step(self) -> bool:
        """One rung of the ladder. False when there is nothing left to do."""
        store_now = self.claim.now + int((clock.monotonic() - self._since) * 1000)
        facts = await self.equipment.facts(self.journal.state, now=store_now)
        plan = recovery.plan(self.journal.state, facts)
        reach("recovery.planned")
        log.info("session %s: %s (%s)", self.claim.session, plan.rung, plan.reason)
        match plan.rung:
            case "idle":
                with anyio.move_on_after(LEAVE_SECONDS, shield=True):
                    await self.lives.end(plan, SETTLED if self.journal.state.turn is None else plan.reason)
                return False
            case "start" if self._terms.yields(self._turns):
                with anyio.move_on_after(LEAVE_SECONDS, shield=True):
                    await self.lives.end(plan, SETTLED)
                return False
            case "start":
                self._turns += 1
                await self.lives.end(plan, SETTLED)
                if await self.journal.turn_started(plan.message):
                    await self.lives.begin(plan, "start")
            case "attach" if self.claim.session in self.equipment.rollback:
                await self.lives.end(plan, "its files are to be put back")
            case "attach":
                await self.lives.attach(plan)
            case "continue":
                await self.lives.end(plan, "lost with its worker")
                await self._pause()
                await self.lives.begin(plan, "continue")
            case "cancel":
                await self.lives.end(plan, "stopped on request")
                await self.lives.files.look(self.journal)
                await self.lives.cut_off.settle(plan, self.lives.tools(plan.life), stoppable=False)
                await self.journal.turn_cancelled(plan.reason)
            case "needs_input":
                await self.lives.end(plan, "given up")
                await self.journal.turn_needs_input(plan.reason)
        return True
