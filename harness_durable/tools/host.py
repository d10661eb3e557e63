"""Runs a session's own tools: released in the log first, outcome in the log before anyone hears of it.

What surprises: a call that was released, has no outcome and does not run here was running in a worker that
died, in this life or another; what becomes of it is decided by its policy. So nobody else may release a
custom tool's call: an adapter's own barrier (a hook, an approval) lets it pass unreleased.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Literal

import anyio

from harness_durable import policy
from harness_durable.crashpoints import reach
from harness_durable.errors import BadTool
from harness_durable.events import ReplayPolicy, Source
from harness_durable.journal import Journal
from harness_durable.state import ToolCall
from harness_durable.tools.arguments import BadArguments, exact
from harness_durable.tools.declare import NOT_HAPPENED, UNSURE, Tool, ToolContext
from harness_durable.tools.results import ToolResult, failure, recorded, render, visible
from harness_durable.tools.running import Crashed, Cut, Returned, Running, Runs, lives_on, run

Closed = Literal["cancelled", "not_started", "unknown"]

PROBE_SECONDS = 60.0
"""How long a probe may take if its tool names no limit: recovery waits for it."""


class ToolHost:
    """The custom tools of one life. ``custom_name`` tells how the model sees a tool of a given name.

    ``progress`` is called with a call's id and a text whenever a tool says how far it is.
    """

    def __init__(
        self,
        tools: Sequence[Tool],
        journal: Journal,
        session: str,
        life: str,
        *,
        custom_name: Callable[[str], str],
        progress: Callable[[str, str], None] | None = None,
    ) -> None:
        self.tools: Mapping[str, Tool] = {tool.name: tool for tool in tools}
        self.journal, self.session, self.life = journal, session, life
        self._seen = {custom_name(name): tool for name, tool in self.tools.items()}
        if len(self._seen) < len(tools):
            names = ", ".join(sorted(tool.name for tool in tools))
            raise BadTool(f"two tools have the same name, among {names}; give one of them name=...")
        self._progress = progress
        self._runs = Runs()

    @property
    def policies(self) -> dict[str, ReplayPolicy]:
        """Today's policies by the names that the model sees."""
        return {name: tool.replay for name, tool in self._seen.items()}

    @property
    def probes(self) -> frozenset[str]:
        """The names, as the model sees them, of tools that can be asked whether a call happened."""
        return frozenset(name for name, tool in self._seen.items() if tool.probe is not None)

    def specs(self) -> list[dict[str, object]]:
        """``name``, ``description`` and ``inputSchema`` of each tool, as MCP lists them."""
        return [
            {"name": tool.name, "description": tool.description, "inputSchema": tool.schema}
            for tool in self.tools.values()
        ]

    async def call(self, call_id: str, name: str, arguments: bytes) -> ToolResult:
        """Run a call that the model asked for, and give what the model shall see.

        ``name`` is the tool's plain name, ``arguments`` are the JSON as it came. The same id again joins the
        run, or gets the recorded result. Raises only for machinery: ``StorageUnavailable``, ``WriterFenced``.
        """
        return await self._runs.join(call_id, lambda running: self._gated(running, call_id, name, arguments))

    async def settle(self, call: ToolCall, action: Literal["run", "probe"]) -> None:
        """Finish a call that an earlier worker left open, as the recovery plan says. It has an outcome then.

        ``run`` it (again, with the same key), or ``probe`` whether it happened and run it if it did not; in a
        stopped turn it is ``not_started`` instead."""

        async def work(running: Running) -> ToolResult:
            known = self.journal.state.tool_calls[call.id]
            if not known.open:
                return await recorded(self.journal.reader, known)
            if known.released_in is None:
                raw = await self.journal.reader.content(known.input)
                return await self._gated(running, known.id, self._plain(known), raw)
            return await self._again(running, known, action)

        await self._runs.join(call.id, work)

    async def cancel(self, call_id: str) -> None:
        """Stop a call that runs; its outcome is ``cancelled``, unless it ends by itself just then. Returns
        once it has its outcome. Nothing happens if it does not run."""
        await self._runs.stop(call_id)

    # ---------------------------------------------------------------------------------------- steps

    async def _gated(self, running: Running, call_id: str, name: str, arguments: bytes) -> ToolResult:
        known = self.journal.state.tool_calls.get(call_id)
        tool = self.tools.get(name)
        if known is not None and (tool is None or self._seen.get(known.name) is not tool):
            return await self._misfit(known, name)
        if known is not None and tool is not None and known.open and known.released_in is not None:
            return await self._again(running, known, self._cut_off(known, tool))
        verdict = await self.journal.tool_gate(call_id, self.life, key=self._key(call_id))
        if verdict.action in ("deny", "refuse"):
            return ToolResult(verdict.text, True)
        known = self.journal.state.tool_calls[call_id]
        if verdict.action == "supply" or tool is None:
            return await recorded(self.journal.reader, known)
        raw = exact(await self.journal.reader.content(known.input), arguments)
        return await self._run(running, known, tool, raw)

    async def _misfit(self, call: ToolCall, name: str) -> ToolResult:
        """No such tool, or the log knows the call as another tool's."""
        if not call.open:
            return await recorded(self.journal.reader, call)
        if call.released_in is not None:
            return await self._close(call.id, "unknown", policy.UNKNOWN)
        text = f"not run: the log has this call as {call.name!r}, and there is no such tool {name!r} here"
        return await self._finish(call.id, False, text)

    def _cut_off(self, call: ToolCall, tool: Tool) -> Literal["run", "probe", "unknown"]:
        """What recovery would have planned, for a call that reached us before recovery did."""
        if policy.strictest(call.policy, tool.replay) != "never":
            return "run"
        return "probe" if tool.probe is not None else "unknown"

    async def _again(
        self, running: Running, call: ToolCall, action: Literal["run", "probe", "unknown"]
    ) -> ToolResult:
        """A call that was released once and cut off."""
        tool = self._seen.get(call.name)
        if tool is None or action == "unknown":
            return await self._close(call.id, "unknown", policy.UNKNOWN)
        raw = await self.journal.reader.content(call.input)
        if action == "probe":
            answer = await self._ask(running, tool, call, raw)
            if answer is None:
                return await self._close(call.id, "unknown", policy.UNKNOWN)
            if isinstance(answer, Returned):
                text = render(answer.value, tool.max_output)
                return await self._finish(call.id, True, text, source="probe")
            if self._stopped(call):
                return await self._close(call.id, "not_started", policy.NOT_STARTED)
        if not await self.journal.tool_released_again(call.id, self.life, key=self._key(call.id)):
            return await recorded(self.journal.reader, self.journal.state.tool_calls[call.id])
        return await self._run(running, call, tool, raw, source="recovery")

    async def _ask(
        self, running: Running, tool: Tool, call: ToolCall, raw: bytes
    ) -> Returned | Literal["not_happened"] | None:
        """Ask a tool's probe; ``None`` if it cannot tell. While a thread that nobody waits for any more is
        still at this very call, "not happened" means "not yet"."""
        if tool.probe is None:
            return None
        try:
            arguments = tool.probe_arguments(tool.arguments(raw), self._key(call.id))
        except BadArguments:
            return None
        probe = tool.probe
        is_async = inspect.iscoroutinefunction(probe)
        end = await run(running, lambda: probe(**arguments), is_async, tool.timeout or PROBE_SECONDS)
        if not isinstance(end, Returned) or end.value is UNSURE:
            return None
        if end.value is NOT_HAPPENED:
            return None if lives_on(self._key(call.id)) else "not_happened"
        return end

    async def _run(
        self, running: Running, call: ToolCall, tool: Tool, raw: bytes, source: Source = "host"
    ) -> ToolResult:
        """Run the function. It has been released."""
        try:
            values = tool.arguments(raw)
        except BadArguments as error:
            return await self._finish(call.id, False, str(error), source=source)
        ctx = ToolContext(call.id, self._key(call.id), self._reporter(call.id))
        running.ctx = ctx
        arguments = tool.run_arguments(values, ctx)
        reach("tool.running")
        end = await run(running, lambda: tool.function(**arguments), tool.is_async, tool.timeout)
        match end:
            case Returned(value):
                reach("tool.effect_done")
                return await self._finish(call.id, True, render(value, tool.max_output), source=source)
            case Crashed(crash):
                return await self._finish(call.id, False, failure(crash), source=source)
            case Cut("stopped") if lives_on(ctx.key):
                # Nobody can stop a thread: its effect may be still to come, so that an identical call is
                # refused once, like every other one of which nobody knows.
                return await self._close(call.id, "unknown", policy.UNKNOWN)
            case Cut("stopped"):
                return await self._close(call.id, "cancelled", policy.CANCELLED)
            case _:
                return await self._timed_out(call, tool, source)

    async def _timed_out(self, call: ToolCall, tool: Tool, source: Source) -> ToolResult:
        """It may have had its effect, and a thread may still be at it; only ``safe`` makes that harmless."""
        if policy.strictest(call.policy, tool.replay) == "safe":
            text = f"timed out after {tool.timeout:g} s; no result. Repeating it is safe."
            return await self._finish(call.id, False, text, source=source)
        return await self._close(call.id, "unknown", policy.UNKNOWN)

    # ------------------------------------------------------------------------------------- outcomes

    async def _finish(self, call_id: str, ok: bool, text: str, *, source: Source = "host") -> ToolResult:
        result = ToolResult(visible(text), not ok)
        finished = self.journal.tool_finished(call_id, ok=ok, result=result.text.encode(), source=source)
        return await self._outcome(call_id, finished, result)

    async def _close(self, call_id: str, outcome: Closed, text: str) -> ToolResult:
        closed = self.journal.tool_closed(call_id, outcome, text)
        return await self._outcome(call_id, closed, ToolResult(text, True))

    async def _outcome(self, call_id: str, write: Awaitable[None], result: ToolResult) -> ToolResult:
        """Shielded: a caller that goes away just now must not take the outcome with it. The journal's own
        patience bounds it. What the log has counts, in case somebody else wrote an outcome first."""
        with anyio.CancelScope(shield=True):
            await write
            known = self.journal.state.tool_calls.get(call_id)
            if known is not None and not known.open:
                result = await recorded(self.journal.reader, known)
        return result

    # -------------------------------------------------------------------------------------- helpers

    def _key(self, call_id: str) -> str:
        """Unique to this call for ever: a session that was deleted and made anew under the same name has
        another native id, and some providers number calls from 0."""
        known = self.journal.state.tool_calls.get(call_id)
        if known is not None and known.key:
            return known.key
        return f"{self.session}:{self.journal.state.native_id[:8]}:{call_id}"

    def _stopped(self, call: ToolCall) -> bool:
        """Somebody asked for a stop of its turn: nothing runs any more, only the truth is written."""
        turn = self.journal.state.turns.get(call.turn)
        return turn is not None and turn.stop_by is not None

    def _plain(self, call: ToolCall) -> str:
        tool = self._seen.get(call.name)
        return tool.name if tool is not None else call.name

    def _reporter(self, call_id: str) -> Callable[[str], None] | None:
        """Always by way of the event loop, since a sync tool reports from its thread."""
        progress, loop = self._progress, asyncio.get_running_loop()
        return None if progress is None else lambda text: _soon(loop, progress, call_id, text)


def _soon(loop: asyncio.AbstractEventLoop, tell: Callable[[str, str], None], call: str, text: str) -> None:
    loop.call_soon_threadsafe(tell, call, text)
