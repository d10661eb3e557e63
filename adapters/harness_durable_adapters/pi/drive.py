"""Driving a life of Pi: what its frames mean, and what it has to be told."""

from __future__ import annotations

import logging
from collections.abc import Sequence

from harness_durable import clock
from harness_durable.adapter import LifeContext, TurnEnd
from harness_durable.errors import HarnessStuck
from harness_durable.sandbox import Link

from ..common.conversation import Conversation, Work
from ..common.shapes import Json, decode, mapping, outline, word
from ..common.stopping import close_calls, wants_stop
from . import frames
from .delivery import Delivery
from .entries import Entry
from .gate import reply
from .mirror import mirror
from .outcome import turn_end, wait_seconds, waiting

log = logging.getLogger("harness_durable.pi")

GRACE_SECONDS = 30.0
"""After the harness has settled, for it to take up a message that it was given before."""
_AGAIN_SECONDS = 1.0
"""Between two interruptions: one that comes before a run has begun is lost."""


async def drive(ctx: LifeContext, link: Link) -> TurnEnd:
    """Speak with the harness until the turn is settled. See ``Adapter.drive``."""
    return await PiConversation(ctx, link).run()


class PiConversation(Conversation):
    """One life, as long as this worker drives it."""

    def __init__(self, ctx: LifeContext, link: Link) -> None:
        super().__init__(ctx, link)
        self._said = frames.Said(frozenset(), frozenset(), frozenset())
        self._last: Entry | None = None
        self._settled: TurnEnd | None = None
        self._unreadable = 0

    async def begin(self, said: bytes) -> None:
        self._said = frames.read_said(said)
        self._delivery = await Delivery.begin(self.ctx, self.write, self._said)

    def works(self) -> Sequence[Work]:
        return self._speak, self._deliver, self._stop

    def loops(self) -> frozenset[str]:
        return frozenset()

    def report(self) -> None:
        if self._unreadable or self.lines.too_long:
            log.warning(
                "life %s: unreadable output: %d lines that are no frames, %d that are too long",
                self.ctx.life,
                self._unreadable,
                self.lines.too_long,
            )

    # ----------------------------------------------------------------------------------- reading

    async def take(self, line: bytes, end: int, later: list[Json] | None) -> None:
        """One frame. ``later`` collects questions that must not be answered yet."""
        frame = decode(line) or outline(line)
        if frame is None:
            self._unreadable += bool(line.strip())
            return
        match frame.get("type"):
            case "extension_ui_request":
                await self._asked(frame, end, later)
            case "message_end" if mapping(frame.get("message")).get("role") == "assistant":
                self._delivery.moving()
            case "response":
                self._answered(frame)
            case "auto_retry_start":
                self.waits = max(self.waits, clock.monotonic() + wait_seconds(frame))
                if self.end is None:
                    self.ctx.progress(waiting(frame))
            case "extension_error":
                raise HarnessStuck(
                    f"our extension failed within it: {word(frame.get('error'))}; this life is given up"
                )
            case _:
                return

    async def _asked(self, frame: Json, end: int, later: list[Json] | None) -> None:
        """What a question brings counts even if it was answered before."""
        question = frames.question(frame)
        if question is None:
            return
        entries = await mirror(self.ctx, question.lines, end)
        self._last = next((one for one in reversed(entries) if one.role == "assistant"), self._last)
        await self._delivery.arrived(entry.number for entry in entries)
        if question.kind == "settled":
            await self._is_settled()
        if question.id in self._said.answered:
            return
        if later is not None:
            later.append(frame)
        else:
            self.serve(frame)

    async def _is_settled(self) -> None:
        turn = self.ctx.journal.state.turns[self.ctx.turn]
        end = turn_end(self._last, turn.stop_by)
        if end.kind == "cancelled":
            await close_calls(self.ctx)
        elif turn.stop_by is None and self._delivery.outstanding():
            self._settled = end  # it goes on by itself, with a message that it has not taken up yet
            return
        self.end = end

    def _answered(self, frame: Json) -> None:
        number, failed = frame.get("id"), frame.get("success") is not True
        if number == frames.COMMANDS:
            if failed or not frames.is_in_place(frame.get("data")):
                raise HarnessStuck("the harness runs without our extension; its version may not fit")
            self.initialized.set()
            self.ctx.ready.set()
        elif failed and frame.get("command") == "prompt":
            raise HarnessStuck(f"the harness refused a message: {word(frame.get('error'))}")

    def serve(self, question: Json) -> None:
        asked = frames.question(question)
        if asked is None:
            return

        async def answer() -> bytes:
            return frames.answer(asked.id, await reply(self.ctx, asked))

        self.serving.begin(asked.id, answer)

    # ---------------------------------------------------------------------------------- speaking

    async def _speak(self) -> None:
        """What the harness has to hear before anything else."""
        if frames.COMMANDS not in self._said.asked:
            await self.write(frames.command(frames.COMMANDS, "get_commands"))

    async def _deliver(self) -> None:
        await self.initialized.wait()
        await self._delivery.run()

    async def _stop(self) -> None:
        """Interrupt when somebody asks for a stop; a harness that does not heed it is given up."""
        await wants_stop(self.ctx)
        await self.initialized.wait()
        await self._delivery.begun()
        self.start(self.insist)
        self.start(self._cut_tools)
        while True:
            await self.write(frames.command("durable-clear", "clear_queue"))
            await self.write(frames.command("durable-stop", "abort"))
            await clock.sleep(_AGAIN_SECONDS)

    async def _cut_tools(self) -> None:
        """The harness waits for a custom tool that runs, whatever it was told."""
        state = self.ctx.journal.state
        for call in state.calls(state.turns[self.ctx.turn]):
            if call.open and call.origin == "custom":
                await self.ctx.tools.cancel(call.id)

    def tick(self, silent: float) -> None:
        if self._settled is not None and self._delivery.outstanding() and silent > GRACE_SECONDS:
            self.leave(self._settled)
