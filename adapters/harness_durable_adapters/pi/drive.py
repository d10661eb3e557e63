"""Driving a life of Pi: what its frames mean, and what it has to be told."""

from __future__ import annotations

from harness_durable import clock
from harness_durable.adapter import LifeContext, TurnEnd
from harness_durable.errors import HarnessStuck
from harness_durable.sandbox import Link

from ..common.shapes import Json, decode, mapping, outline, word
from ..common.spoken import Spoken
from ..common.stopping import wants_stop
from . import frames
from .delivery import Delivery
from .entries import Entry
from .gate import reply
from .mirror import mirror
from .outcome import turn_end, wait_seconds, waiting

_AGAIN_SECONDS = 1.0
"""Between two interruptions: one that comes before a run has begun is lost."""


async def drive(ctx: LifeContext, link: Link) -> TurnEnd:
    """Speak with the harness until the turn is settled. See ``Adapter.drive``."""
    return await PiConversation(ctx, link).run()


class PiConversation(Spoken):
    """One life, as long as this worker drives it."""

    def __init__(self, ctx: LifeContext, link: Link) -> None:
        super().__init__(ctx, link)
        self._last: Entry | None = None

    async def begin(self, said: bytes) -> None:
        self.said = frames.read_said(said)
        self.delivery = await Delivery.begin(self.ctx, self.write, self.said)

    # ----------------------------------------------------------------------------------- reading

    async def take(self, line: bytes, end: int, later: list[Json] | None) -> None:
        """One frame. ``later`` collects questions that must not be answered yet."""
        frame = decode(line) or outline(line)
        if frame is None:
            self.unreadable += bool(line.strip())
            return
        match frame.get("type"):
            case "extension_ui_request":
                await self._told(frame, end, later)
            case "message_end" if mapping(frame.get("message")).get("role") == "assistant":
                self.delivery.moving()
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

    async def _told(self, frame: Json, end: int, later: list[Json] | None) -> None:
        """What a question brings counts even if it was answered before."""
        question = frames.question(frame)
        if question is None:
            return
        entries = await mirror(self.ctx, question.lines, end)
        self._last = next((one for one in reversed(entries) if one.role == "assistant"), self._last)
        await self.delivery.arrived(entry.number for entry in entries)
        if question.kind == "settled":
            await self.settle(turn_end(self._last, self.stop_by))
        self.asked(question.id, frame, later)

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

    async def speak(self) -> None:
        if frames.COMMANDS not in self.said.asked:
            await self.write(frames.command(frames.COMMANDS, "get_commands"))

    async def stop(self) -> None:
        await wants_stop(self.ctx)
        await self.initialized.wait()
        await self.delivery.begun()
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
