"""Lives of one session: how a worker begins one, attaches to one, drives it, and ends it.

A life is written down before it is started, and ended before that is written down, so that whoever comes
after a crash knows what may still be acting. Before a life is ended by force we make sure that the session is
still ours, and its keeper that nobody newer has attached: it might be a newer owner's life by now.
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
    DamagedWorkspace,
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
from harness_durable.runtime.endings import ending, ending_of, not_begun, with_ending
from harness_durable.runtime.equipment import Equipment, ref_of
from harness_durable.runtime.files import SessionFiles
from harness_durable.runtime.groups import beside, first_of
from harness_durable.runtime.progress import ProgressWriter
from harness_durable.sandbox import Ending, LifeRef, LifeSpec, Link
from harness_durable.tools.host import ToolHost
from harness_durable.world import Claim, Owner

log = logging.getLogger("harness_durable.lives")

SETTLED = "the turn was settled"
LEAVE_SECONDS = 15.0
"""How long ending a life may take when we have to go; after that it is left to the next worker."""
MAX_RESCUES = 1
"""Times in a row that a turn which its harness gave up, for a trouble that may pass, is taken up again. Once:
the harness has tried for minutes before it gave up, and a person may want to know."""

MAX_IN_VAIN = 6
"""Lives in a row, of any worker, for which the workspace was not there. Six, since a worker that has it may
be busy; with a worker's pauses that is about half a minute."""


class Lives:
    """At most one life at a time is ours."""

    def __init__(
        self,
        journal: Journal,
        claim: Claim,
        owner: Owner,
        agent: AgentSpec,
        equipment: Equipment,
        files: SessionFiles,
    ) -> None:
        self.journal, self.claim, self.owner = journal, claim, owner
        self.agent, self.equipment = agent, equipment
        self.adapter = equipment.adapter(agent.adapter)
        self.sandbox = equipment.sandbox(agent.sandbox)
        self.cut_off = CutOff(journal)
        self.progress = ProgressWriter(journal.reader.world, claim.session)
        self.files = files
        files.show = self.progress.harness

    # -------------------------------------------------------------------------- beginning, ending

    async def begin(self, plan: Plan, rung: Rung) -> None:
        """A new life for the turn, driven to its end.

        Raises ``SandboxUnavailable`` when it could not be started: no fault of the harness, so it uses up
        nothing, and the caller tries again later. A workspace that is not there is left to other workers, and
        after ``MAX_IN_VAIN`` lives to a person.
        """
        life = f"life-{uuid.uuid4().hex[:12]}"
        tools = self.tools(life)
        if not await self._prepared(begins=rung == "start"):
            return
        told = await self.cut_off.settle(plan, tools, stoppable=True)
        try:
            harness = await self.adapter.find(self._version())
        except (HarnessMissing, UnsupportedVersion) as missing:
            await self.journal.turn_needs_input(str(missing))
            return
        ref = self.sandbox.locate(life)
        await self.journal.life_started(ref, plan.turn, harness.version)
        try:
            context = self._context(plan, rung, ref, tools, harness, uuid.uuid4().hex)
            link = await self._launch(context, ref)
        except (WorkspaceMissing, BadSetting) as missing:
            await self.journal.life_lost(life, str(missing), how=not_begun(missing), planned=True)
            if isinstance(missing, WorkspaceMissing) and self._in_vain(str(missing)) < MAX_IN_VAIN:
                raise  # it may be there for another worker
            await self.journal.turn_needs_input(str(missing))
            return
        except SandboxUnavailable as trouble:
            await self.journal.life_lost(life, str(trouble), how=not_begun(trouble), planned=True)
            raise
        except (HarnessMissing, KeeperGone) as trouble:
            await self.journal.life_lost(life, str(trouble), how=not_begun(trouble))
            return
        async with _closing(link):
            if rung != "start":
                await self.journal.turn_resumed(life, rung, told)
            reach("recovery.continued")
            await self._live(context, link, ref, settling=())

    async def attach(self, plan: Plan) -> None:
        """The harness goes on undisturbed; what ran inside the dead worker is settled beside it."""
        life = self.journal.state.lives[plan.life]
        ref = ref_of(life)
        try:
            link = await self.sandbox.attach(ref, self.claim.epoch)
        except (KeeperGone, StaleEpoch) as gone:
            told = isinstance(gone, (KeeperIncompatible, StaleEpoch))
            await self.end(plan, str(gone) if told else "its keeper is gone")
            return
        async with _closing(link):
            tools = self.tools(life.id)
            await self.journal.recovery_begun(plan, life_gone="")
            await self.journal.life_attached(life.id, self.owner.worker)
            await self.files.attached(self.journal)
            await self.cut_off.close(plan)
            await self.journal.turn_resumed(life.id, "attach")
            harness = Harness("", life.harness_version)
            context = self._context(plan, "attach", ref, tools, harness, link.token)
            reach("recovery.continued")
            settling = tuple(call for call in plan.calls if call.action in ("run", "probe"))
            await self._live(context, link, ref, settling=settling)

    async def _prepared(self, *, begins: bool) -> bool:
        """Are the files as a life needs them? If not, the turn waits for a person, or is being stopped: that
        need not wait for a large workspace."""
        async with beside() as tasks:

            async def stop() -> None:
                await self.journal.until(stop_asked)
                tasks.cancel_scope.cancel()

            tasks.start_soon(stop)
            try:
                await self.files.prepare(self.journal, begins=begins)
            except (BadSetting, DamagedWorkspace) as why:
                await self.journal.turn_needs_input(str(why))
                return False
        return not stop_asked(self.journal.state)

    async def end(self, plan: Plan, why: str) -> None:
        """Make sure that the old life acts no more, then say so."""
        life, how = self.journal.state.lives.get(plan.life), Ending("", "")
        if life is not None and life.ended is None:
            await self.journal.still_ours()
            how = await ending_of(self.sandbox, ref_of(life))
            why = with_ending(why, how)
            if not await self._reap(ref_of(life)):
                why = f"{why}; it was on {life.host}, which cannot be reached from here"
        await self.journal.recovery_begun(plan, life_gone=why, how=how)

    async def leave(self, why: str, *, keep: bool = False) -> bool:
        """A planned stop: whatever of ours is running is ended, and none of it counts as a failure. With
        ``keep``, a harness that runs on this host is left to its keeper, and all else as it is: whether that
        was so. Whoever comes next finds what it would find after a crash of ours."""
        with anyio.move_on_after(LEAVE_SECONDS, shield=True):
            try:
                await self.journal.still_ours()
                life = self.journal.state.life
                if keep and life is not None and await self.sandbox.alive(ref_of(life)):
                    log.info("session %s: its harness goes on without us", self.claim.session)
                    return True
                if life is not None:
                    await self._reap(ref_of(life))
                    await self.journal.life_lost(life.id, why, planned=True)
                await self.journal.turn_interrupted(why, planned=True)
                await self.journal.released(why)
            except HarnessDurableError as trouble:
                log.warning("session %s is left as it is: %s", self.claim.session, trouble)
        return False

    async def _reap(self, ref: LifeRef) -> bool:
        """Raises ``WriterFenced`` if a newer worker has hold of the life. Such a worker is in the log before
        it attaches; if none is, it is no keeper that says so, but what the harness put in its place."""
        try:
            return await self.sandbox.reap(ref, self.claim.epoch)
        except StaleEpoch:
            await self.journal.still_ours()
            return await self.sandbox.reap(ref)

    async def _launch(self, context: LifeContext, ref: LifeRef) -> Link:
        launch = await self.adapter.prepare(context)
        spec = LifeSpec(
            life=ref.life,
            session=self.claim.session,
            argv=launch.argv,
            env=launch.env,
            cwd=context.cwd,
            files=launch.files,
            token=context.token,
            ttl=self.equipment.settings.orphan_ttl_seconds,
            origin=self.equipment.origin,
            workspace=context.cwd,
            reads=context.harness.needs or (context.harness.path,),
            hidden=self.equipment.hidden,
            options=self.agent.sandbox_options,
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
            upstream=self.equipment.upstream(wire(self.adapter.wire)),
            life=context.life,
            token=context.token,
            ready=context.ready,
            classify=self.equipment.classifier(self.agent),
            on_progress=self.progress.model,
            routes=context.routes,
            way_out=self.equipment.way_out(self.agent),
        )
        self.files.life = ref
        try:
            end = await first_of(
                lambda: self._drive(context, link, gateway),
                lambda: self._serve(gateway, link),
                *(self.cut_off.settler(context.tools, call) for call in settling),
            )
        except StorageError:
            raise
        except Exception as gone:  # also a keeper's word that it serves a newer worker: the log knows
            if not isinstance(gone, HarnessDurableError):
                log.exception("life %s of session %s", context.life, self.claim.session)
            await self.journal.still_ours()
            how = await ending(self.sandbox, ref, link)
            await self._reap(ref)
            await self.progress.over()
            code = gone.code if isinstance(gone, HarnessDied) else None
            await self.journal.life_lost(context.life, with_ending(_sentence(gone), how), code, how=how)
            return
        if end.transient and self._may_rescue():
            await self.journal.still_ours()
            await self._reap(ref)
            await self.progress.over()
            await self.journal.life_lost(context.life, end.reason, transient=True)
            return
        # Whoever waits for the result may close everything as soon as the turn is settled.
        looking = self.equipment.settings.workspace_timeout_seconds if self.files.durable else 0.0
        with anyio.move_on_after(LEAVE_SECONDS + looking, shield=True):
            await self.progress.over()
            await self._settle(end)
            await self._reap(ref)
            await self.journal.life_ended(context.life, SETTLED)

    def _version(self) -> str | None:
        """The session's; if it was made where there was no harness, that of its first life."""
        lives = self.journal.state.lives.values()
        return self.agent.harness_version or next((life.harness_version for life in lives), None)

    def _in_vain(self, reason: str) -> int:
        """How many lives of the turn ended for this reason, counted back from the last one."""
        turn, lives = self.journal.state.turn, self.journal.state.lives
        ended = [lives[life].reason for life in reversed(turn.lives)] if turn is not None else []
        return next((place for place, why in enumerate(ended) if why != reason), len(ended))

    def _may_rescue(self) -> bool:
        """May the ladder go on with a turn that the harness has given up?"""
        turn = self.journal.state.turn
        return turn is not None and turn.stop_by is None and turn.rescued < MAX_RESCUES

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

    async def _settle(self, end: TurnEnd) -> None:
        match end.kind:
            case "completed":
                await self.journal.turn_completed(end.text)
            case "failed":
                again = "; going on once more did not help: send the message again later"
                await self.journal.turn_failed(end.code, end.reason + (again if end.transient else ""))
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
            progress=self.progress.tool,
        )

    def _context(
        self, plan: Plan, rung: Rung, ref: LifeRef, tools: ToolHost, harness: Harness, token: str
    ) -> LifeContext:
        """Raises ``WorkspaceMissing``."""
        return LifeContext(
            session=self.claim.session,
            life=ref.life,
            turn=plan.turn,
            rung=rung,
            agent=self.agent,
            harness=harness,
            journal=self.journal,
            tools=tools,
            token=token,
            home=self.sandbox.home(ref),
            cwd=str(self.files.place()),
            ready=anyio.Event(),
            login=self.equipment.settings.upstream_auth == "login",
            progress=self.progress.harness,
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
