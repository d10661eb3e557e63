"""Driving one claimed session: look at the log, do the next thing on the ladder, until nothing is left to
do.

Every step can be cut off anywhere. That is why each looks at the log again, why whatever has an effect is
written down first, and why nothing here is remembered that the log does not know.
"""

from __future__ import annotations

import contextlib
import logging
import uuid
from collections.abc import Callable, Coroutine
from typing import Any

import anyio

from harness_durable import recovery
from harness_durable.adapter import Adapter, Harness, LifeContext, TurnEnd, policy_table
from harness_durable.crashpoints import reach
from harness_durable.errors import (
    HarnessDied,
    HarnessMissing,
    HarnessStuck,
    KeeperGone,
    SandboxUnavailable,
    UnsupportedVersion,
)
from harness_durable.events import AgentSpec, ReplayPolicy, Rung, ToolOrigin
from harness_durable.gateway import Gateway, wire
from harness_durable.journal import Journal
from harness_durable.policy import AGAIN, NOT_STARTED, UNKNOWN
from harness_durable.recovery import CallPlan, Facts, Plan
from harness_durable.runtime.equipment import Equipment
from harness_durable.runtime.groups import first_of
from harness_durable.runtime.progress import ProgressWriter
from harness_durable.sandbox import LifeRef, LifeSpec, Link, Sandbox
from harness_durable.state import Life, Session
from harness_durable.tools.host import ToolHost
from harness_durable.world import Claim, Owner, World

log = logging.getLogger("harness_durable.driver")

SETTLED = "the turn was settled"
LEAVE_SECONDS = 10.0
"""How long a planned stop may take to end a life; after that it is left to the next worker."""

_CLOSING = {"unknown": UNKNOWN, "not_started": NOT_STARTED, "again": AGAIN}


class Driver:
    """One session in the hands of one worker, under one epoch."""

    def __init__(
        self,
        journal: Journal,
        claim: Claim,
        owner: Owner,
        equipment: Equipment,
        leaving: Callable[[], bool],
    ) -> None:
        if journal.state.agent is None:
            raise ValueError(f"session {claim.session!r} has no session.created event")
        self.journal, self.claim, self.owner, self.equipment = journal, claim, owner, equipment
        self._leaving = leaving
        self._progress = ProgressWriter(journal.reader.world, claim.session)
        self.agent: AgentSpec = journal.state.agent
        self.adapter: Adapter = equipment.adapter(self.agent.adapter)
        self.sandbox: Sandbox = equipment.sandbox(self.agent.sandbox)

    @classmethod
    async def open(
        cls,
        world: World,
        claim: Claim,
        owner: Owner,
        equipment: Equipment,
        leaving: Callable[[], bool] = lambda: False,
    ) -> Driver:
        """``leaving`` tells, when we are cancelled, whether that is a planned stop of this worker."""
        reach("recovery.claimed")
        return cls(await Journal.open(world, claim), claim, owner, equipment, leaving)

    async def run(self) -> None:
        """Work until the session is idle, or waits for a person. Then give it back.

        Raises ``WriterFenced`` or ``StaleEpoch`` when a newer worker has it, ``StorageUnavailable`` when the
        World stays away; the living harness is left to whoever comes next.
        """
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self.journal.writer.watch)
            try:
                while await self._step():
                    pass
            finally:
                tasks.cancel_scope.cancel()
        await self.journal.released("nothing left to do")

    async def _step(self) -> bool:
        """One rung of the ladder. False when there is nothing left to do."""
        plan = recovery.plan(self.journal.state, await self._facts())
        reach("recovery.planned")
        log.info("session %s: %s (%s)", self.claim.session, plan.rung, plan.reason)
        match plan.rung:
            case "idle":
                with anyio.move_on_after(LEAVE_SECONDS, shield=True):
                    await self._end_life(plan, SETTLED)
                return False
            case "start":
                await self._end_life(plan, SETTLED)
                await self.journal.turn_started(plan.message)
                await self._new_life(plan, "start")
            case "attach":
                await self._attach(plan)
            case "continue":
                await self._end_life(plan, "lost with its worker")
                await self._new_life(plan, "continue")
            case "cancel":
                await self._end_life(plan, "stopped on request")
                await self._settle_calls(plan, self._tools(plan.life))
                await self.journal.turn_cancelled(plan.reason)
            case "needs_input":
                await self._end_life(plan, "given up")
                await self.journal.turn_needs_input(plan.reason)
        return True

    async def _facts(self) -> Facts:
        return await facts_for(self.journal.state, self.equipment)

    # ------------------------------------------------------------------------------------- lives

    async def _end_life(self, plan: Plan, why: str) -> None:
        """Make sure that the old life acts no more, then say so."""
        life = self.journal.state.lives.get(plan.life)
        if life is not None and life.ended is None:
            await self.journal.still_ours()
            await self.sandbox.reap(_ref(life))
        await self.journal.recovery_begun(plan, life_gone=why)

    async def _new_life(self, plan: Plan, rung: Rung) -> None:
        life = f"life-{uuid.uuid4().hex[:12]}"
        tools = self._tools(life)
        told = await self._settle_calls(plan, tools)
        try:
            harness = await self.adapter.find(self.agent.harness_version)
        except (HarnessMissing, UnsupportedVersion) as missing:
            await self.journal.turn_needs_input(str(missing))
            return
        ref = self.sandbox.locate(life)
        await self.journal.life_started(ref, plan.turn, harness.version)
        context = self._context(plan, rung, life, tools, harness, uuid.uuid4().hex)
        try:
            link = await self._launch(context, ref)
        except (SandboxUnavailable, HarnessMissing, KeeperGone) as trouble:
            await self._lost(context, str(trouble), None)
            return
        await self.journal.turn_resumed(life, rung, told) if rung != "start" else None
        reach("recovery.continued")
        await self._live(context, link, ref, settling=())

    async def _launch(self, context: LifeContext, ref: LifeRef) -> Link:
        launch = await self.adapter.prepare(context)
        spec = LifeSpec(
            life=ref.life,
            session=self.claim.session,
            argv=launch.argv,
            env=launch.env,
            cwd=self.agent.workspace,
            files=launch.files,
            token=context.token,
        )
        _, link = await self.sandbox.start(spec, self.claim.epoch)
        return link

    async def _attach(self, plan: Plan) -> None:
        """The harness goes on undisturbed; what ran inside the dead worker is settled beside it."""
        life = self.journal.state.lives[plan.life]
        try:
            link = await self.sandbox.attach(_ref(life), self.claim.epoch)
        except KeeperGone:
            await self._end_life(plan, "its keeper is gone")
            return
        tools = self._tools(life.id)
        await self.journal.recovery_begun(plan, life_gone="")
        await self.journal.life_attached(life.id, self.owner.worker)
        await self._close_calls(plan)
        await self.journal.turn_resumed(life.id, "attach")
        harness = Harness("", life.harness_version)
        context = self._context(plan, "attach", life.id, tools, harness, link.token)
        reach("recovery.continued")
        settling = tuple(call for call in plan.calls if call.action in ("run", "probe"))
        await self._live(context, link, _ref(life), settling=settling)

    async def _live(
        self, context: LifeContext, link: Link, ref: LifeRef, *, settling: tuple[CallPlan, ...]
    ) -> None:
        """Drive a life until its turn is settled or the life is over."""
        gateway = Gateway(
            journal=self.journal,
            wire=wire(self.adapter.wire),
            upstream=self.equipment.upstream(),
            life=context.life,
            token=context.token,
            ready=context.ready,
            classify=self._classifier(context.tools),
            on_progress=self._progress.model,
        )
        try:
            end = await first_of(
                lambda: self._drive(context, link, gateway),
                lambda: gateway.serve(link.requests()),
                self._progress.run,
                *(self._settler(context.tools, call) for call in settling),
            )
        except (HarnessDied, HarnessStuck, KeeperGone) as gone:
            code = gone.code if isinstance(gone, HarnessDied) else None
            await self.journal.still_ours()
            await self.sandbox.reap(ref)
            await self._lost(context, str(gone), code)
            return
        except anyio.get_cancelled_exc_class():
            if self._leaving():
                with anyio.move_on_after(LEAVE_SECONDS, shield=True):
                    await self._leave(context, link, ref)
            raise
        finally:
            with anyio.CancelScope(shield=True):
                await link.aclose()
        # Whoever waits for the result may close everything as soon as the turn is settled.
        with anyio.move_on_after(LEAVE_SECONDS, shield=True):
            await self._settle(end)
            await self.sandbox.reap(ref)
            await self.journal.life_ended(context.life, SETTLED)
            await self.journal.steers_requeued()

    async def _drive(self, context: LifeContext, link: Link, gateway: Gateway) -> TurnEnd:
        """An answer that was on its way when the harness died is paid for: it is recorded first."""
        try:
            return await self.adapter.drive(context, link)
        except (HarnessDied, HarnessStuck, KeeperGone):
            await gateway.drained()
            raise

    async def _leave(self, context: LifeContext, link: Link, ref: LifeRef) -> None:
        """A planned stop: end the life through its keeper, which refuses us if a newer worker has it."""
        with contextlib.suppress(KeeperGone):
            await link.shutdown()
        await self.sandbox.reap(ref)
        await self.journal.life_ended(context.life, "the worker was stopped")
        await self.journal.turn_interrupted("the worker was stopped", planned=True)
        await self.journal.released("the worker was stopped")

    async def _lost(self, context: LifeContext, why: str, code: int | None) -> None:
        await self.journal.life_ended(context.life, why, code)
        await self.journal.turn_interrupted(why)

    async def _settle(self, end: TurnEnd) -> None:
        match end.kind:
            case "completed":
                await self.journal.turn_completed(end.text)
            case "failed":
                await self.journal.turn_failed(end.code, end.reason)
            case "cancelled":
                await self.journal.turn_cancelled(end.reason)

    # ------------------------------------------------------------------------------------- calls

    async def _settle_calls(self, plan: Plan, tools: ToolHost) -> tuple[str, ...]:
        """Give every call that was cut off its outcome, unless the harness itself will run it. Returns what
        the model is told, as sentences for the log."""
        await self._close_calls(plan)
        async with anyio.create_task_group() as tasks:
            for call in plan.calls:
                if call.action in ("run", "probe"):
                    tasks.start_soon(self._settler(tools, call))
        return tuple(f"{call.name} ({call.call}): {call.action}, {call.why}" for call in plan.calls)

    async def _close_calls(self, plan: Plan) -> None:
        await self.journal.tools_closed(
            [
                (call.call, "unknown" if call.action == "unknown" else "not_started", _CLOSING[call.action])
                for call in plan.calls
                if call.action in _CLOSING
            ]
        )

    def _settler(self, tools: ToolHost, call: CallPlan) -> Callable[[], Coroutine[Any, Any, None]]:
        async def settle() -> None:
            action = "probe" if call.action == "probe" else "run"
            await tools.settle(self.journal.state.tool_calls[call.call], action)

        return settle

    def _tools(self, life: str) -> ToolHost:
        return ToolHost(
            self.equipment.tools,
            self.journal,
            self.claim.session,
            life,
            custom_name=self.adapter.custom_name,
            progress=self._progress.tool,
        )

    def _classifier(self, tools: ToolHost) -> Callable[[str], tuple[ReplayPolicy, ToolOrigin]]:
        """Policy and origin of a tool by the name that the model used; an unknown one is never repeated."""
        builtin = policy_table(self.adapter, self.agent.policies)
        custom = tools.policies

        def classify(name: str) -> tuple[ReplayPolicy, ToolOrigin]:
            if name in custom:
                return custom[name], "custom"
            return builtin.get(name, "never"), "builtin"

        return classify

    def _context(
        self, plan: Plan, rung: Rung, life: str, tools: ToolHost, harness: Harness, token: str
    ) -> LifeContext:
        return LifeContext(
            session=self.claim.session,
            life=life,
            turn=plan.turn,
            rung=rung,
            agent=self.agent,
            harness=harness,
            journal=self.journal,
            tools=tools,
            token=token,
            home=f"{self.sandbox.locate(life).run_dir}/home",
            ready=anyio.Event(),
        )


def _ref(life: Life) -> LifeRef:
    return LifeRef(life.id, life.sandbox, life.run_dir, life.host)


async def facts_for(state: Session, equipment: Equipment) -> Facts:
    """What recovery must know beside the log: is the keeper alive, what are today's policies."""
    if state.agent is None:
        return Facts(False)
    adapter, sandbox = equipment.adapter(state.agent.adapter), equipment.sandbox(state.agent.sandbox)
    alive = state.life is not None and await sandbox.alive(_ref(state.life))
    ours = {adapter.custom_name(tool.name): tool for tool in equipment.tools}
    policies: dict[str, ReplayPolicy] = {**adapter.policies, **state.agent.policies}
    policies.update((name, tool.replay) for name, tool in ours.items())
    probes = frozenset(name for name, tool in ours.items() if tool.probe is not None)
    return Facts(alive, policies, probes, adapter.containers)
