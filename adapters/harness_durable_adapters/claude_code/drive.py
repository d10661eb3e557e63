"""Driving a life of Claude Code: what its frames mean, and what it has to be told."""

from __future__ import annotations

import logging
from collections.abc import Sequence

from harness_durable import clock
from harness_durable.adapter import LifeContext, TurnEnd
from harness_durable.errors import HarnessStuck
from harness_durable.sandbox import Link
from harness_durable.tools.mcp import McpEndpoint

from ..common.conversation import Conversation, Work
from ..common.shapes import Json, decode, mapping, word
from ..common.stopping import close_calls, wants_stop
from . import frames
from .delivery import Delivery
from .gap import Gap
from .gate import CONTAINERS
from .launch import INITIALIZE, initialize
from .mirror import lines_of, mirror
from .naming import SERVER, main_file
from .outcome import hopeless, turn_end, wait_seconds, waiting
from .serving import reply

log = logging.getLogger("harness_durable.claude_code")

GRACE_SECONDS = 30.0
"""After a turn has ended, for the harness to take up a message that it was given during that turn."""


async def drive(ctx: LifeContext, link: Link) -> TurnEnd:
    """Speak with the harness until the turn is settled. See ``Adapter.drive``."""
    return await ClaudeConversation(ctx, link).run()


class ClaudeConversation(Conversation):
    """One life, as long as this worker drives it."""

    def __init__(self, ctx: LifeContext, link: Link) -> None:
        super().__init__(ctx, link)
        self._said = frames.Said(frozenset(), frozenset(), frozenset())
        self._mcp = McpEndpoint(ctx.tools, SERVER, "1")
        self._settled: TurnEnd | None = None
        self._gap = Gap(ctx.journal.state.native_id)
        self._unreadable = self._deep = 0
        self._tried = False

    async def begin(self, said: bytes) -> None:
        self._said = frames.read_said(said)
        self._delivery = await Delivery.begin(self.ctx, self.write, self._said)

    def works(self) -> Sequence[Work]:
        return self._speak, self._deliver, self._stop

    def loops(self) -> frozenset[str]:
        return CONTAINERS

    def report(self) -> None:
        if self._unreadable or self.lines.too_long:
            log.warning(
                "life %s: unreadable output: %d lines that are no frames, %d that are too long",
                self.ctx.life,
                self._unreadable,
                self.lines.too_long,
            )
        if self._deep:
            log.warning(
                "life %s: %d frames were nested too deeply to be read; they are kept as they came, and calls "
                "with such an input do not run",
                self.ctx.life,
                self._deep,
            )

    # ----------------------------------------------------------------------------------- reading

    async def take(self, line: bytes, end: int, later: list[Json] | None) -> None:
        """One frame. ``later`` collects requests that must not be served yet."""
        frame = decode(line)
        if frame is None:
            frame = frames.outlined(line)
            self._deep += frame is not None
        if frame is None:
            self._unreadable += bool(line.strip())
            return
        match frame.get("type"):
            case "transcript_mirror":
                lines = lines_of(frame)
                self._gap.mirrored(lines)
                await self._delivery.arrived(await mirror(self.ctx, frame, lines, end))
            case "user":
                self._gap.streamed(frame)
                await self._delivery.arrived([word(frame.get("uuid"))] if frame.get("isReplay") else [])
            case "assistant":
                self._gap.streamed(frame)
                self._delivery.moving()
                self._tried = self._tried and bool(frame.get("error"))  # its own words about an error
            case "control_request":
                if word(frame.get("request_id")) in self._said.answered:
                    return
                if later is not None:
                    later.append(frame)
                else:
                    self.serve(frame)
            case "control_cancel_request":
                number = frame.get("request_id")
                if later is not None:
                    later[:] = [request for request in later if request.get("request_id") != number]
                self.serving.cancel(word(number))
            case "control_response":
                self._answered(mapping(frame.get("response")))
            case "result":
                await self._result(frame)
            case "system":
                self.end = self.end or hopeless(frame, self.ctx.journal.state, login=self.ctx.login)
                self._retrying(frame)
            case _:
                return

    def _retrying(self, frame: Json) -> None:
        """The harness will ask the provider again after a while. That it does is shown as soon as it does."""
        self.waits = max(self.waits, clock.monotonic() + wait_seconds(frame))
        said = waiting(frame)
        if said and self.end is None:
            self._tried = True
            self.ctx.progress(said)

    async def _result(self, frame: Json) -> None:
        turn = self.ctx.journal.state.turns[self.ctx.turn]
        end = turn_end(frame, turn.stop_by, tried=self._tried)
        if end.kind == "cancelled":
            await close_calls(self.ctx)
        elif turn.stop_by is None and self._delivery.outstanding():
            self._settled = end  # it goes on by itself, with a message that it has not taken up yet
            return
        await self._close_gap()
        self.end = end

    async def _close_gap(self) -> None:
        """The mirror comes before the result. What it lacks by now, the harness did not write."""
        lines = self._gap.lines()
        if lines:
            log.warning("life %s: %d messages were not in the transcript", self.ctx.life, len(lines))
            file = main_file(self.ctx.journal.state.native_id)
            await self.ctx.journal.transcript_appended(self.ctx.life, {file: lines}, offset=0)

    def _answered(self, response: Json) -> None:
        if response.get("request_id") != INITIALIZE:
            return
        if response.get("subtype") == "error":
            raise HarnessStuck(
                f"the harness refused to initialize: {word(response.get('error'))}; its version may not fit"
            )
        self.initialized.set()
        self.ctx.ready.set()

    def serve(self, question: Json) -> None:
        number = word(question.get("request_id"))
        request = mapping(question.get("request"))
        self.serving.begin(number, lambda: reply(self.ctx, self._mcp, number, request))

    # ---------------------------------------------------------------------------------- speaking

    async def _speak(self) -> None:
        """What the harness has to hear before anything else."""
        if INITIALIZE not in self._said.asked:
            await self.write(frames.request(INITIALIZE, initialize(custom=bool(self.ctx.tools.tools))))

    async def _deliver(self) -> None:
        await self.initialized.wait()
        await self._delivery.run()

    async def _stop(self) -> None:
        """Interrupt when somebody asks for a stop; a harness that does not heed it is given up."""
        await wants_stop(self.ctx)
        await self.initialized.wait()
        await self._delivery.begun()
        await self.write(frames.request(f"durable-stop-{self.link.stdin_offset}", {"subtype": "interrupt"}))
        await self.insist()

    def tick(self, silent: float) -> None:
        if self._settled is not None and self._delivery.outstanding() and silent > GRACE_SECONDS:
            self.leave(self._settled)
