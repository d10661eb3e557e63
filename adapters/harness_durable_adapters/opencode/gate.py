"""The exact barrier: our plugin asks before the harness runs a tool, and tells what came of it.

Nothing runs unless it gets an answer; the log has the release before the answer goes out, and the outcome
before the harness has it. What the harness has written is mirrored before a call is released: so a call that
may have run always has its message in the log. Custom tools pass: the tool host is their barrier."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping

from harness_durable.adapter import LifeContext
from harness_durable.gateway.routes import Answer
from harness_durable.policy import NOT_STARTED
from harness_durable.state import Session
from harness_durable.tools.arguments import MAX_DEPTH

from ..common.admission import admit, asked, finished, permitted
from ..common.naming import plain
from ..common.shapes import Json, decode, encode, mapping, outline, part, word
from . import asks
from .naming import is_custom

READS = frozenset({"read", "glob", "grep", "list", "webfetch", "websearch", "todowrite", "question"})
"""Built-in tools that change nothing but the harness itself."""

_INVALID = "invalid"
"""What the harness calls instead of a tool that it does not have. It does nothing."""

_KILLED = "User aborted the command"

TOO_DEEP = f"not run: its input is nested more than {MAX_DEPTH} levels deep. Call again with a flatter one."
_STRANGE = "not run: calls of other sessions than ours are not recorded"


def cut_off(state: Session, call: str, text: str) -> bool:
    """Is this the result of a command that a stop killed? The harness says that it is completed."""
    known = state.tool_calls.get(call)
    turn = state.turns.get(known.turn) if known is not None else None
    return turn is not None and turn.stop_by is not None and _KILLED in text


class Gate:
    """Of one life. ``mirror`` takes what the harness has written into the log, ``is_ours`` tells whether
    a session of the harness's is the one that asked for a call, by the name that the log has for a subagent
    (None for ours)."""

    def __init__(
        self,
        ctx: LifeContext,
        mirror: Callable[[], Awaitable[object]],
        is_ours: Callable[[str, str | None], bool],
    ) -> None:
        self._ctx, self._mirror, self._is_ours = ctx, mirror, is_ours
        self.asked = 0

    def routes(self) -> Mapping[str, Answer]:
        return {"before": self._before, "after": self._after, "tool": self._tool, "model": self._model}

    async def _model(self, body: bytes) -> bytes:
        """A subagent is about to ask its model."""
        await self._mirror()
        return encode({})

    async def _before(self, body: bytes) -> bytes:
        self.asked += 1
        try:
            refused = await self._refused(body)
        finally:
            self.asked -= 1
        return encode({"deny": refused} if refused else {})

    async def _refused(self, body: bytes) -> str:
        """Why a call must not run; empty if it may."""
        event = decode(body)
        if event is None:
            return await self._unread(word((outline(body) or {}).get("callID")))
        call, tool = word(event.get("callID")), word(event.get("tool"))
        await self._mirror()
        if not self._asked_for(call, event):
            return _STRANGE
        if tool == _INVALID:
            return ""
        if is_custom(tool):
            return await permitted(self._ctx, call, tool)
        refused = await asked(self._ctx, call, tool) if tool == asks.QUESTION else ""
        if refused:
            return refused
        verdict = await admit(self._ctx, call, tool)
        match verdict.action:
            case "release":
                if tool == asks.QUESTION:
                    await asks.answered(self._ctx, call, mapping(event.get("args")).get("questions"))
                return ""
            case "supply" if tool == asks.QUESTION:
                return ""  # it gets the answer that the log has
            case "supply":
                return await finished(self._ctx, call)
            case _:
                return verdict.text or NOT_STARTED

    def _asked_for(self, call: str, event: Json) -> bool:
        """Does the session run it that asked for it? What the log does not know others refuse."""
        known = self._ctx.journal.state.tool_calls.get(call)
        return known is None or self._is_ours(word(event.get("sessionID")), known.agent)

    async def _unread(self, call: str) -> str:
        """Close a call whose input nobody could check."""
        known = self._ctx.journal.state.tool_calls.get(call)
        if known is not None and known.open and known.released_in is None:
            await self._ctx.journal.tool_closed(call, "not_started", TOO_DEEP)
        return TOO_DEEP

    async def _after(self, body: bytes) -> bytes:
        event = decode(body) or outline(body) or {}
        tool, call = word(event.get("tool")), word(event.get("callID"))
        text = word(mapping(event.get("output")).get("output"))
        ours = tool != _INVALID and not is_custom(tool) and self._asked_for(call, event)
        if ours and not cut_off(self._ctx.journal.state, call, text):
            await self._ctx.journal.tool_finished(
                call,
                ok=True,
                result=text.encode("utf-8", "backslashreplace"),
                source="hook",
                detail=part(body, "output"),
            )
        return encode({})

    async def _tool(self, body: bytes) -> bytes:
        """Run a custom tool, and give what the model shall see of it."""
        event: Json = decode(body) or outline(body) or {}
        name = plain(word(event.get("tool")))
        result = await self._ctx.tools.call(word(event.get("callID")), name, part(body, "args"))
        return encode({"text": result.text, "isError": result.is_error})
