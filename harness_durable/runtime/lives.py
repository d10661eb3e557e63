"""Lives of one session: how a worker begins one, attaches to one, drives it, and ends it.

A life is written down before it is started, and ended before that is written down, so that whoever comes
after a crash knows what may still be acting. Before a life is ended by force we make sure that the session is
still ours: it might be a newer owner's life by now.
"""

from __future__ import annotations

import contextlib
import logging
import uuid
from collections.abc import AsyncGenerator, Sequence

import anyio

from harness_durable.adapter import Harness, LifeContext, TurnEnd
from harness_durable.crashpoints import reach
from harness_durable.errors import (
    BadSetting,
    HarnessDied,
    HarnessDurableError,
    HarnessMissing,
    HarnessStuck,
    KeeperGone,
    KeeperIncompatible,
    SandboxUnavailable,
    StaleEpoch,
    StorageError,
    UnsupportedVersion,
    WorkspaceMissing,
)
from harness_durable.events import AgentSpec, Rung
from harness_durable.gateway import Gateway, wire
from harness_durable.journal import Journal
from harness_durable.recovery import CallPlan, Plan
from harness_durable.runtime.cutoff import CutOff, stop_asked
from harness_durable.runtime.equipment import Equipment, ref_of
from harness_durable.runtime.groups import first_of
from harness_durable.runtime.progress import ProgressWriter
from harness_durable.sandbox import LifeRef, LifeSpec, Link
from harness_durable.tools.host import ToolHost
from harness_durable.world import Claim, Owner

log = logging.getLogger("harness_durable.lives")

SETTLED = "the turn was settled"
LEAVE_SECONDS = 15.0
"""How long ending a life may take when we have to go; after that it is left to the next worker."""


class Lives:
    """At most one life at a time is ours."""

    def __init__(
        self, journal: Journal, claim: Claim, owner: Owner, agent: AgentSpec, equipment: Equipment
    ) -> None:
        self.journal, self.claim, self.owner = journal, claim, owner
        self.agent, self.equipment = agent, equipment
        self.adapter = equipment.adapter(agent.adapter)
        self.sandbox = equipment.sandbox(agent.sandbox)
        self.cut_off = CutOff(journal)
        self._progress = ProgressWriter(journal.reader.world, claim.session)

    # -------------------------------------------------------------------------- beginning, ending

    async def begin(self, plan: Plan, rung: Rung) -> None:
        """A new life for the turn, driven to its end.

        Raises ``SandboxUnavailable`` when it could not be started: no fault of the harness, so it uses up
        nothing, and the caller tries again later.
        """
        life = f"life-{uuid.uuid4().hex[:12]}"
        tools = self.tools(life)
        told = await self.cut_off.settle(plan, tools, stoppable=True)
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
        except (WorkspaceMissing, BadSetting) as missing:
            await self._lost(context, str(missing), None, planned=True)
            await self.journal.turn_needs_input(str(missing))
            return
        except SandboxUnavailable as trouble:
            await self._lost(context, str(trouble), None, planned=True)
            raise
        except (HarnessMissing, KeeperGone) as trouble:
            await self._lost(context, str(trouble), None)
            return
        async with _closing(link):
            if rung != "start":
                await self.journal.turn_resumed(life, rung, told)
            reach("recovery.continued")
            await self._live(context, link, ref, settling=())

    async def attach(self, plan: Plan) -> None:
        """The harness goes on undisturbed; what ran inside the dead worker is settled beside it."""
        life = self.journal.state.lives[plan.life]
        try:
            link = await self.sandbox.attach(ref_of(life), self.claim.epoch)
        except KeeperGone as gone:
            why = str(gone) if isinstance(gone, KeeperIncompatible) else "its keeper is gone"
            await self.end(plan, why)
            return
        async with _closing(link):
            tools = self.tools(life.id)
            await self.journal.recovery_begun(plan, life_gone="")
            await self.journal.life_attached(life.id, self.owner.worker)
            await self.cut_off.close(plan)
            await self.journal.turn_resumed(life.id, "attach")
            harness = Harness("", life.harness_version)
            context = self._context(plan, "attach", life.id, tools, harness, link.token)
            reach("recovery.continued")
            settling = tuple(call for call in plan.calls if call.action in ("run", "probe"))
            await self._live(context, link, ref_of(life), settling=settling)

    async def end(self, plan: Plan, why: str) -> None:
        """Make sure that the old life acts no more, then say so."""
        life = self.journal.state.lives.get(plan.life)
        if life is not None and life.ended is None:
            await self.journal.still_ours()
            if not await self.sandbox.reap(ref_of(life)):
                why = f"{why}; it was on {life.host}, which cannot be reached from here"
        await self.journal.recovery_begun(plan, life_gone=why)

    async def leave(self) -> None:
        """A planned stop: whatever of ours is running is ended, and none of it counts as a failure."""
        with anyio.move_on_after(LEAVE_SECONDS, shield=True):
            try:
                await self.journal.still_ours()
                life = self.journal.state.life
                if life is not None:
                    await self.sandbox.reap(ref_of(life))
                    await self.journal.life_lost(life.id, "the worker was stopped", planned=True)
                await self.journal.turn_interrupted("the worker was stopped", planned=True)
                await self.journal.released("the worker was stopped")
            except HarnessDurableError as trouble:
                log.warning("session %s is left as it is: %s", self.claim.session, trouble)

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

    # ------------------------------------------------------------------------------------ driving

    async def _live(
        self, context: LifeContext, link: Link, ref: LifeRef, *, settling: Sequence[CallPlan]
    ) -> None:
        """Drive a life until its turn is settled or the life is over. Only a store or an owner that is gone
        gets out of here; whatever else goes wrong costs this life."""
        gateway = Gateway(
            journal=self.journal,
            wire=wire(self.adapter.wire),
            upstream=self.equipment.upstream(),
            life=context.life,
            token=context.token,
            ready=context.ready,
            classify=self.equipment.classifier(self.agent),
            on_progress=self._progress.model,
        )
        try:
            end = await first_of(
                lambda: self._drive(context, link, gateway),
                lambda: self._serve(gateway, link),
                self._progress.run,
                *(self.cut_off.settler(context.tools, call) for call in settling),
            )
        except (StorageError, StaleEpoch):
            raise
        except Exception as gone:
            if not isinstance(gone, HarnessDurableError):
                log.exception("life %s of session %s", context.life, self.claim.session)
            await self.journal.still_ours()
            await self.sandbox.reap(ref)
            await self._lost(context, _sentence(gone), gone.code if isinstance(gone, HarnessDied) else None)
            return
        # Whoever waits for the result may close everything as soon as the turn is settled.
        with anyio.move_on_after(LEAVE_SECONDS, shield=True):
            await self._settle(end)
            await self.sandbox.reap(ref)
            await self.journal.life_ended(context.life, SETTLED)

    async def _serve(self, gateway: Gateway, link: Link) -> None:
        """A keeper that is gone is for the adapter to find out, after it has read what was still written."""
        with contextlib.suppress(KeeperGone):
            await gateway.serve(link.requests())

    async def _drive(self, context: LifeContext, link: Link, gateway: Gateway) -> TurnEnd:
        """An answer that was on its way when the harness died is paid for: it is recorded first."""
        try:
            return await self.adapter.drive(context, link)
        except (HarnessDied, HarnessStuck, KeeperGone):
            await self._drain(gateway)
            raise

    async def _drain(self, gateway: Gateway) -> None:
        """Until what is paid for is recorded, or until somebody asks for a stop."""
        async with anyio.create_task_group() as tasks:

            async def stop() -> None:
                await self.journal.until(stop_asked)
                tasks.cancel_scope.cancel()

            tasks.start_soon(stop)
            await gateway.drained()
            tasks.cancel_scope.cancel()

    async def _lost(self, context: LifeContext, why: str, code: int | None, *, planned: bool = False) -> None:
        await self.journal.life_lost(context.life, why, code, planned=planned)

    async def _settle(self, end: TurnEnd) -> None:
        match end.kind:
            case "completed":
                await self.journal.turn_completed(end.text)
            case "failed":
                await self.journal.turn_failed(end.code, end.reason)
            case "cancelled":
                await self.journal.turn_cancelled(end.reason)

    def tools(self, life: str) -> ToolHost:
        """The custom tools of a life."""
        return ToolHost(
            self.equipment.tools,
            self.journal,
            self.claim.session,
            life,
            custom_name=self.adapter.custom_name,
            progress=self._progress.tool,
        )

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
            login=self.equipment.settings.upstream_auth == "login",
        )


@contextlib.asynccontextmanager
async def _closing(link: Link) -> AsyncGenerator[None]:
    """Detach at the end, whatever happened."""
    try:
        yield
    finally:
        with anyio.CancelScope(shield=True):
            await link.aclose()


def _sentence(trouble: Exception) -> str:
    if isinstance(trouble, HarnessDurableError):
        return str(trouble)
    return f"{type(trouble).__name__}: {trouble} (an error of ours; see the worker's log)"
