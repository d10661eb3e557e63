"""Messages and steers to the harness, each once.

The turn's message begins the harness's own turn. If its conversation shows it already, that turn is begun
with nothing: the harness then goes on where the conversation ends. What the harness acknowledges it has in
memory only, so a steer counts as taken when it stands in the conversation."""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable, Sequence

from harness_durable.adapter import LifeContext
from harness_durable.state import Message, Session

from ..common import delivery
from ..common.frames import Said
from ..common.shapes import Json
from . import frames
from .history import asked_in
from .items import is_user, text_in
from .naming import message_number

Ask = Callable[[str, str, Json], Awaitable[None]]
"""Writes a request of ours: its id, its method, and its params without those that name thread and turn."""


class Delivery(delivery.Delivery):
    """The messages of one turn in one life."""

    def __init__(self, ctx: LifeContext, ask: Ask, known: set[str], said: Said) -> None:
        super().__init__(ctx, known, set(said.messages))
        self._ask, self._begins = ask, frames.TURN not in said.asked

    @classmethod
    async def begin(cls, ctx: LifeContext, ask: Ask, said: Said, items: Sequence[Json]) -> Delivery:
        """``items``: the conversation as it is mirrored."""
        return cls(ctx, ask, await shown(ctx, items), said)

    def number(self, message: str) -> str:
        return message_number(self._ctx.journal.state.native_id, message)

    async def write(self, message: Message, text: str, number: str) -> None:
        params: Json = {"input": frames.user_text(text), "clientUserMessageId": number}
        if message.kind == "steer":
            await self._ask(f"{frames.STEER}{number}", "turn/steer", params)
        elif self._begins:
            await self._ask(frames.TURN, "turn/start", params)

    async def opened(self, message: Message) -> None:
        if not self.shows(self.number(message.id)):
            return
        if self._begins:
            await self._ask(frames.TURN, "turn/start", {"input": []})
        await self._ctx.journal.message_delivered(message.id, self._ctx.life)


async def shown(ctx: LifeContext, items: Sequence[Json]) -> set[str]:
    """The numbers of the turn's messages that the conversation holds. Items have no numbers, so texts are
    counted; what earlier turns said is taken off first."""
    state, reader = ctx.journal.state, ctx.journal.reader
    if ctx.rung == "start" or not await asked_in(ctx.journal, ctx.turn):
        return set()
    texts = Counter(text_in(item) for item in items if is_user(item))
    known = {message_number(state.native_id, ctx.turn)}
    steers = [one for one in state.messages.values() if one.kind == "steer" and one.turn == ctx.turn]
    if not steers:
        return known
    spoken = Counter[str]()
    for message in _before(state, ctx.turn):
        spoken[await reader.text(message.text)] += 1
    for steer in steers:
        text = await reader.text(steer.text)
        if texts[text] > spoken[text]:
            spoken[text] += 1
            known.add(message_number(state.native_id, steer.id))
    return known


def _before(state: Session, turn: str) -> list[Message]:
    """What was said before the turn's first steer, as far as the state still has its words."""
    said = [message for message in state.messages.values() if message.turn != turn or message.id == turn]
    return [one for one in said if one.turn is not None and one.text.inline is not None]
