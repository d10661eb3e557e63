"""Driving a life: one reader of the harness's output, and a task for everything that may take time.

Works the same on a fresh life and on one that another worker began: what was said already is on record at
the keeper, what came of it is in the log. So the output is always read from its start; what the log has from
it is passed over. An adapter says what a line means (``take``) and what it has to say (``works``)."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Sequence
from typing import cast

import anyio

from harness_durable import clock
from harness_durable.adapter import LifeContext, TurnEnd
from harness_durable.errors import HarnessDied, HarnessDurableError, HarnessStuck, KeeperGone
from harness_durable.sandbox import Link

from .lines import Lines
from .serving import Serving
from .shapes import Json

START_SECONDS = 120.0
"""Until the harness has answered our first request. Half a second is usual; a loaded machine takes longer."""
SILENCE_SECONDS = 600.0
"""Without a line, a model call or a running tool, and beyond what the provider asked to wait. Long, since it
costs a life to be wrong."""
STOP_SECONDS = 15.0
"""Until an interrupted harness must have ended its turn."""
_BACKLOG_SECONDS = 0.05
_BACKLOG_BYTES = 4 << 20
"""Of the output, at a time: after a long life all of it may be more than the memory holds."""

Work = Callable[[], Awaitable[object]]


class Conversation(ABC):
    """One life, as long as this worker drives it. The turn is over when ``end`` is set.

    ``initialized`` is for the adapter to set, once the harness has answered its first request; ``waits``, by
    the monotonic clock, until when the harness has said that it will be silent."""

    def __init__(self, ctx: LifeContext, link: Link) -> None:
        self.ctx, self.link = ctx, link
        self.serving = Serving(self.write, self.start)
        self.lines = Lines()
        self.initialized = anyio.Event()
        self.end: TurnEnd | None = None
        self.heard = self.waits = clock.monotonic()
        self._trouble: BaseException | None = None

    # ------------------------------------------------------------------- what an adapter has to say

    @abstractmethod
    async def begin(self, said: bytes) -> None:
        """Before anything else. ``said``: all that any worker ever wrote to this harness."""

    @abstractmethod
    def works(self) -> Sequence[Work]:
        """What runs beside the reader. Cancelled when the turn is over."""

    @abstractmethod
    async def take(self, line: bytes, end: int, later: list[Json] | None) -> None:
        """One line of the output, which ends at ``end``. ``later`` collects the questions that must not be
        answered yet; those that the harness takes back are to be removed from it."""

    def serve(self, question: Json) -> None:
        """Answer a question that is still open, by ``serving.begin``. Called only with what ``take`` has put
        into ``later``: a harness whose output asks nothing needs none of it."""
        return

    def loops(self) -> frozenset[str]:
        """Tools that hold a loop of their own: within one there is always something else under way."""
        return frozenset()

    def tick(self, silent: float) -> None:
        """Every few seconds; ``silent``: how long nothing was heard of the harness, in seconds."""
        return

    def report(self) -> None:
        """At the end, whatever it is: what of the output was passed over or could not be read."""
        return

    # ------------------------------------------------------------------------------------- running

    async def run(self) -> TurnEnd:
        """Until the turn is settled. Raises ``HarnessDied``, ``HarnessStuck``, ``KeeperGone``, and what the
        journal raises."""
        said = await self.link.said()
        await self.begin(said)
        try:
            async with anyio.create_task_group() as tasks:
                self._tasks = tasks
                for work in (*self.works(), self._watch):
                    self.start(work)
                await self._guarded(self._read if not said else self._catch_up)
                tasks.cancel_scope.cancel()
        finally:
            self.report()
        if self._trouble is not None:
            raise self._trouble
        return cast(TurnEnd, self.end)

    def start(self, work: Work) -> None:
        """Begin a task of this life."""
        self._tasks.start_soon(self._guarded, work)

    def leave(self, end: TurnEnd) -> None:
        """End the turn from within a task other than the reader's."""
        self.end = end
        self._tasks.cancel_scope.cancel()

    async def write(self, frame: bytes) -> None:
        """A harness that is gone does not hear it. The reader finds that out, too, and first reads what it
        left behind."""
        try:
            await self.link.write(frame)
        except (HarnessDied, KeeperGone):
            return

    async def insist(self) -> None:
        """After an interruption: a harness that does not heed it is given up."""
        await clock.sleep(STOP_SECONDS)
        raise HarnessStuck(f"the harness did not stop within {STOP_SECONDS:.0f} s of being asked")

    async def _guarded(self, work: Work) -> None:
        """The first trouble ends everything, and is raised as itself and not as a group."""
        try:
            await work()
        except HarnessDurableError as trouble:
            self._trouble = self._trouble or trouble
            self._tasks.cancel_scope.cancel()

    # ------------------------------------------------------------------------------------- reading

    async def _catch_up(self) -> None:
        """After a takeover: first read all that there is, since a question may have been taken back later
        than it was asked, and must not be answered then."""
        questions: list[Json] = []
        offset = 0
        quiet = ended = False
        while not quiet and not ended:
            backlog, size = list[tuple[int, bytes]](), 0
            quiet = True
            with anyio.move_on_after(_BACKLOG_SECONDS):
                async for end, chunk in self.link.output(offset):
                    backlog += self.lines.feed(chunk)
                    offset, quiet = end, False
                    size += len(chunk)
                    if size > _BACKLOG_BYTES:
                        break
                else:
                    ended = True
            for end, line in backlog:
                await self._hear(line, end, questions)
                if self.end is not None:
                    return
        for question in questions:
            self.serve(question)
        await self._read(offset)

    async def _read(self, offset: int = 0) -> None:
        async for _, chunk in self.link.output(offset):
            for end, line in self.lines.feed(chunk):
                await self._hear(line, end, None)
                if self.end is not None:
                    return
        code = self.link.exit.code if self.link.exit is not None else None
        tail = (await self.link.errors()).decode("utf-8", "replace").strip()
        raise HarnessDied(code, tail)

    async def _hear(self, line: bytes, end: int, later: list[Json] | None) -> None:
        self.heard = clock.monotonic()
        await self.take(line, end, later)

    # ------------------------------------------------------------------------------------ watching

    async def _watch(self) -> None:
        with anyio.move_on_after(START_SECONDS):
            await self.initialized.wait()
        if not self.initialized.is_set():
            raise HarnessStuck(f"the harness did not answer within {START_SECONDS:.0f} s of its start")
        while True:
            await clock.sleep(5.0)
            heard = max(self.heard, self.serving.last, self.waits)
            silent = 0.0 if self._busy() else clock.monotonic() - heard
            self.tick(silent)
            if silent > SILENCE_SECONDS:
                raise HarnessStuck(f"nothing from the harness in {SILENCE_SECONDS:.0f} s, and nothing runs")

    def _busy(self) -> bool:
        """Something is under way that may be silent for long."""
        state = self.ctx.journal.state
        turn = state.turns[self.ctx.turn]
        models = any(state.model_calls[call].status == "requested" for call in turn.model_calls)
        tools = any(
            call.open and call.released_in == self.ctx.life and call.name not in self.loops()
            for call in state.calls(turn)
        )
        return self.serving.busy or models or tools
