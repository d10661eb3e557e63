"""Calls that were cut off, and what becomes of them: the plan says it, here it is done."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any

import anyio

from harness_durable.journal import Journal
from harness_durable.policy import AGAIN, NOT_STARTED, STOPPED, UNKNOWN, denied
from harness_durable.recovery import CallPlan, Plan
from harness_durable.runtime.groups import first_of
from harness_durable.runtime.remarks import changed_meanwhile
from harness_durable.state import Session
from harness_durable.tools.host import ToolHost

_CLOSING = {"unknown": UNKNOWN, "not_started": NOT_STARTED, "again": AGAIN}
_AGAIN = ("run", "probe")


class CutOff:
    """The cut-off calls of one session."""

    def __init__(self, journal: Journal) -> None:
        self.journal = journal

    async def settle(self, plan: Plan, tools: ToolHost, *, stoppable: bool) -> tuple[str, ...]:
        """Give every call its outcome, unless the harness itself will run it. Returns what the model is
        told, as sentences for the log. ``stoppable``: a stop that comes meanwhile cuts off what runs."""
        await self.close(plan)
        again = [call for call in plan.calls if call.action in _AGAIN]

        async def run() -> None:
            async with anyio.create_task_group() as tasks:
                for call in again:
                    tasks.start_soon(self.settler(tools, call))

        async def stop() -> None:
            await self.journal.until(stop_asked)
            for call in again:
                await tools.cancel(call.call)

        if again:
            await first_of(run, *([stop] if stoppable else []))
        return tuple(f"{call.name} ({call.call}): {call.action}, {call.why}" for call in plan.calls)

    async def close(self, plan: Plan) -> None:
        """Write the outcomes that need nobody to run anything."""
        await self.journal.tools_closed(
            [
                (call.call, "not_started" if call.action == "not_started" else "unknown", self._told(call))
                for call in plan.calls
                if call.action in _CLOSING
            ]
        )

    def settler(self, tools: ToolHost, call: CallPlan) -> Callable[[], Coroutine[Any, Any, None]]:
        """What runs a custom tool again, or asks it."""

        async def settle() -> None:
            known = self.journal.state.tool_calls[call.call]
            await tools.settle(known, "probe" if call.action == "probe" else "run")

        return settle

    def _told(self, call: CallPlan) -> str:
        """A person's no or stop is not hidden behind a crash: else the model would be asked to call again."""
        state = self.journal.state
        asked = state.permissions.values()
        said_no = next((one for one in asked if one.call == call.call and one.allow is False), None)
        if call.action == "not_started" and said_no is not None:
            return denied(said_no)
        stopped = state.turn is not None and state.turn.stop_by is not None
        if call.action == "unknown":
            return UNKNOWN + changed_meanwhile(state.files)
        return STOPPED if call.action == "not_started" and stopped else _CLOSING[call.action]


def stop_asked(state: Session) -> bool:
    """Somebody asked for a stop, or the turn is over anyway."""
    return state.turn is None or state.turn.stop_by is not None
