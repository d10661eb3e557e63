"""Driving a life of Claude Code: what its frames mean, and what it has to be told."""

from __future__ import annotations

import logging

from harness_durable import clock
from harness_durable.adapter import LifeContext, TurnEnd
from harness_durable.errors import HarnessStuck
from harness_durable.sandbox import Link
from harness_durable.tools.mcp import McpEndpoint

from ..common.shapes import Json, decode, mapping, word
from ..common.spoken import Spoken
from ..common.stopping import wants_stop
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


async def drive(ctx: LifeContext, link: Link) -> TurnEnd:
    """Speak with the harness until the turn is settled. See ``Adapter.drive``."""
    return await ClaudeConversation(ctx, link).run()


class ClaudeConversation(Spoken):
    """One life, as long as this worker drives it."""

    def __init__(self, ctx: LifeContext, link: Link) -> None:
        super().__init__(ctx, link)
        self._mcp = McpEndpoint(ctx.tools, SERVER, "1")
        self._gap = Gap(ctx.journal.state.native_id)
        self._deep = 0
        self._tried = False

    async def begin(self, said: bytes) -> None:
        self.said = frames.read_said(said)
        self.delivery = await Delivery.begin(self.ctx, self.write, self.said)

    def loops(self) -> frozenset[str]:
        return CONTAINERS

    def report(self) -> None:
        super().report()
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
            self.unreadable += bool(line.strip())
            return
        match frame.get("type"):
            case "transcript_mirror":
                lines = lines_of(frame)
                self._gap.mirrored(lines)
                await self.delivery.arrived(await mirror(self.ctx, frame, lines, end))
            case "user":
                self._gap.streamed(frame)
                await self.delivery.arrived([word(frame.get("uuid"))] if frame.get("isReplay") else [])
            case "assistant":
                self._gap.streamed(frame)
                self.delivery.moving()
                self._tried = self._tried and bool(frame.get("error"))  # its own words about an error
            case "control_request":
                self.asked(word(frame.get("request_id")), frame, later)
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
        await self.settle(turn_end(frame, self.stop_by, tried=self._tried))
        if self.end is not None:
            await self._close_gap()

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

    async def speak(self) -> None:
        if INITIALIZE not in self.said.asked:
            await self.write(frames.request(INITIALIZE, initialize(custom=bool(self.ctx.tools.tools))))

    async def stop(self) -> None:
        await wants_stop(self.ctx)
        await self.initialized.wait()
        await self.delivery.begun()
        await self.write(frames.request(f"durable-stop-{self.link.stdin_offset}", {"subtype": "interrupt"}))
        await self.insist()
