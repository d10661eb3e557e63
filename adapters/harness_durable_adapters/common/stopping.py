"""A stop that somebody asked for: what becomes of the calls that it cuts off.

Harnesses tell their models that stopped calls did not run, which is false for those that did. The log has the
truth, and the next life's conversation gets it."""

from __future__ import annotations

from typing import Literal

from harness_durable.adapter import LifeContext
from harness_durable.policy import CANCELLED, STOPPED
from harness_durable.state import Session


async def wants_stop(ctx: LifeContext) -> None:
    """Return when a stop of the turn was asked for."""

    def asked(state: Session) -> bool:
        return state.turns[ctx.turn].stop_by is not None

    await ctx.journal.until(asked)


async def close_calls(ctx: LifeContext) -> None:
    """Every call of the turn has its outcome afterwards."""
    state = ctx.journal.state
    turn = state.turns[ctx.turn]
    for call in state.calls(turn):
        if call.open and call.origin == "custom":
            await ctx.tools.cancel(call.id)
    closed: list[tuple[str, Literal["cancelled", "not_started", "unknown"], str]] = [
        (call.id, "not_started", STOPPED) if call.released_in is None else (call.id, "cancelled", CANCELLED)
        for call in state.calls(turn)
        if call.open
    ]
    await ctx.journal.tools_closed(closed)
