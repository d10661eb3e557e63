"""Messages and steers to the harness: each once, known by the mark in its id."""

from __future__ import annotations

from harness_durable import clock
from harness_durable.adapter import LifeContext
from harness_durable.errors import HarnessStuck
from harness_durable.state import Message

from ..common import delivery
from ..common.shapes import Json, mapping
from .conversation import Said
from .mirror import Mirror
from .naming import AGENT, PROVIDER, made, mark, marked, marked_id
from .server import Refused, Server


class Delivery(delivery.Delivery):
    """The messages of one turn in one life."""

    def __init__(self, ctx: LifeContext, server: Server, mirror: Mirror) -> None:
        super().__init__(ctx, set(), set())
        self._server, self._mirror = server, mirror
        self._sent_now = False

    @classmethod
    async def begin(cls, ctx: LifeContext, server: Server, mirror: Mirror) -> Delivery:
        """What the harness has already is not sent again; the log hears of it."""
        delivery = cls(ctx, server, mirror)
        await delivery.seen()
        return delivery

    async def seen(self) -> None:
        """The harness has what its mirrored conversation shows, whoever took that in (the gate may)."""
        users = [said for said in self._mirror.conversation.messages.values() if said.is_user]
        await self.arrived(marked(said.id) for said in users)

    def number(self, message: str) -> str:
        return mark(self._ctx.journal.state.native_id, message)

    async def write(self, message: Message, text: str, number: str) -> None:
        now = clock.now_ms()
        part: Json = {"id": made("prt", now, number), "type": "text", "text": text}
        self._sent_now = True
        await self._prompt(marked_id(now, number), [part])

    async def opened(self, message: Message) -> None:
        """A harness that has the turn's message already is told to go on, if it does not. One that works
        would take the last message for a newer one, and sum up twice if that is its wish for a summary."""
        if not self._sent_now and self._mirror.session not in await self._server.working():
            await self.go_on()

    async def go_on(self) -> None:
        """The last message again, without content: the harness goes on where the conversation ends. Of one
        that is answered it changes nothing."""
        last = self._mirror.conversation.last_user
        if last is not None:
            await self.again(self._mirror.session, last)

    async def again(self, session: str, last: Said) -> None:
        """The same for a session of the harness's, a subagent's for instance."""
        await self._prompt(last.id, [], last, session)

    async def _prompt(
        self, number: str, parts: list[Json], known: Said | None = None, session: str = ""
    ) -> None:
        """The harness answers when it has stored the message."""
        info = known.info if known is not None else {}
        model: Json = {"providerID": PROVIDER, "modelID": self._ctx.agent.model}
        body: Json = {
            "messageID": number,
            "agent": info.get("agent") or AGENT,
            "model": mapping(info.get("model")) or model,
            "parts": parts,
        }
        try:
            place = f"/session/{session or self._mirror.session}/prompt_async"
            await self._server.call("POST", place, body)
        except Refused as refused:
            raise HarnessStuck(f"the harness does not take a message: {refused}") from None
