"""The smallest adapter: written by ``adapters/README.md``, for a harness that does as little as one can.

Found by an entry point, as other people's adapters are. It keeps every promise of
``harness_durable.testing.adapters``; what a real harness needs beside this (an installer, odd transcripts,
compaction, errors of the provider) it has not."""

from __future__ import annotations

import json
import sys
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from pathlib import Path

from harness_durable import events as ev
from harness_durable.adapter import Capabilities, Harness, Launch, LifeContext, TurnEnd
from harness_durable.crashpoints import reach
from harness_durable.events import ReplayPolicy
from harness_durable.journal.driver import Splice
from harness_durable.policy import told
from harness_durable.sandbox import Link
from harness_durable.state import Message
from harness_durable_adapters.common.admission import admit, permitted
from harness_durable_adapters.common.conversation import Conversation, Work
from harness_durable_adapters.common.delivery import Delivery
from harness_durable_adapters.common.naming import custom_tool, is_custom, plain
from harness_durable_adapters.common.shapes import Json, decode, encode, mapping, objects, word
from harness_durable_adapters.common.stopping import close_calls, wants_stop

FILE = "transcript.jsonl"
SCRIPT = Path(__file__).with_name("toy_harness.py")


class Toy:
    """Implements ``harness_durable.adapter.Adapter``."""

    name, wire, versions = "toy", "anthropic", ("1",)
    capabilities = Capabilities(
        steer=True, stop=True, custom_tools=True, subagents=False, exact=None, supplies=True
    )
    policies: Mapping[str, ReplayPolicy] = {}
    containers: frozenset[str] = frozenset()

    def custom_name(self, tool: str) -> str:
        return custom_tool(tool)

    async def install(self, version: str | None, progress: Callable[[str], None]) -> Harness:
        return await self.find(version)

    async def check(self) -> Sequence[str]:
        return ()

    async def find(self, version: str | None = None) -> Harness:
        return Harness(str(SCRIPT), "1")

    async def prepare(self, ctx: LifeContext) -> Launch:
        await rebuild(ctx)
        reach("recovery.rebuilt")
        tools = [{**tool, "name": custom_tool(str(tool["name"]))} for tool in ctx.tools.specs()]
        offered = [{"name": tool["name"], "input_schema": tool["inputSchema"]} for tool in tools]

        async def transcript() -> AsyncIterator[bytes]:
            async for line in ctx.journal.transcript_lines(FILE):
                yield line + b"\n"

        env = {
            "HOME": ctx.home,
            "PATH": "/usr/bin:/bin",
            "TOY_URL": "http://127.0.0.1:@PORT@",
            "TOY_KEY": ctx.token,
            "TOY_MODEL": ctx.agent.model,
        }
        argv = (sys.executable, ctx.harness.path)
        return Launch(argv, env, {"tools.json": encode(offered), FILE: transcript})

    async def drive(self, ctx: LifeContext, link: Link) -> TurnEnd:
        return await ToyConversation(ctx, link).run()


# ------------------------------------------------------------------------------------------ rebuilding


def calls_of(message: Json) -> list[str]:
    return [word(block.get("id")) for block in objects(message.get("content")) if block.get("id")]


async def transcript(ctx: LifeContext) -> list[Json]:
    return [decode(line) or {} async for line in ctx.journal.transcript_lines(FILE)]


async def rebuild(ctx: LifeContext) -> None:
    """The last response is taken back if the harness has to get to it again: a call of it has no outcome yet,
    or it is the last word of a turn that is not settled. Else its calls get the results that the log has."""
    messages, state = await transcript(ctx), ctx.journal.state
    place = max((at for at, one in enumerate(messages) if one.get("role") == "assistant"), default=-1)
    if place < 0:
        return
    asked = calls_of(messages[place])
    there = {
        word(block.get("tool_use_id")) for one in messages[place:] for block in objects(one.get("content"))
    }
    ours = [at for at, one in enumerate(messages) if one.get("number") == ctx.turn]
    running = state.turn is not None and bool(ours) and ours[-1] < place
    again = any(state.tool_calls[call].open for call in asked) or (
        not asked and messages[-1] is messages[place]
    )
    if running and again:
        later = [one for one in messages[place + 1 :] if one.get("number")]
        lines = [encode(one) for one in later]
        await ctx.journal.transcript_replaced(FILE, [Splice(place, None, lines)], "a response is given again")
        return
    missing = [call for call in asked if call not in there]
    if missing:
        lines = [encode(await result(ctx, call)) for call in missing]
        await ctx.journal.transcript_replaced(FILE, [Splice(len(messages), 0, lines)], "results are written")


async def result(ctx: LifeContext, call: str) -> Json:
    text, failed = await outcome(ctx, call)
    block = {"type": "tool_result", "tool_use_id": call, "content": text, "is_error": failed}
    return {"role": "user", "content": [block]}


async def outcome(ctx: LifeContext, call: str) -> tuple[str, bool]:
    """What the model is told of a call that has an outcome, and whether that is an error."""
    known = ctx.journal.state.tool_calls[call]
    match await ctx.journal.reader.event(known.outcome_seq):
        case ev.ToolCompleted() | ev.ToolFailed() as event:
            return await ctx.journal.reader.text(event.result), known.outcome == "failed"
        case _:
            return told(known), True


# -------------------------------------------------------------------------------------------- driving


class ToyDelivery(Delivery):
    def __init__(
        self, ctx: LifeContext, known: set[str], said: list[Json], send: Callable[..., Work]
    ) -> None:
        super().__init__(ctx, known, {word(one.get("number")) for one in said if one.get("number")})
        self._send_frame, self._went_on = send, any(one.get("type") == "continue" for one in said)

    def number(self, message: str) -> str:
        return message

    async def write(self, message: Message, text: str, number: str) -> None:
        await self._send_frame(type="message", number=number, text=text)()

    async def opened(self, message: Message) -> None:
        if self.shows(message.id) and not self.was_sent(message.id) and not self._went_on:
            await self._send_frame(type="continue")()


class ToyConversation(Conversation):
    async def begin(self, said: bytes) -> None:
        frames = [decode(line) or {} for line in said.splitlines()]
        self._answered = {word(one.get("id")) for one in frames if one.get("type") == "answer"}
        known = {word(one.get("number")) for one in await transcript(self.ctx) if one.get("number")}
        self._delivery = ToyDelivery(self.ctx, known, frames, self._frame)

    def _frame(self, **members: object) -> Work:
        async def write() -> None:
            await self.write(encode(members) + b"\n")

        return write

    def works(self) -> Sequence[Work]:
        return self._deliver, self._stop

    async def _deliver(self) -> None:
        await self.initialized.wait()
        await self._delivery.run()

    async def _stop(self) -> None:
        await wants_stop(self.ctx)
        await self._delivery.begun()
        await self._frame(type="stop")()
        await self.insist()

    async def take(self, line: bytes, end: int, later: list[Json] | None) -> None:
        frame = decode(line) or {}
        match frame.get("type"):
            case "hello":
                self.initialized.set()
                self.ctx.ready.set()
            case "line":
                await self._mirror(word(frame.get("line")), end)
            case "ask" | "result" if word(frame.get("id")) not in self._answered:
                if later is None:
                    self.serve(frame)
                else:
                    later.append(frame)
            case "settled":
                await self._settled(frame)
            case _:
                return

    async def _mirror(self, line: str, end: int) -> None:
        await self.ctx.journal.transcript_appended(self.ctx.life, {FILE: [line.encode()]}, offset=end)
        message = mapping(json.loads(line))
        if message.get("role") == "assistant":
            self._delivery.moving()
        await self._delivery.arrived([word(message.get("number"))])

    async def _settled(self, frame: Json) -> None:
        stopped = self.ctx.journal.state.turns[self.ctx.turn].stop_by
        if frame.get("failed"):
            self.end = TurnEnd("failed", code="api", reason=word(frame.get("text")))
        elif frame.get("stopped"):
            await close_calls(self.ctx)
            self.end = TurnEnd("cancelled", reason=f"{stopped} asked for a stop")
        elif not self._delivery.outstanding():
            self.end = TurnEnd("completed", text=word(frame.get("text")))

    def serve(self, question: Json) -> None:
        number = word(question.get("id"))

        async def reply() -> bytes:
            return encode({"type": "answer", "id": number, **await self._reply(question)}) + b"\n"

        self.serving.begin(number, reply)

    async def _reply(self, question: Json) -> Json:
        ctx, call, tool = self.ctx, word(question.get("call")), word(question.get("tool"))
        if question.get("type") == "result":
            text = word(question.get("text")).encode()
            ok = question.get("failed") is not True
            await ctx.journal.tool_finished(call, ok=ok, result=text, source="hook")
            return {}
        if is_custom(tool):
            refused = await permitted(ctx, call, tool)
            if refused:
                return {"text": refused, "failed": True}
            done = await ctx.tools.call(call, plain(tool), encode(question.get("input")))
            return {"text": done.text, "failed": done.is_error}
        verdict = await admit(ctx, call, tool)
        if verdict.action == "release":
            return {"run": True}
        text, failed = await outcome(ctx, call) if verdict.action == "supply" else (verdict.text, True)
        return {"text": text, "failed": failed}
