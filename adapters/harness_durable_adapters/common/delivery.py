"""Messages and steers to the harness: each once, with a number that tells after any crash whether it arrived.

``known`` are the numbers that the harness's conversation shows, ``sent`` those that were said in this life.
What the log calls delivered is not asked: recovery may have cut away what showed it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable

import anyio

from harness_durable.adapter import LifeContext
from harness_durable.state import Message, Session


class Delivery(ABC):
    """The messages of one turn in one life. An adapter says how a message is numbered and sent."""

    def __init__(self, ctx: LifeContext, known: set[str], sent: set[str]) -> None:
        self._ctx = ctx
        # What was said in this life is taken up at its place in the output, which is read from its start: an
        # earlier turn's end must not look like the end of a message that came after it.
        self._known, self._sent = known - sent, sent
        self._moves = anyio.Event()
        self._begun = anyio.Event()

    @abstractmethod
    def number(self, message: str) -> str:
        """The number of a message, the same in every life."""

    @abstractmethod
    async def write(self, message: Message, text: str, number: str) -> None:
        """Give a message to the harness."""

    async def opened(self, message: Message) -> None:
        """The turn's message has been sent, now or before: what else has to be said once? Nothing here."""
        return

    async def run(self) -> None:
        """Send the turn's message, then steers as they come in, for ever."""
        await self._tell_shown()
        message = self._ctx.journal.state.messages.get(self._ctx.turn)
        if message is not None:
            await self._send(message)
            await self.opened(message)
        self._begun.set()
        # Before the model has said something, a harness would take a steer for a turn of its own, or put it
        # before an answer that is given again from the log.
        await self._moves.wait()
        while True:
            for steer in self._unsent(self._ctx.journal.state):
                await self._send(steer)
            await self._ctx.journal.until(lambda state: bool(self._unsent(state)))

    async def begun(self) -> None:
        """Return when the turn's message has been sent."""
        await self._begun.wait()

    def moving(self) -> None:
        """The model has said something."""
        self._moves.set()

    def outstanding(self) -> bool:
        """Is there a message that the harness was given and has not taken up?"""
        return bool(self._sent - self._known)

    def was_sent(self, number: str) -> bool:
        """Was it said in this life?"""
        return number in self._sent

    def shows(self, number: str) -> bool:
        """Does the conversation show it?"""
        return number in self._known

    def sending(self, number: str) -> None:
        """Something that is no message of the log is said under this number."""
        self._sent.add(number)

    async def arrived(self, numbers: Iterable[str]) -> None:
        """The harness has these; the log hears of those that are ours."""
        fresh = [number for number in numbers if number and number not in self._known]
        self._known.update(fresh)
        for message in self._messages(self._ctx.journal.state) if fresh else ():
            if self.number(message.id) in fresh:
                await self._ctx.journal.message_delivered(message.id, self._ctx.life)

    async def _tell_shown(self) -> None:
        """The log hears of steers that an earlier life took and did not live to tell of: else they would be
        said again once the turn is over."""
        for message in self._messages(self._ctx.journal.state):
            if message.kind == "steer" and self.number(message.id) in self._known:
                await self._ctx.journal.message_delivered(message.id, self._ctx.life)

    def _messages(self, state: Session) -> list[Message]:
        return [message for message in state.messages.values() if message.turn == self._ctx.turn]

    def _unsent(self, state: Session) -> list[Message]:
        return [
            message
            for message in self._messages(state)
            if message.kind == "steer" and self.number(message.id) not in self._sent | self._known
        ]

    async def _send(self, message: Message) -> None:
        number = self.number(message.id)
        if number in self._known or number in self._sent:
            return
        self._sent.add(number)
        await self.write(message, await self._ctx.journal.reader.text(message.text), number)
