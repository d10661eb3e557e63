"""Driving a life that is spoken with on its standard input and output: see ``conversation``, and ``frames``.

A harness may settle and then go on by itself, with a message that it was given before: so its turn is over
only when it has taken up all that it was given, or lets a while pass."""

from __future__ import annotations

import logging
from abc import abstractmethod
from collections.abc import Sequence

from harness_durable.adapter import LifeContext, TurnEnd
from harness_durable.sandbox import Link

from .conversation import Conversation, Work
from .delivery import Delivery
from .frames import Said
from .shapes import Json
from .stopping import close_calls

log = logging.getLogger("harness_durable.adapters")

GRACE_SECONDS = 30.0
"""After the harness has settled, for it to take up a message that it was given before."""


class Spoken(Conversation):
    """``begin`` sets ``said`` and ``delivery``; ``unreadable`` counts lines that are no frames."""

    delivery: Delivery

    def __init__(self, ctx: LifeContext, link: Link) -> None:
        super().__init__(ctx, link)
        self.said = Said()
        self.unreadable = 0
        self._settled: TurnEnd | None = None

    @abstractmethod
    async def speak(self) -> None:
        """What the harness has to hear before anything else."""

    @abstractmethod
    async def stop(self) -> None:
        """Interrupt when somebody asks for a stop; a harness that does not heed it is given up."""

    async def deliver(self) -> None:
        """Messages and steers, once the harness listens."""
        await self.initialized.wait()
        await self.delivery.run()

    def works(self) -> Sequence[Work]:
        return self.speak, self.deliver, self.stop

    def report(self) -> None:
        if self.unreadable or self.lines.too_long:
            log.warning(
                "life %s: unreadable output: %d lines that are no frames, %d that are too long",
                self.ctx.life,
                self.unreadable,
                self.lines.too_long,
            )

    def asked(self, number: str, question: Json, later: list[Json] | None) -> None:
        """The harness asks something. What any worker has answered is not answered again."""
        if number in self.said.answered:
            return
        if later is not None:
            later.append(question)
        else:
            self.serve(question)

    async def settle(self, end: TurnEnd) -> None:
        """The harness has settled: ``end`` is set, unless it goes on with a message that it has not taken up
        yet."""
        if end.kind == "cancelled":
            await close_calls(self.ctx)
        elif self.stop_by is None and self.delivery.outstanding():
            self._settled = end
            return
        self.end = end

    @property
    def stop_by(self) -> str | None:
        """Who asked for a stop of the turn."""
        return self.ctx.journal.state.turns[self.ctx.turn].stop_by

    def tick(self, silent: float) -> None:
        if self._settled is not None and self.delivery.outstanding() and silent > GRACE_SECONDS:
            self.leave(self._settled)
