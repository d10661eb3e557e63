"""Driving a life of Codex: what its notices mean, and what it has to be told.

A life begins with a new thread, which gets the conversation so far; then the harness's turn is begun. If the
last life ended while the conversation was being summed up, the harness has to do that first, in a turn of its
own. All ids are read from the output again after a takeover, so that nothing has to be remembered."""

from __future__ import annotations

from collections.abc import Sequence

import anyio

from harness_durable import clock
from harness_durable.adapter import LifeContext, TurnEnd
from harness_durable.errors import HarnessStuck
from harness_durable.sandbox import Link

from ..common.shapes import Json, decode, encode, mapping, outline, word
from ..common.spoken import Spoken
from ..common.stopping import close_calls, wants_stop
from . import frames
from .delivery import Delivery
from .gate import reply
from .history import gone, sums_up, transcript
from .items import is_user, note
from .launch import thread
from .mirror import finish, mirror
from .outcome import hopeless, pause, turn_end, waiting

_PIECE = 4 << 20
"""Bytes of a conversation that are given to the harness at a time."""
CLIENT: Json = {
    "clientInfo": {"name": "harness_durable", "title": "harness-durable", "version": "1"},
    "capabilities": {"experimentalApi": True},
}


async def drive(ctx: LifeContext, link: Link) -> TurnEnd:
    """Speak with the harness until the turn is settled. See ``Adapter.drive``."""
    return await CodexConversation(ctx, link).run()


class CodexConversation(Spoken):
    """One life, as long as this worker drives it."""

    def __init__(self, ctx: LifeContext, link: Link) -> None:
        super().__init__(ctx, link)
        self._pieces: list[list[Json]] = []
        self._sum_up_at = -1  # before which piece; -1: not at all, or it is done
        self._thread = self._turn = ""
        self._given, self._running = anyio.Event(), anyio.Event()
        self._failures = 0

    async def begin(self, said: bytes) -> None:
        self.said = frames.read_said(said)
        items, _, _ = await transcript(self.ctx.journal)
        if frames.TURN not in self.said.asked:
            self._pieces = pieces(items)
            if await sums_up(self.ctx.journal):
                self._sum_up_at = len(self._pieces)
                self._pieces += pieces(gone(items))
        elif frames.SUM_UP in self.said.asked:
            self._sum_up_at = 0
        self.delivery = await Delivery.begin(self.ctx, self._ask, self.said, items)

    # ----------------------------------------------------------------------------------- reading

    async def take(self, line: bytes, end: int, later: list[Json] | None) -> None:
        frame = decode(line) or outline(line)  # arguments can be nested too deeply to be read
        if frame is None:
            self.unreadable += bool(line.strip())
        elif "method" not in frame:
            await self._answered(frame)
        elif "id" in frame:
            self.asked(frames.number_of(frame), frame, later)
        else:
            await self._told(word(frame.get("method")), mapping(frame.get("params")), end, later)

    def serve(self, question: Json) -> None:
        self.serving.begin(frames.number_of(question), lambda: reply(self.ctx, question, self._explain))

    async def _told(self, method: str, params: Json, end: int, later: list[Json] | None) -> None:
        """A notice. What is about another turn than ours came with the conversation that we gave."""
        ours = params.get("turnId") == self._turn and not self._sums_up
        item = mapping(params.get("item"))
        match method:
            case "rawResponseItem/completed" if ours:
                await mirror(self.ctx, item, end)
                if not is_user(item) and item.get("role") != "developer":
                    self.delivery.moving()
            case "item/completed" if ours:
                await self.delivery.arrived([word(item.get("clientId"))])
                await finish(self.ctx, item)
            case "serverRequest/resolved":
                number = frames.number_of_id(params.get("requestId"))
                if later is not None:
                    later[:] = [one for one in later if frames.number_of(one) != number]
            case "turn/started" if not (self._sums_up and frames.TURN in self.said.asked):
                self._begun(mapping(params.get("turn")))
            case "turn/completed":
                await self._completed(mapping(params.get("turn")))
            case "error":
                self._trouble_with(mapping(params.get("error")), again=params.get("willRetry") is True)
            case _:
                return

    async def _answered(self, frame: Json) -> None:
        """An answer to a request of ours."""
        number, result = word(frame.get("id")), mapping(frame.get("result"))
        error = mapping(frame.get("error"))
        if error and not number.startswith((frames.NOTE, frames.STEER, frames.STOP, frames.SUM_UP)):
            raise HarnessStuck(
                f"the harness refused {number}: {word(error.get('message'))}; its version may not fit"
            )
        if number == frames.INITIALIZE:
            self.initialized.set()
            await self._start_thread()
        elif number == frames.THREAD:
            self._thread = word(mapping(result.get("thread")).get("id"))
            self.ctx.ready.set()
            await self._give(0)
        elif number.startswith(frames.INJECT):
            await self._give(int(number.removeprefix(frames.INJECT)) + 1)
        elif number == frames.SUM_UP and error:
            await self._summed_up()
        elif number.startswith(frames.TURN):
            self._begun(mapping(result.get("turn")))

    @property
    def _sums_up(self) -> bool:
        """Is the next turn of the harness's, or the one that runs, that in which it sums up?"""
        return self._sum_up_at >= 0

    def _begun(self, turn: Json) -> None:
        self._turn = word(turn.get("id"))
        self._running.set()

    async def _completed(self, turn: Json) -> None:
        if self._sums_up:
            if self.stop_by is None or frames.TURN in self.said.asked:
                await self._summed_up()
            else:
                self.end = await self._stopped()
            return
        if turn.get("id") != self._turn:
            return
        self._failures = self._failures + 1 if turn.get("status") == "failed" else 0
        seconds = pause(turn, self._failures)
        if seconds and self.stop_by is None:
            self._running = anyio.Event()
            number = f"{frames.TURN}-{self._failures}"
            self.start(lambda: self._go_on(number, seconds))
            return
        end = turn_end(turn, self.ctx.journal.state, self.stop_by)
        if end.kind == "cancelled":
            await close_calls(self.ctx)
        self.end = self.end or end

    async def _go_on(self, number: str, seconds: float) -> None:
        """The harness has given a turn up that can go on: it is begun again, with nothing new."""
        if number in self.said.asked:
            return
        self.ctx.progress(f"waiting {seconds:.0f} s: the model provider was asked too often")
        self.waits = max(self.waits, clock.monotonic() + seconds)
        await clock.sleep(seconds)
        await self._ask(number, "turn/start", {"input": []})

    def _trouble_with(self, error: Json, *, again: bool) -> None:
        """The harness will ask the provider again after a while. That it does is shown as soon as it does."""
        if again and self.stop_by is None:
            self.end = self.end or hopeless(error, self.ctx.journal.state)
            self.ctx.progress(waiting(error))

    # ---------------------------------------------------------------------------------- speaking

    async def _ask(self, number: str, method: str, params: Json) -> None:
        named: Json = {"threadId": self._thread}
        if method == "turn/steer":
            named["expectedTurnId"] = self._turn
        await self.write(frames.request(number, method, {**named, **params}))

    async def speak(self) -> None:
        if frames.INITIALIZE not in self.said.asked:
            await self.write(frames.request(frames.INITIALIZE, "initialize", CLIENT))

    async def _start_thread(self) -> None:
        if frames.THREAD not in self.said.asked:
            begun = thread(self.ctx.agent, self.ctx.tools.specs())
            await self.write(frames.notice("initialized"))
            await self.write(frames.request(frames.THREAD, "thread/start", begun))

    async def _give(self, place: int) -> None:
        """Give the harness the conversation so far, a piece at a time; then it has to hear messages."""
        if place == self._sum_up_at:
            if frames.SUM_UP not in self.said.asked:
                await self._ask(frames.SUM_UP, "thread/compact/start", {})
        elif place >= len(self._pieces):
            self._given.set()
        elif f"{frames.INJECT}{place}" not in self.said.asked:
            number = f"{frames.INJECT}{place}"
            await self._ask(number, "thread/inject_items", {"items": self._pieces[place]})

    async def _summed_up(self) -> None:
        """Or it could not be: then the conversation goes on as it is."""
        place, self._sum_up_at = self._sum_up_at, -1
        self._turn, self._running = "", anyio.Event()
        await self._give(place)

    async def _explain(self, call: str, why: str) -> None:
        """Before a call is declined, so that it comes with the next request."""
        items = [note(f"on the call {call}: {why}")]
        await self._ask(f"{frames.NOTE}{call}", "thread/inject_items", {"items": items})

    async def deliver(self) -> None:
        await self._given.wait()
        await self.delivery.run()

    async def stop(self) -> None:
        await wants_stop(self.ctx)
        if self._failures and not self._running.is_set():  # nothing runs: it waits for the provider
            self.leave(await self._stopped())
            return
        await self._running.wait()
        await self._ask(f"{frames.STOP}{self.link.stdin_offset}", "turn/interrupt", {"turnId": self._turn})
        await self.insist()

    async def _stopped(self) -> TurnEnd:
        """The end of a turn that somebody stopped while no turn of the harness's ran for it."""
        await close_calls(self.ctx)
        return TurnEnd("cancelled", reason=f"{self.stop_by} asked for a stop")


def pieces(items: Sequence[Json]) -> list[list[Json]]:
    """The conversation in parts that are not too large for a frame. Pure."""
    found: list[list[Json]] = []
    size = 0
    for item in items:
        length = len(encode(item))
        if not found or size + length > _PIECE:
            found.append([])
            size = 0
        found[-1].append(item)
        size += length
    return found
