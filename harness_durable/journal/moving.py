"""What is written when a session leaves for another store: a last record here, and a due time there.

The last record is what makes a move safe. After it nobody drives the session here and nobody writes into it,
whoever comes and whatever dies; so the other store may have it drivable before it is deleted here."""

from __future__ import annotations

from contextlib import suppress

from harness_durable import events
from harness_durable.errors import Conflict
from harness_durable.journal.writer import Decision, Writer
from harness_durable.state import Move, Session
from harness_durable.world import Claim, RowUpdate, World

PATIENCE = 10.0
"""Seconds for which an append is tried again."""


async def leave(world: World, claim: Claim, to: str) -> Move:
    """End the log of the session that was claimed: it goes on at ``to``, which is a name for people and for
    whoever has to finish this. If it has ended so before, that stays as it was.

    Raises ``WriterFenced`` if a newer owner has the session."""
    writer = await Writer.open(world, claim.session, epoch=claim.epoch, patience=PATIENCE)
    while writer.state.moved is None:
        row = await world.session(claim.session)
        await writer.refresh()

        def decide(state: Session, wanted: Decision) -> None:
            if state.seq == row.head:  # noqa: B023 - it is called before the next round
                wanted.events.append(events.SessionMoved(to, row.status, row.due))  # noqa: B023
                wanted.listed = True

        await writer.decide(decide)
    return writer.state.moved


async def arrive(world: World, session: str, move: Move) -> None:
    """Let the row say what it said where the session came from. Nothing happens if somebody has written into
    it meanwhile: that has set the row."""
    with suppress(Conflict):
        row = RowUpdate(move.status, move.due)
        await world.append(session, expected_head=move.seq - 1, epoch=0, records=[], row=row)
