"""Driving a life: one reader of the harness's output, and a task for everything that may take time.

Works the same on a fresh life and on one that another worker began: what was said already is on record at
the keeper, what came of it is in the log. So the output is always read from its start; what the log has from
it is passed over."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from typing import cast

import anyio

from harness_durable import clock
from harness_durable.adapter import LifeContext, TurnEnd
from harness_durable.errors import HarnessDied, HarnessDurableError, HarnessStuck, KeeperGone
from harness_durable.sandbox import Link

from . import frames
from .delivery import Delivery
from .gap import Gap
from .gate import CONTAINERS
from .launch import INITIALIZE, initialize
from .mirror import mirror
from .naming import main_file
from .outcome import hopeless, turn_end, wait_seconds
from .serving import Serving
from .shapes import Json, decode, mapping, objects, word
from .stopping import close_calls, wants_stop

log = logging.getLogger("harness_durable.claude_code")

START_SECONDS = 120.0
"""Until the harness has answered our first request. Half a second is usual; a loaded machine takes longer."""
SILENCE_SECONDS = 600.0
"""Without a frame, a model call or a running tool, and beyond what the provider asked to wait. Long, since it
costs a life to be wrong."""
GRACE_SECONDS = 30.0
"""After a turn has ended, for the harness to take up a message that it was given during that turn."""
STOP_SECONDS = 15.0
"""Until an interrupted harness must have ended its turn."""
_BACKLOG_SECONDS = 0.05


async def drive(ctx: LifeContext, link: Link) -> TurnEnd:
    """Speak with the harness until the turn is settled. See ``Adapter.drive``."""
    return await Conversation(ctx, link).run()


class Conversation:
    """One life, as long as this worker drives it."""

    def __init__(self, ctx: LifeContext, link: Link) -> None:
        self.ctx, self.link = ctx, link
        self._said = frames.Said(frozenset(), frozenset(), frozenset())
        self._serving = Serving(ctx, self._write, self._start)
        self._heard = self._waits = clock.monotonic()
        self._initialized = anyio.Event()
        self._end: TurnEnd | None = None
        self._settled: TurnEnd | None = None
        self._trouble: BaseException | None = None
        self._gap = Gap(ctx.journal.state.native_id)
        self._lines = frames.Lines()
        self._unreadable = 0

    async def run(self) -> TurnEnd:
        said = await self.link.said()
        self._said = frames.read_said(said)
        self._delivery = await Delivery.begin(self.ctx, self._write, self._said)
        try:
            async with anyio.create_task_group() as tasks:
                self._tasks = tasks
                for work in (self._speak, self._deliver, self._stop, self._watch):
                    self._start(work)
                await self._guarded(self._read if not said else self._catch_up)
                tasks.cancel_scope.cancel()
        finally:
            self._report()
        if self._trouble is not None:
            raise self._trouble
        return cast(TurnEnd, self._end)

    def _start(self, work: Callable[[], Awaitable[object]]) -> None:
        self._tasks.start_soon(self._guarded, work)

    async def _guarded(self, work: Callable[[], Awaitable[object]]) -> None:
        """The first trouble ends everything, and is raised as itself and not as a group."""
        try:
            await work()
        except HarnessDurableError as trouble:
            self._trouble = self._trouble or trouble
            self._tasks.cancel_scope.cancel()

    def _report(self) -> None:
        """What of the output was passed over."""
        if self._unreadable or self._lines.too_long:
            log.warning(
                "life %s: unreadable output: %d lines that are no frames, %d that are too long",
                self.ctx.life,
                self._unreadable,
                self._lines.too_long,
            )

    # ----------------------------------------------------------------------------------- reading

    async def _catch_up(self) -> None:
        """After a takeover: first read all that there is, since a request may have been taken back later
        than it was made, and must not be answered then."""
        backlog, offset = list[tuple[int, bytes]](), 0
        quiet = False
        while not quiet:
            quiet = True
            with anyio.move_on_after(_BACKLOG_SECONDS):
                async for end, chunk in self.link.output(offset):
                    backlog += self._lines.feed(chunk)
                    offset, quiet = end, False
                break
        requests: list[Json] = []
        for end, line in backlog:
            await self._take(line, end, requests)
            if self._end is not None:
                return
        for request in requests:
            self._serving.begin(request)
        await self._read(offset)

    async def _read(self, offset: int = 0) -> None:
        async for _, chunk in self.link.output(offset):
            for end, line in self._lines.feed(chunk):
                await self._take(line, end, None)
                if self._end is not None:
                    return
        code = self.link.exit.code if self.link.exit is not None else None
        tail = (await self.link.errors()).decode("utf-8", "replace").strip()
        raise HarnessDied(code, tail)

    async def _take(self, line: bytes, end: int, later: list[Json] | None) -> None:
        """One frame. ``later`` collects requests that must not be served yet."""
        frame = decode(line)
        if frame is None:
            if line.strip():
                self._unreadable += 1
            return
        self._heard = clock.monotonic()
        match frame.get("type"):
            case "transcript_mirror":
                self._gap.mirrored(objects(frame.get("entries")))
                await self._delivery.arrived(await mirror(self.ctx, frame, end))
            case "user":
                self._gap.streamed(frame)
                await self._delivery.arrived([word(frame.get("uuid"))] if frame.get("isReplay") else [])
            case "assistant":
                self._gap.streamed(frame)
                self._delivery.moving()
            case "control_request":
                if word(frame.get("request_id")) in self._said.answered:
                    return
                if later is not None:
                    later.append(frame)
                else:
                    self._serving.begin(frame)
            case "control_cancel_request":
                number = frame.get("request_id")
                if later is not None:
                    later[:] = [request for request in later if request.get("request_id") != number]
                self._serving.cancel(word(number))
            case "control_response":
                self._answered(mapping(frame.get("response")))
            case "result":
                await self._result(frame)
            case "system":
                self._waits = max(self._waits, clock.monotonic() + wait_seconds(frame))
                self._end = self._end or hopeless(frame, self.ctx.journal.state, login=self.ctx.login)
            case _:
                return

    async def _result(self, frame: Json) -> None:
        turn = self.ctx.journal.state.turns[self.ctx.turn]
        end = turn_end(frame, turn.stop_by)
        if end.kind == "cancelled":
            await close_calls(self.ctx)
        elif turn.stop_by is None and self._delivery.outstanding():
            self._settled = end  # it goes on by itself, with a message that it has not taken up yet
            return
        await self._close_gap()
        self._end = end

    async def _close_gap(self) -> None:
        """The mirror comes before the result. What it lacks by now, the harness did not write."""
        lines = self._gap.lines()
        if lines:
            log.warning("life %s: %d messages were not in the transcript", self.ctx.life, len(lines))
            file = main_file(self.ctx.journal.state.native_id)
            await self.ctx.journal.transcript_appended(self.ctx.life, {file: lines}, offset=0)

    def _answered(self, response: Json) -> None:
        if response.get("request_id") != INITIALIZE:
            return
        if response.get("subtype") == "error":
            raise HarnessStuck(
                f"the harness refused to initialize: {word(response.get('error'))}; its version may not fit"
            )
        self._initialized.set()
        self.ctx.ready.set()

    # ---------------------------------------------------------------------------------- speaking

    async def _speak(self) -> None:
        """What the harness has to hear before anything else."""
        if INITIALIZE not in self._said.asked:
            await self._write(frames.request(INITIALIZE, initialize(custom=bool(self.ctx.tools.tools))))

    async def _write(self, frame: bytes) -> None:
        """A harness that is gone does not hear it. The reader finds that out, too, and first reads what it
        left behind."""
        try:
            await self.link.write(frame)
        except (HarnessDied, KeeperGone):
            return

    async def _deliver(self) -> None:
        await self._initialized.wait()
        await self._delivery.run()

    async def _stop(self) -> None:
        """Interrupt when somebody asks for a stop; a harness that does not heed it is given up."""
        await wants_stop(self.ctx)
        await self._initialized.wait()
        await self._delivery.begun()
        await self._write(frames.request(f"durable-stop-{self.link.stdin_offset}", {"subtype": "interrupt"}))
        await clock.sleep(STOP_SECONDS)
        raise HarnessStuck(f"the harness did not stop within {STOP_SECONDS:.0f} s of being asked")

    async def _watch(self) -> None:
        with anyio.move_on_after(START_SECONDS):
            await self._initialized.wait()
        if not self._initialized.is_set():
            raise HarnessStuck(f"the harness did not answer within {START_SECONDS:.0f} s of its start")
        while True:
            await clock.sleep(5.0)
            heard = max(self._heard, self._serving.last, self._waits)
            silent = 0.0 if self._busy() else clock.monotonic() - heard
            if self._settled is not None and self._delivery.outstanding() and silent > GRACE_SECONDS:
                self._end = self._settled
                self._tasks.cancel_scope.cancel()
            if silent > SILENCE_SECONDS:
                raise HarnessStuck(f"nothing from the harness in {SILENCE_SECONDS:.0f} s, and nothing runs")

    def _busy(self) -> bool:
        """Something is under way that may be silent for long. A subagent is not: within it there is always a
        model call or a tool that is."""
        state = self.ctx.journal.state
        turn = state.turns[self.ctx.turn]
        models = any(state.model_calls[call].status == "requested" for call in turn.model_calls)
        tools = any(
            call.open and call.released_in == self.ctx.life and call.name not in CONTAINERS
            for call in state.calls(turn)
        )
        return self._serving.busy or models or tools
