"""Messages and steers to the harness, each once. Each goes with its number, which our extension makes a
member of its entry in the session file: so the file shows what was taken."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from harness_durable.adapter import LifeContext
from harness_durable.state import Message

from ..common import delivery
from ..common.frames import Said
from . import frames
from .entries import Parser, path
from .naming import COMMAND, message_number, transcript_file

Write = Callable[[bytes], Awaitable[None]]


class Delivery(delivery.Delivery):
    """The messages of one turn in one life."""

    def __init__(self, ctx: LifeContext, write: Write, known: set[str], said: Said) -> None:
        super().__init__(ctx, known, set(said.messages))
        self._write, self._went_on = write, COMMAND in said.asked

    @classmethod
    async def begin(cls, ctx: LifeContext, write: Write, said: Said) -> Delivery:
        return cls(ctx, write, await _shown(ctx) if ctx.rung != "start" else set(), said)

    def number(self, message: str) -> str:
        return message_number(self._ctx.journal.state.native_id, message)

    async def write(self, message: Message, text: str, number: str) -> None:
        await self._write(frames.message(text, number))

    async def opened(self, message: Message) -> None:
        """In a life that began in the turn's middle: go on."""
        number = self.number(message.id)
        if self.shows(number) and not self.was_sent(number) and not self._went_on:
            self._went_on = True
            await self._write(frames.go_on())


async def _shown(ctx: LifeContext) -> set[str]:
    """Numbers of the messages that the model sees."""
    parser = Parser()
    async for raw in ctx.journal.transcript_lines(transcript_file(ctx.journal.state.native_id)):
        parser.take(raw)
    return {entry.number for entry in path(parser.entries) if entry.number}
