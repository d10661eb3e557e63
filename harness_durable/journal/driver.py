"""What the driver of a session writes, transition by transition.

Read aloud, this is the life of a turn: it is started, a life begins, the model is asked, tools are requested,
released, finished; the transcript grows; the turn is settled. After a crash it is resumed. Model and tool
calls are in ``calls``.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Mapping, Sequence

import msgspec

from harness_durable import events
from harness_durable.crashpoints import reach
from harness_durable.events import Rung
from harness_durable.events.workspace import Cause
from harness_durable.journal.calls import CallTransitions, Told, tell
from harness_durable.journal.files import Tracks
from harness_durable.journal.known import Known
from harness_durable.journal.writer import Decision, Writer
from harness_durable.payload import pack, pack_text
from harness_durable.policy import NOT_STARTED, UNKNOWN
from harness_durable.recovery import Plan
from harness_durable.sandbox import Ending, LifeRef
from harness_durable.state import Session, Turn
from harness_durable.world import Claim, World


class Splice(msgspec.Struct, frozen=True):
    """``drop`` lines of a transcript from line ``at`` on (None: all of them) become ``lines``. ``shown``: see
    ``events.TranscriptReplaced``."""

    at: int
    drop: int | None
    lines: Sequence[bytes] = ()
    shown: tuple[str, ...] | None = None


class Journal(CallTransitions):
    """One session, driven by us. Every method raises ``WriterFenced`` once a newer owner has it."""

    @classmethod
    async def open(
        cls,
        world: World,
        claim: Claim,
        *,
        patience: float = 10.0,
        tracker: Tracks | None = None,
        known: Known | None = None,
    ) -> Journal:
        """Read the session that was claimed, as far as it is not ``known`` here. ``tracker`` looks at its
        files, if they are durable."""
        writer = await Writer.open(world, claim.session, epoch=claim.epoch, patience=patience, known=known)
        return cls(writer, tracker)

    async def watch(self) -> None:
        """Take in what others write, for ever: a task of the driver. Raises ``WriterFenced``."""
        await self._writer.watch()

    async def until(self, condition: Callable[[Session], bool]) -> None:
        """Return when the state fulfils ``condition``."""
        await self._writer.until(condition)

    async def when(self, condition: Callable[[Session], bool], act: Callable[[], None]) -> None:
        """Call ``act`` once, at a moment at which the state fulfils ``condition`` and nothing is being
        written: what others are about to write then, they have not decided yet."""

        def decide(state: Session, _: Decision) -> bool:
            if not condition(state):
                return False
            act()
            return True

        while True:
            await self._writer.until(condition)
            if await self._writer.decide(decide):
                return

    # ------------------------------------------------------------------------------------- turns

    async def turn_started(self, message: str) -> bool:
        """False, and nothing written, if the message was taken back meanwhile, or the session closed."""

        def decide(state: Session, wanted: Decision) -> bool:
            if message not in state.turns:
                if state.closed or message not in (queued.id for queued in state.queued):
                    return False
                if state.last_turn is not None:  # it waited for a person, who went on instead
                    close_calls(state, wanted, state.last_turn)
                    _requeue_steers(state, wanted, state.last_turn)
                wanted.events.append(events.TurnStarted(message))
                wanted.listed = True
            return True

        started = await self._writer.decide(decide)
        if started:
            reach("turn.started")
        return started

    async def turn_interrupted(self, reason: str, *, planned: bool = False) -> None:
        """The life is over, the turn is not."""

        def decide(state: Session, wanted: Decision) -> None:
            if state.turn is not None and state.turn.status == "running":
                wanted.events.append(events.TurnInterrupted(state.turn.id, reason, planned))

        await self._writer.decide(decide)

    async def turn_resumed(self, life: str, rung: Rung, told: tuple[str, ...] = ()) -> None:
        def decide(state: Session, wanted: Decision) -> None:
            if state.turn is not None:
                wanted.events.append(events.TurnResumed(state.turn.id, life, rung, told))

        await self._writer.decide(decide)

    async def turn_completed(self, text: str) -> None:
        packed = pack_text(text)

        def decide(state: Session, wanted: Decision) -> None:
            if state.turn is not None:
                turn = close_calls(state, wanted, state.turn)
                wanted.events.append(events.TurnCompleted(turn.id, wanted.keep(packed)))
                _requeue_steers(state, wanted, turn)
                wanted.listed = True

        reach("turn.completing")
        await self._settle(decide)
        reach("turn.completed")

    async def turn_failed(self, code: str, reason: str) -> None:
        def decide(state: Session, wanted: Decision) -> None:
            if state.turn is not None:
                turn = close_calls(state, wanted, state.turn)
                wanted.events.append(events.TurnFailed(turn.id, code, reason))
                _requeue_steers(state, wanted, turn)
                wanted.listed = True

        await self._settle(decide)

    async def turn_cancelled(self, reason: str) -> None:
        def decide(state: Session, wanted: Decision) -> None:
            if state.turn is not None:
                turn = close_calls(state, wanted, state.turn)
                wanted.events.append(events.TurnCancelled(turn.id, reason))
                _requeue_steers(state, wanted, turn)
                wanted.listed = True

        await self._settle(decide)

    async def turn_needs_input(self, reason: str) -> None:
        """Stop and wait for a person: the session is parked, no restart touches it. Its open calls stay
        open, since it may go on."""

        def decide(state: Session, wanted: Decision) -> None:
            if state.turn is not None:
                wanted.events.append(events.TurnNeedsInput(state.turn.id, reason))
                wanted.listed = True

        await self._writer.decide(decide)
        await self._writer.take_snapshot()

    async def message_delivered(self, message: str, life: str) -> None:
        """The harness has the message, or the steer, in its own transcript."""

        def decide(state: Session, wanted: Decision) -> None:
            known = state.messages.get(message)
            if known is None or known.status == "delivered":
                return
            kind = events.SteerDelivered if known.kind == "steer" else events.MessageDelivered
            wanted.events.append(kind(message, life))

        await self._writer.decide(decide)

    # ------------------------------------------------------------------------------------- lives

    async def life_started(self, ref: LifeRef, turn: str, version: str) -> None:
        """Before the life is started, so that a worker that finds this also knows what to end."""
        event = events.LifeStarted(ref.life, turn, ref.sandbox, ref.run_dir, ref.host, version)
        await self._writer.decide(lambda _, wanted: wanted.events.append(event))
        reach("life.started")

    async def life_attached(self, life: str, worker: str) -> None:
        event = events.LifeAttached(life, worker)
        await self._writer.decide(lambda _, wanted: wanted.events.append(event))

    async def life_lost(
        self,
        life: str,
        reason: str,
        code: int | None = None,
        *,
        how: Ending | None = None,
        planned: bool = False,
        transient: bool = False,
    ) -> None:
        """A life is over and its turn is not, in one append. ``planned``: the life uses up no attempt, even
        if the turn was not resumed in it yet. ``transient``: see ``TurnInterrupted``."""

        def decide(state: Session, wanted: Decision) -> None:
            known = state.lives.get(life)
            if known is None or known.ended is not None:
                return
            wanted.events.append(_life_ended(life, reason, code, how))
            if state.turn is not None and (planned or state.turn.status == "running"):
                wanted.events.append(events.TurnInterrupted(state.turn.id, reason, planned, transient))

        await self._writer.decide(decide)

    async def life_ended(self, life: str, reason: str, code: int | None = None) -> None:
        def decide(state: Session, wanted: Decision) -> None:
            known = state.lives.get(life)
            if known is not None and known.ended is None:
                wanted.events.append(events.LifeEnded(life, reason, code))

        await self._writer.decide(decide)

    async def recovery_begun(self, plan: Plan, *, life_gone: str, how: Ending | None = None) -> None:
        """What the last worker left open, closed in one append: answers that died with it, and the life, if
        ``life_gone`` says why it is over."""

        def decide(state: Session, wanted: Decision) -> None:
            for call in plan.lost:
                if state.model_calls[call].status == "requested":
                    wanted.events.append(events.ModelFailed(call, None, "the worker that asked was lost"))
            life = state.lives.get(plan.life)
            if life_gone and life is not None and life.ended is None:
                wanted.events.append(_life_ended(life.id, life_gone, None, how))
                if state.turn is not None and state.turn.status == "running":
                    wanted.events.append(events.TurnInterrupted(state.turn.id, life_gone))

        await self._writer.decide(decide)

    async def still_ours(self) -> None:
        """Raises ``WriterFenced`` if a newer owner has the session. Asked before a life is ended by force,
        since it might be the newer owner's by now."""
        await self._writer.refresh()
        await self._writer.decide(lambda _, __: None)

    async def released(self, reason: str) -> None:
        """The worker gives the session back. The row says whether and when somebody has to look at it again:
        a settled session is parked."""

        def decide(state: Session, wanted: Decision) -> None:
            if state.worker:
                wanted.events.append(events.SessionReleased(reason))
                wanted.listed = True

        await self._writer.decide(decide)

    # -------------------------------------------------------------------------------- transcript

    async def transcript_appended(
        self, life: str, files: Mapping[str, Sequence[bytes]], *, offset: int, told: Sequence[Told] = ()
    ) -> None:
        """New lines of the harness's transcript, by file, and the outcomes that they tell, in one append.
        ``offset``: where the life's output stood after them; what it has already is not written again."""
        packed = {file: pack(b"\n".join(lines)) for file, lines in files.items()}

        def decide(state: Session, wanted: Decision) -> None:
            if offset and offset <= state.offsets.get(life, 0):
                return
            for file, content in packed.items():
                payload = wanted.keep(content)
                wanted.events.append(events.TranscriptAppended(file, life, payload, len(files[file]), offset))
            for outcome in told:
                tell(state, wanted, outcome)

        async with self.files.look("call", [outcome.call for outcome in told]) as look:
            await self._writer.decide(look.beside(decide))
        reach("transcript.appended")

    async def transcript_replaced(self, file: str, splices: Sequence[Splice], reason: str) -> None:
        """What recovery made of a transcript, in one append. The splices are in order and do not overlap."""
        packed = [(splice, pack(b"\n".join(splice.lines))) for splice in splices]

        def decide(_: Session, wanted: Decision) -> None:
            for splice, content in reversed(packed):  # a place must not move before its turn comes
                payload, count = wanted.keep(content), len(splice.lines)
                wanted.events.append(
                    events.TranscriptReplaced(
                        file, splice.at, payload, count, reason, splice.drop, splice.shown
                    )
                )

        await self._writer.decide(decide)

    def transcript_lines(self, file: str) -> AsyncGenerator[bytes]:
        """The lines of a transcript as the log describes it now, one after the other: it may be larger than
        the memory."""
        transcript = self.state.transcripts.get(file)
        return self.reader.lines(tuple(transcript.segments) if transcript is not None else ())

    # ------------------------------------------------------------------------------------- files

    async def files_committed(self, cause: Cause) -> str:
        """Look at the files now. Returns why they could not be saved, or nothing."""
        async with self.files.look(cause) as look:
            await self._writer.decide(look.put)
        return look.skipped

    async def files_restored(self, remark: str) -> str:
        """They were made anew from the log, and this is how they are now; in the same append the model is
        told ``remark``, if there is a turn to tell it in."""

        def decide(state: Session, wanted: Decision) -> None:
            look.put(state, wanted)
            turn = state.turn
            if remark and turn is not None:
                name = f"restored-{state.seq + 1}"
                wanted.events.append(
                    events.SteerAccepted(name, turn.id, wanted.keep(pack_text(remark)), remark=True)
                )

        async with self.files.look("fork" if self.state.unmade else "restored") as look:
            await self._writer.decide(decide)
        return look.skipped

    async def _settle(self, decide: Callable[[Session, Decision], None]) -> None:
        async with self.files.look("turn_end") as look:
            await self._writer.decide(look.beside(decide))
        await self._writer.take_snapshot()


def _life_ended(life: str, reason: str, code: int | None, how: Ending | None) -> events.LifeEnded:
    known = how or Ending("", "")
    return events.LifeEnded(life, reason, code, known.why, known.oom_kills)


def _requeue_steers(state: Session, wanted: Decision, turn: Turn) -> None:
    """Steers that the turn never took become messages of their own, in the same append: accepted is never
    lost."""
    for steer in state.steers(turn.id):
        if not steer.remark:
            wanted.events.append(events.MessageAccepted(f"{steer.id}+queued", steer.text))
        wanted.events.append(events.SteerDelivered(steer.id, ""))


def close_calls(state: Session, wanted: Decision, turn: Turn) -> Turn:
    """No call stays open when its turn is settled."""
    for call in state.calls(turn):
        if call.open and call.released_in is None:
            wanted.events.append(events.ToolNotStarted(call.id, wanted.keep(pack_text(NOT_STARTED))))
        elif call.open:
            wanted.events.append(events.ToolUnknown(call.id, wanted.keep(pack_text(UNKNOWN))))
    for name in turn.model_calls:
        if state.model_calls[name].status == "requested":
            wanted.events.append(events.ModelFailed(name, None, "the turn was settled first"))
    return turn
