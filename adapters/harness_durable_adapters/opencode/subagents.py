"""Subagents that a life was lost with: each goes on in its own middle, as our session does, and its call gets
the result that the harness would have given it. Only then our session goes on.

The harness itself cannot take a subagent up again without telling it its task once more. So it is asked to go
on with the subagent's session, and the call's part is written here. What is done is found out from the log
and from the store, at any time: a worker that takes over in between does the rest."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from harness_durable import clock
from harness_durable.adapter import LifeContext, TurnEnd
from harness_durable.errors import HarnessStuck

from ..common.shapes import Json, encode, mapping, word
from .conversation import Said
from .evidence import answer
from .mirror import Mirror
from .outcome import turn_end
from .rebuild import state_of
from .server import Refused, Server

_POLL_SECONDS = 0.2
_IDLE_SECONDS = 3.0
"""A subagent that was told to go on, is idle and has not come to its end is told once more."""
_MOST_REMINDERS = 3

GoOn = Callable[[str, Said], Awaitable[object]]
"""Sends the last message of a session again, without content."""


class Subagents:
    """Those of our session. ``go_on`` makes one work, ``busy`` names the sessions that do."""

    def __init__(
        self,
        ctx: LifeContext,
        server: Server,
        mirror: Mirror,
        go_on: GoOn,
        busy: Callable[[], Awaitable[Json]],
    ) -> None:
        self._ctx, self._server, self._mirror = ctx, server, mirror
        self._go_on, self._busy = go_on, busy

    async def finish(self) -> None:
        """Those whose call waits for them, unless the harness itself does. Raises ``HarnessStuck``."""
        calls, state = self._mirror.conversation.subagents(), self._ctx.journal.state.tool_calls
        working = await self._busy() if calls else {}
        if not calls or self._mirror.session in working:
            return
        for call, session in calls.items():
            if call in state and state[call].open and session not in working and self._end(session) is None:
                await self._go_on(session, self._last(session))
        for call, session in calls.items():
            if call in state:
                await self._finish(call, session)

    async def _finish(self, call: str, session: str) -> None:
        if self._ctx.journal.state.tool_calls[call].open:
            text, ok = result(session, await self._ended(session))
            await self._ctx.journal.tool_finished(
                call,
                ok=ok,
                result=text.encode("utf-8", "backslashreplace"),
                source="transcript",
                detail=encode(self._form(call, text)) if ok else None,
            )
        await self._write(call)

    async def _ended(self, session: str) -> TurnEnd:
        """Wait for a subagent to come to its end; how it did."""
        since, reminders = clock.monotonic(), 0
        while True:
            await self._mirror.pull()
            if session in await self._busy():
                since = clock.monotonic()
            else:
                await self._mirror.pull()
                end = self._end(session)
                if end is not None:
                    return end
                if clock.monotonic() - since > _IDLE_SECONDS:
                    if reminders == _MOST_REMINDERS:
                        raise HarnessStuck("a subagent of the harness's is idle, and does not go on")
                    reminders, since = reminders + 1, clock.monotonic()
                    await self._go_on(session, self._last(session))
            await clock.sleep(_POLL_SECONDS)

    def _end(self, session: str) -> TurnEnd | None:
        held = self._mirror.subagents.get(session)
        return turn_end(held.conversation, None) if held is not None else None

    def _last(self, session: str) -> Said:
        held = self._mirror.subagents.get(session)
        last = held.conversation.last_user if held is not None else None
        if last is None:
            raise HarnessStuck(f"the harness has lost its subagent {session}")
        return last

    def _form(self, call: str, text: str) -> Json:
        """As the harness keeps a result."""
        state = mapping(self._mirror.conversation.calls()[call].get("state"))
        return {
            "title": state.get("title") or "",
            "output": text,
            "metadata": mapping(state.get("metadata")),
        }

    async def _write(self, call: str) -> None:
        """The outcome of a call, as the log has it, into our session."""
        conversation = self._mirror.conversation
        part = conversation.calls()[call]
        known = await answer(self._ctx, self._ctx.journal.state.tool_calls[call])
        before = mapping(part.get("state"))
        state = state_of(known, mapping(before.get("input")), before, clock.now_ms())
        path = f"/session/{self._mirror.session}/message/{word(part.get('messageID'))}/part"
        try:
            await self._server.call("PATCH", f"{path}/{word(part.get('id'))}", {**part, "state": state})
        except Refused as refused:
            raise HarnessStuck(f"the harness does not take a subagent's result: {refused}") from None
        await self._mirror.pull()


def result(session: str, end: TurnEnd) -> tuple[str, bool]:
    """What the harness tells its model about a subagent that has come to its end, and whether that is a
    success."""
    if end.kind != "completed":
        return f"Subagent failed (task_id: {session}): {end.reason}", False
    return (
        f'<task id="{session}" state="completed">\n<task_result>\n{end.text}\n</task_result>\n</task>',
        True,
    )
