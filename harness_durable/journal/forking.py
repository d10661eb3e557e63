"""What is written when a session is forked: another session, whose log begins with a copy of its own.

The copy, the record that says where it comes from, and what closes all that was open there appear in one
step. So the fork never is, not for a moment, a session that anybody could drive into the middle of its
parent's turn, or whose lives somebody could take for its own."""

from __future__ import annotations

import uuid
from collections.abc import Sequence

from harness_durable import clock, codec, events
from harness_durable.journal.driver import close_calls
from harness_durable.journal.writer import Decision
from harness_durable.state import Session
from harness_durable.world import RowUpdate, StoredRecord, World


async def begin(
    world: World,
    session: str,
    records: Sequence[StoredRecord],
    state: Session,
    forked: events.SessionForked,
) -> None:
    """Make ``session`` of its parent's first ``records``, which amount to ``state``. All blobs that they name
    are there already. It is parked: nothing happens in it before somebody sends a message.

    Raises ``BadInput`` if there is such a session."""
    wanted = Decision()
    close(state, wanted, forked)
    now = clock.now_ms()
    added = [
        StoredRecord(seq, 0, uuid.uuid4().hex, codec.kind_of(event), now, codec.encode(event))
        for seq, event in enumerate(wanted.events, len(records) + 1)
    ]
    await world.restore(session, [*records, *added], wanted.blobs, RowUpdate("idle", None))


def close(state: Session, wanted: Decision, forked: events.SessionForked) -> None:
    """The fork's first events. Pure. The lives are the parent's, which goes on with them; of a call that had
    no outcome there, nobody will hear here what became of it."""
    wanted.events.append(forked)
    why = f"it is {forked.parent}'s, which was forked here"
    wanted.events += [events.LifeEnded(life.id, why) for life in state.lives.values() if life.ended is None]
    turn = state.last_turn
    if turn is not None and turn.status == "running":
        wanted.events.append(events.TurnInterrupted(turn.id, why, planned=True))  # it was no crash
    if turn is not None and turn.status in ("running", "interrupted", "needs_input"):
        close_calls(state, wanted, turn)
        wanted.events.append(events.TurnCancelled(turn.id, f"{forked.parent} was forked in the middle of it"))
    for message in state.messages.values():
        if message.remark and message.status == "queued":
            wanted.events.append(events.SteerDelivered(message.id, ""))
        elif message.status == "queued":
            wanted.events.append(events.MessageWithdrawn(message.id, f"the fork of {forked.parent}"))
