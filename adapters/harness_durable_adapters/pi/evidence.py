"""What the log knows that a rebuild needs: what became of the calls that have no result yet."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime

from harness_durable import clock
from harness_durable.adapter import LifeContext
from harness_durable.journal import Reader
from harness_durable.policy import told
from harness_durable.state import ToolCall

from ..common.endings import ending
from ..common.outcome import outcome
from .entries import Entry
from .naming import message_number
from .rebuild import Answer, Case, unanswered
from .results import recorded


async def gather(ctx: LifeContext, entries: Sequence[Entry]) -> Case:
    """For a life that is about to start."""
    state = ctx.journal.state
    known = {call: state.tool_calls.get(call) for call in unanswered(entries)}
    closed = [call for call in known.values() if call is not None and not call.open]
    return Case(
        native=state.native_id,
        life=ctx.life,
        stamp=stamp(),
        model=ctx.agent.model,
        prompt=message_number(state.native_id, ctx.turn) if state.turn is not None else "",
        open=frozenset(name for name, call in known.items() if call is None or call.open),
        answers={call.id: await _answer(ctx.journal.reader, call) for call in closed},
        ending=ending(state),
    )


def stamp() -> str:
    """Now, as the harness writes it."""
    now = datetime.fromtimestamp(clock.now_ms() / 1000, UTC)
    return now.isoformat(timespec="milliseconds").replace("+00:00", "Z")


async def _answer(reader: Reader, call: ToolCall) -> Answer:
    text, detail = await outcome_of(reader, call)
    form = recorded(text, detail, ok=call.outcome == "completed")
    return Answer(form["content"], call.outcome != "completed", form.get("details"), call.name)


async def outcome_of(reader: Reader, call: ToolCall) -> tuple[str, bytes | None]:
    """What the model is told of a call that has an outcome, and the harness's form of it."""
    result, detail = await outcome(reader, call)
    text = await reader.text(result) if result is not None else told(call)
    return text, await reader.content(detail) if detail is not None else None
