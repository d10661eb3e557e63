"""Messages and steers to the harness: each once, with a uuid that tells after any crash whether it arrived.

A message is sent unless its uuid stands in the transcript or was said in this life. What the log calls
delivered is not asked: recovery may have cut the lines away that showed it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable

import anyio

from harness_durable.adapter import LifeContext
from harness_durable.state import Message, Session

from . import frames
from .naming import main_file, message_uuid
from .proof import RESUMED, can_continue
from .transcript import parse

Write = Callable[[bytes], Awaitable[None]]


class Delivery:
    """The messages of one turn in one life."""

    def __init__(self, ctx: LifeContext, write: Write, known: set[str], sent: set[str]) -> None:
        self._ctx, self._write = ctx, write
        self._known, self._sent = known, sent
        self._moves = anyio.Event()
        self._begun = anyio.Event()

    @classmethod
    async def begin(cls, ctx: LifeContext, write: Write, said: frames.Said) -> Delivery:
        file = main_file(ctx.journal.state.native_id)
        lines = await ctx.journal.transcript_lines(file) if ctx.rung != "start" else []
        known = {line.delivered for line in parse(lines)[0] if line.delivered}
        sent = {uuid for uuid in said.messages if uuid}
        # What was said in this life is taken up at its place in the output, which is read from its start: an
        # earlier turn's end must not look like the end of a message that came after it.
        return cls(ctx, write, known - sent, sent)

    async def run(self) -> None:
        """Send the turn's message, then steers as they come in, for ever."""
        message = self._ctx.journal.state.messages.get(self._ctx.turn)
        if message is not None:
            await self._send(message)
            await self._say_aloud(message)
        self._begun.set()
        # Before the model has said something, the harness would take a steer for a turn of its own.
        await self._moves.wait()
        while True:
            for steer in self._unsent(self._ctx.journal.state):
                await self._send(steer)
            await self._ctx.journal.until(lambda state: bool(self._unsent(state)))

    async def _say_aloud(self, message: Message) -> None:
        """For a harness that cannot continue in the middle: tell it, in a message that the model sees."""
        number = message_uuid(self._ctx.journal.state.native_id, f"{message.id}/resumed/{self._ctx.life}")
        fresh = self._ctx.rung == "continue" and self._uuid(message) in self._known
        if fresh and number not in self._sent and not await can_continue(self._ctx.harness):
            self._sent.add(number)
            await self._write(frames.message(RESUMED, number, self._ctx.journal.state.native_id))

    async def begun(self) -> None:
        """Return when the turn's message has been sent."""
        await self._begun.wait()

    def moving(self) -> None:
        """The model has said something."""
        self._moves.set()

    def outstanding(self) -> bool:
        """Is there a message that the harness was given and has not taken up?"""
        return bool(self._sent - self._known)

    async def arrived(self, uuids: Iterable[str]) -> None:
        """The harness has these; the log hears of those that are ours."""
        fresh = [uuid for uuid in uuids if uuid and uuid not in self._known]
        self._known.update(fresh)
        for message in self._messages(self._ctx.journal.state) if fresh else ():
            if self._uuid(message) in fresh:
                await self._ctx.journal.message_delivered(message.id, self._ctx.life)

    def _messages(self, state: Session) -> list[Message]:
        return [message for message in state.messages.values() if message.turn == self._ctx.turn]

    def _unsent(self, state: Session) -> list[Message]:
        return [
            message
            for message in self._messages(state)
            if message.kind == "steer" and self._uuid(message) not in self._sent | self._known
        ]

    def _uuid(self, message: Message) -> str:
        return message_uuid(self._ctx.journal.state.native_id, message.id)

    async def _send(self, message: Message) -> None:
        uuid = self._uuid(message)
        if uuid in self._known or uuid in self._sent:
            return
        self._sent.add(uuid)
        text = await self._ctx.journal.reader.text(message.text)
        await self._write(frames.message(text, uuid, self._ctx.journal.state.native_id))
