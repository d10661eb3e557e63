"""Messages and steers to the harness: each once, under the uuid of its line in the transcript."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from harness_durable.adapter import LifeContext
from harness_durable.state import Message

from ..common import delivery
from ..common.frames import Said
from . import frames
from .naming import main_file, message_uuid
from .proof import RESUMED, can_continue
from .transcript import read

Write = Callable[[bytes], Awaitable[None]]


class Delivery(delivery.Delivery):
    """The messages of one turn in one life."""

    def __init__(self, ctx: LifeContext, write: Write, known: set[str], sent: set[str]) -> None:
        super().__init__(ctx, known, sent)
        self._write = write

    @classmethod
    async def begin(cls, ctx: LifeContext, write: Write, said: Said) -> Delivery:
        known = await _shown(ctx) if ctx.rung != "start" else set[str]()
        return cls(ctx, write, known, {uuid for uuid in said.messages if uuid})

    def number(self, message: str) -> str:
        return message_uuid(self._native, message)

    async def write(self, message: Message, text: str, number: str) -> None:
        await self._write(frames.message(text, number, self._native))

    async def opened(self, message: Message) -> None:
        """For a harness that cannot continue in the middle: tell it, in a message that the model sees."""
        number = message_uuid(self._native, f"{message.id}/resumed/{self._ctx.life}")
        fresh = self._ctx.rung == "continue" and self.shows(self.number(message.id))
        if fresh and not self.was_sent(number) and not await can_continue(self._ctx.harness):
            self.sending(number)
            await self._write(frames.message(RESUMED, number, self._native))

    @property
    def _native(self) -> str:
        return self._ctx.journal.state.native_id


async def _shown(ctx: LifeContext) -> set[str]:
    """Uuids of the turn's messages that the transcript shows to be delivered, also before a compaction."""
    state = ctx.journal.state
    file = main_file(state.native_id)
    transcript = state.transcripts.get(file)
    known = set(transcript.shown) if transcript is not None else set[str]()
    turn = [message.id for message in state.messages.values() if message.turn == ctx.turn]
    wanted = [message_uuid(state.native_id, message).encode() for message in turn]
    async for raw in ctx.journal.transcript_lines(file):
        line = read(raw) if any(uuid in raw for uuid in wanted) else None
        if line is not None:
            known.update(line.shows)
    return known
