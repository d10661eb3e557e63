"""Driving one claimed session: look at the log, do the next thing on the ladder, until nothing is left to do.

Every step can be cut off anywhere. That is why each looks at the log again, why whatever has an effect is
written down first, and why nothing here is remembered that the log does not know.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

import anyio

from harness_durable import clock, recovery
from harness_durable.crashpoints import reach
from harness_durable.errors import DamagedLog
from harness_durable.journal import Journal
from harness_durable.runtime.equipment import Equipment
from harness_durable.runtime.lives import LEAVE_SECONDS, SETTLED, Lives
from harness_durable.world import Claim, Owner, World

log = logging.getLogger("harness_durable.driver")

PAUSE = 0.5
"""Seconds before the third life of a turn that made no progress; twice as many before the fourth."""


class Driver:
    """One session in the hands of one worker, under one epoch."""

    def __init__(
        self,
        journal: Journal,
        claim: Claim,
        owner: Owner,
        equipment: Equipment,
        abandoned: Callable[[], bool],
    ) -> None:
        agent = journal.state.agent
        if agent is None:
            raise DamagedLog(f"session {claim.session!r}", 0, None, "it has no session.created event")
        equipment.check_tools(agent)
        self.journal, self.claim, self.equipment = journal, claim, equipment
        self.lives = Lives(journal, claim, owner, agent, equipment)
        self._abandoned = abandoned

    @classmethod
    async def open(
        cls,
        world: World,
        claim: Claim,
        owner: Owner,
        equipment: Equipment,
        abandoned: Callable[[], bool] = lambda: False,
    ) -> Driver:
        """``abandoned`` tells, when we are cancelled, whether the session may be somebody else's by now; if
        it is not, being cancelled is a planned stop.

        Raises ``BadTool`` for a session that needs tools we do not have, ``UnknownName``, ``DamagedLog``,
        ``LogTooNew``: another worker may have more luck with it.
        """
        reach("recovery.claimed")
        return cls(await Journal.open(world, claim), claim, owner, equipment, abandoned)

    async def run(self) -> None:
        """Work until the session is idle, or waits for a person. Then give it back.

        Raises ``WriterFenced`` or ``StaleEpoch`` when a newer worker has it, ``StorageUnavailable`` when the
        World stays away, ``SandboxUnavailable`` when no life can be started now.
        """
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self.journal.watch)
            try:
                while await self._step():
                    pass
            except anyio.get_cancelled_exc_class():
                if not self._abandoned():
                    await self.lives.leave()
                raise
            finally:
                tasks.cancel_scope.cancel()
        await self.journal.released("nothing left to do")

    async def _pause(self) -> None:
        """Lives that made no progress are given a moment: what kept them from it may pass."""
        turn = self.journal.state.turn
        if turn is not None and turn.fruitless > 1:
            await clock.sleep(PAUSE * 2 ** (turn.fruitless - 2))

    async def _step(self) -> bool:
        """One rung of the ladder. False when there is nothing left to do."""
        facts = await self.equipment.facts(self.journal.state)
        plan = recovery.plan(self.journal.state, facts)
        reach("recovery.planned")
        log.info("session %s: %s (%s)", self.claim.session, plan.rung, plan.reason)
        match plan.rung:
            case "idle":
                with anyio.move_on_after(LEAVE_SECONDS, shield=True):
                    await self.lives.end(plan, SETTLED)
                return False
            case "start":
                await self.lives.end(plan, SETTLED)
                await self.journal.turn_started(plan.message)
                await self.lives.begin(plan, "start")
            case "attach":
                await self.lives.attach(plan)
            case "continue":
                await self.lives.end(plan, "lost with its worker")
                await self._pause()
                await self.lives.begin(plan, "continue")
            case "cancel":
                await self.lives.end(plan, "stopped on request")
                await self.lives.cut_off.settle(plan, self.lives.tools(plan.life), stoppable=False)
                await self.journal.turn_cancelled(plan.reason)
            case "needs_input":
                await self.lives.end(plan, "given up")
                await self.journal.turn_needs_input(plan.reason)
        return True
