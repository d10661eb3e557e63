"""The last part of a long log, before the rest is read.

A row is made from the state after its event, and a state from all that was before. What surprises: between
two turns little of that matters, and the snapshot beside the log has it. So the fold begins anew there, and
its rows are those that the whole fold gives (a test compares them)."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from harness_durable import fold
from harness_durable.errors import DamagedLog
from harness_durable.journal import Reader
from harness_durable.state import Session
from harness_durable.view.row import Row
from harness_durable.view.rows import rows

SHORT = 2_000
"""Events of a log that is read whole in no time."""

MOST = 4_000
"""Events of the last part, at most: one long turn is not taken apart."""

BEHIND = 20_000
"""Events after the snapshot, at most: with more, the whole log is read as soon."""


class Tail(msgspec.Struct, frozen=True):
    """The rows of the events behind ``after``, up to ``head``."""

    rows: Sequence[Row]
    after: int
    head: int


async def tail(reader: Reader, least: int) -> Tail | None:
    """At least ``least`` events; None if the whole log has to be read. Raises ``NotFound``."""
    head = (await reader.world.session(reader.session)).head
    stored = await reader.world.snapshot(reader.session) if head > SHORT else None
    if stored is None or head - stored[0] > BEHIND:
        return None
    state = fold.load(stored[1])
    if state is None:
        return None
    try:
        state = await reader.advance(state)
        after = boundary(state, least)
        if not 0 < state.seq - after <= MOST:
            return None
        begun, found = before(state, after), list[Row]()
        async for entry in reader.entries(after):
            fold.apply(begun, entry)
            found.extend(rows(begun, entry))
    except DamagedLog:
        return None
    return Tail(found, after, begun.seq)


def boundary(state: Session, least: int) -> int:
    """The last event before a turn, with ``least`` events behind it, at which no turn and no life was open;
    0 if there is none."""
    for turn in reversed(state.turns.values()):
        after = turn.started_seq - 1
        if state.seq - after < least:
            continue
        if state.seq - after > MOST:
            break
        turns = [one for one in state.turns.values() if one.started_seq <= after]
        lives = [one for one in state.lives.values() if one.started_seq <= after]
        settled = all(one.settled and one.status != "needs_input" and one.ended_seq <= after for one in turns)
        if settled and all(0 < one.ended_seq <= after for one in lives):
            return after
    return 0


def before(state: Session, after: int) -> Session:
    """The state at a ``boundary``, as far as rows need it. Takes the things out of ``state``."""
    messages = {name: one for name, one in state.messages.items() if one.seq <= after}
    turns = {name: one for name, one in state.turns.items() if one.started_seq <= after}
    for one in messages.values():
        if one.kind == "message" and one.status != "withdrawn" and one.id not in turns:
            one.status, one.turn, one.delivered_in = "queued", None, None
    return Session(
        seq=after,
        agent=state.agent,
        title=state.title,
        messages=messages,
        turns=turns,
        lives={name: one for name, one in state.lives.items() if one.started_seq <= after},
        model_calls=state.model_calls.only(lambda one: one.requested_seq <= after),
        tool_calls=state.tool_calls.only(lambda one: one.requested_seq <= after),
        permissions={name: one for name, one in state.permissions.items() if one.asked_seq <= after},
    )
