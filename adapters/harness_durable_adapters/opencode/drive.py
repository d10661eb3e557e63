"""Driving a life of OpenCode: its server is asked, and followed.

Its stream of events only wakes us: what it says is late, and what is missed is missed. The truth is in its
event store, which the mirror reads by a cursor."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import cast

import anyio

from harness_durable import clock
from harness_durable.adapter import LifeContext, TurnEnd
from harness_durable.errors import HarnessStuck
from harness_durable.sandbox import Link

from ..common.conversation import STOP_SECONDS, Conversation, Work
from ..common.shapes import Json, mapping, word
from ..common.stopping import close_calls, wants_stop
from . import asks
from .delivery import Delivery
from .events import CONTAINERS, MESSAGE
from .gate import Gate
from .mirror import Mirror
from .naming import BARRIER
from .outcome import MOST_ATTEMPTS, failed, gave_up, turn_end
from .server import Broken, Refused, Server
from .subagents import Subagents

LISTENING = re.compile(rb"listening on http://127\.0\.0\.1:(\d+)")
_SETTLE_SECONDS = 0.03
"""After a sign that there is something new, for more of it to come."""
_AGAIN_SECONDS = 0.2
_MOST_CONNECTIONS = 50
"""In a row that broke at once; a server that is gone is noticed before that."""
_IDLE_SECONDS = 3.0
"""A harness that was told to work, is idle and has not settled the turn is told once more. It takes up what
it was told within milliseconds."""
_MOST_REMINDERS = 3


async def drive(ctx: LifeContext, link: Link) -> TurnEnd:
    """Speak with the harness until the turn is settled. See ``Adapter.drive``."""
    return await OpenCodeConversation(ctx, link).run()


class OpenCodeConversation(Conversation):
    """One life, as long as this worker drives it."""

    def __init__(self, ctx: LifeContext, link: Link) -> None:
        super().__init__(ctx, link)
        self._port = 0
        self._listening = anyio.Event()
        self._connected = anyio.Event()
        self._resuming, self._resumed = anyio.CancelScope(), anyio.Event()
        self._news = anyio.Event()
        self._idle_since: float | None = None
        self._reminders = 0
        self._error: Json = {}

    async def begin(self, said: bytes) -> None:
        """Nothing is ever said on its standard input."""

    def works(self) -> Sequence[Work]:
        return self._work, self._stop

    async def take(self, line: bytes, end: int, later: list[Json] | None) -> None:
        found = LISTENING.search(line)
        if found is not None:
            self._port = int(found[1])
            self._listening.set()

    def loops(self) -> frozenset[str]:
        return CONTAINERS

    def tick(self, silent: float) -> None:
        self._news.set()
        if self._gate is not None and self._gate.asked:  # a person is asked
            self.heard = clock.monotonic()

    _gate: Gate | None = None

    # ----------------------------------------------------------------------------------- working

    async def _work(self) -> None:
        """Bring the harness to where the log is, then follow it to the end of the turn."""
        await self._listening.wait()
        self._server = Server(self.link.dial, self._port, self.ctx.token)
        self._mirror = Mirror(self.ctx, self._server)
        await self._mirror.restore()
        await self._mirror.pull()
        tools = await self._server.json("GET", "/experimental/tool/ids")
        if not isinstance(tools, list) or BARRIER not in cast(list[object], tools):
            raise HarnessStuck("the harness did not load our plugin, so nothing would hold its tools back")
        self._gate = Gate(self.ctx, self._mirror.pull, self._mirror.is_ours)
        self.ctx.routes.open(self._gate.routes())
        self.ctx.ready.set()
        self._delivery = await Delivery.begin(self.ctx, self._server, self._mirror)
        self.initialized.set()
        self.start(self._listen)
        await self._connected.wait()  # some errors are told in events only, and once
        subagents = Subagents(
            self.ctx, self._server, self._mirror, self._delivery.again, self._server.working
        )
        with self._resuming:
            await subagents.finish()
        self._resumed.set()
        if self._resuming.cancelled_caught:
            return  # the stop does the rest
        self.start(self._delivery.run)
        await self._follow()

    async def _follow(self) -> None:
        """Take in what is new, and find out whether the turn is over."""
        await self._delivery.begun()
        while True:
            await self._news.wait()
            await clock.sleep(_SETTLE_SECONDS)
            self._news = anyio.Event()
            await self._pull()
            await self._judge()

    async def _pull(self) -> None:
        rows = await self._mirror.pull()
        infos = [row.info for row in rows if row.kind == MESSAGE]
        await self._delivery.seen()
        if any(info.get("role") == "assistant" for info in infos):
            self._delivery.moving()

    async def _judge(self) -> None:
        """Settle the turn if the harness has; remind it if it is idle and has not."""
        if await self._busy_there():
            self._idle_since = None
            return
        await self._pull()
        stopped_by = self.ctx.journal.state.turns[self.ctx.turn].stop_by
        end = turn_end(self._mirror.conversation, stopped_by)
        if end is not None and not self._delivery.outstanding():
            if end.kind == "cancelled":
                await close_calls(self.ctx)
            self.leave(end)
        elif stopped_by is None:
            await self._remind()

    async def _remind(self) -> None:
        now = clock.monotonic()
        self._idle_since = self._idle_since or now
        if now - self._idle_since < _IDLE_SECONDS:
            return
        if self._reminders == _MOST_REMINDERS:
            if not self._error:
                raise HarnessStuck("the harness is idle, and does not go on with the turn")
            self.leave(failed(self._error, None))
            return
        self._reminders += 1
        self._idle_since = None
        await self._delivery.go_on()

    async def _busy_there(self) -> bool:
        """Does it work, by its own account? Raises ``HarnessStuck`` if it does not say."""
        return self._mirror.session in await self._server.working()

    # ---------------------------------------------------------------------------------- listening

    async def _listen(self) -> None:
        """Its events, as signs that there is something new; and what only they tell."""
        broken = 0
        while broken < _MOST_CONNECTIONS:
            try:
                async for event in self._server.events("/global/event"):
                    broken = 0
                    self.heard = clock.monotonic()
                    await self._heard_event(mapping(event.get("payload")))
            except (Broken, Refused):
                pass
            broken += 1
            await clock.sleep(_AGAIN_SECONDS)
        raise HarnessStuck("the harness does not tell its events any more")

    async def _heard_event(self, event: Json) -> None:
        said = mapping(event.get("properties"))
        self._news.set()
        match event.get("type"):
            case "session.status":
                await self._retrying(mapping(said.get("status")))
            case "session.error" if said.get("sessionID") in (None, self._mirror.session):
                self._error = mapping(said.get("error"))  # of which no message tells, perhaps
            case "permission.asked" | "question.asked" | None:  # None: the stream stands
                self._connected.set()
                await asks.answer(self.ctx, self._server)
            case _:
                return

    async def _retrying(self, status: Json) -> None:
        """It will ask the provider again after a while. That it does is shown as soon as it does."""
        attempt, until = status.get("attempt"), status.get("next")
        if (
            status.get("type") != "retry"
            or not isinstance(attempt, int)
            or not isinstance(until, int | float)
        ):
            return
        seconds = max(0.0, until / 1000 - clock.now_ms() / 1000)
        self.waits = max(self.waits, clock.monotonic() + seconds)
        said = word(status.get("message"))
        if attempt >= MOST_ATTEMPTS:
            calls = self.ctx.journal.state.model_calls.values()
            last = next((call for call in reversed(calls) if call.status == "failed"), None)
            self.leave(gave_up(last.http_status if last is not None else None, said))
        self.ctx.progress(f"waiting {seconds:.0f} s before attempt {attempt + 1} of {MOST_ATTEMPTS}: {said}")

    # ----------------------------------------------------------------------------------- stopping

    async def _stop(self) -> None:
        """Interrupt when somebody asks for a stop; a harness that does not heed it is given up. One that was
        just told to work may begin after it was interrupted, so it is interrupted until it stays idle."""
        await wants_stop(self.ctx)
        await self.initialized.wait()
        self._resuming.cancel()
        await self._resumed.wait()
        if not self._resuming.cancelled_caught:
            await self._delivery.begun()
        idle = 0
        deadline = clock.monotonic() + STOP_SECONDS
        while idle < 3 and clock.monotonic() < deadline:
            working = await self._server.working()
            for session in {self._mirror.session, *working}:
                await self._server.call("POST", f"/session/{session}/abort")
            idle = 0 if await self._server.working() else idle + 1
            await clock.sleep(_AGAIN_SECONDS)
        if idle < 3:
            raise HarnessStuck(f"the harness did not stop within {STOP_SECONDS:.0f} s of being asked")
        await self._pull()
        await close_calls(self.ctx)
        stopped_by = self.ctx.journal.state.turns[self.ctx.turn].stop_by
        self.leave(TurnEnd("cancelled", reason=f"{stopped_by} asked for a stop"))
