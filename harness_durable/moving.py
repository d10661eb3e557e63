"""Moving sessions from one World to another: at no moment can two workers drive the same session.

The order makes it safe. The session is claimed, so that nobody drives it; its blobs are sent. Then its log
ends with a record that says where it goes (``journal.moving``): from here on it cannot be driven in the old
store, whatever dies. Only then it appears in the new one, parked; it is verified, made due, and deleted in
the old one. Whoever finds a session that has left, and is not deleted, finishes its move. What surprises: no
transaction spans two stores, so a session whose move was cut off may be drivable in neither until then.
"""

from __future__ import annotations

import os
import socket
import uuid
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress

import anyio

from harness_durable import clock
from harness_durable.copying import (
    Report,
    Sent,
    Tell,
    check_same,
    read_all,
    read_through,
    row_of,
    send_blobs,
    verify,
)
from harness_durable.errors import BadInput, LeaseLost, NotFound, StorageUnavailable, WriterFenced
from harness_durable.journal import Reader, moving
from harness_durable.runtime.groups import beside
from harness_durable.state import Move, Session
from harness_durable.world import LEASE_SECONDS, Claim, Owner, RowUpdate, World


class Mover:
    """Use it within ``Mover.open``: it is a worker of the source. ``to`` names the target in the log."""

    def __init__(self, source: World, target: World, to: str, tell: Tell, *, redirect: bool = False) -> None:
        self.source, self.target, self.to = source, target, to
        self._tell, self._redirect = tell, redirect
        self._owner = Owner(str(uuid.uuid4()), socket.gethostname(), os.getpid())

    @classmethod
    @asynccontextmanager
    async def open(
        cls, source: World, target: World, to: str, tell: Tell, *, redirect: bool = False
    ) -> AsyncGenerator[Mover]:
        """``redirect``: also take sessions that are on their way to another store, which must be lost: had
        they arrived there, there would be two. Raises ``StorageUnavailable``."""
        mover = cls(source, target, to, tell, redirect=redirect)
        await source.register(mover._owner)
        try:
            async with beside() as tasks:
                tasks.start_soon(mover._renew)
                yield mover
        finally:
            with anyio.CancelScope(shield=True), suppress(StorageUnavailable):
                await source.unregister(mover._owner)

    async def would_move(self, session: str) -> Report:
        """What ``move`` would do, without doing it."""
        state = await self._checked(session)
        return Report(session, "would be moved", state.seq if state.moved is None else state.moved.seq - 1)

    async def move(self, session: str) -> Report:
        """Move one session, or finish its move.

        Raises ``SessionBusy`` if a live worker drives it, ``BadInput`` if the target has a session of this
        name or it is on its way elsewhere, ``DamagedLog`` and ``LogTooNew`` if it cannot be read,
        ``WriterFenced`` if it was taken over from us, ``StorageError`` if it arrived otherwise than sent.
        """
        await self._checked(session)
        claim = await self.source.claim_session(self._owner, session)
        try:
            sent = Sent()
            await send_blobs(self.source, self.target, session, sent, self._tell)
            move = await moving.leave(self.source, claim, self.to)
            if move.seq > claim.head + 1:  # messages came meanwhile, perhaps with blobs
                await send_blobs(self.source, self.target, session, sent, self._tell)
            await self._bring(claim, move)
            await verify(self.source, self.target, session, move.seq - 1, sent)
            await self._wake(claim, move)
        finally:
            with anyio.CancelScope(shield=True), suppress(StorageUnavailable, NotFound):
                await self.source.release(session, claim.epoch)
        with suppress(NotFound):
            await self.source.delete(session)
        return Report(session, "moved", move.seq - 1, sent.blobs, sent.bytes)

    async def _checked(self, session: str) -> Session:
        """The session in the source, which can be moved. Raises ``BadInput`` or ``DamagedLog``; nothing has
        been written yet."""
        state = await Reader(self.source, session).load()
        await read_through(self.source, session, state.seq)  # a snapshot may hide damage
        there = await row_of(self.target, session)
        if state.moved is None:
            if there is not None:
                raise BadInput(
                    f"session {session!r} is there already, so it cannot be moved there; delete the one that "
                    "counts less, or move it to another app with --to-app"
                )
            return state
        if state.moved.to != self.to and not self._redirect:
            raise BadInput(
                f"session {session!r} is on its way to {state.moved.to}; finish that first. If that store is "
                "lost and will not come back, --redirect brings the session here"
            )
        if there is not None:
            upto = state.moved.seq - 1
            await check_same(self.source, self.target, session, upto, there.head, longer=True)
            if await self.target.read(session, upto, 1) == await self.source.read(session, upto, 1):
                raise BadInput(
                    f"session {session!r} has left the store at TO, too: it is the same store as FROM, under "
                    "another name, or a copy of it. Neither was touched: name another one"
                )
        return state

    async def _bring(self, claim: Claim, move: Move) -> None:
        """Let it appear in the target, unless it did before we were cut off: then it may have gone on."""
        if await row_of(self.target, claim.session) is None:
            records = await read_all(self.source, claim.session, move.seq - 1)
            await self._check_claim(claim)
            await self.target.restore(claim.session, records, {}, RowUpdate(move.status, None))

    async def _wake(self, claim: Claim, move: Move) -> None:
        there = await self.target.session(claim.session)
        if move.due is not None and there.due is None and there.head == move.seq - 1:
            await self._check_claim(claim)
            await moving.arrive(self.target, claim.session, move)

    async def _check_claim(self, claim: Claim) -> None:
        """Another mover may have finished this while our process was stopped: then nothing is to be done any
        more. Raises ``WriterFenced`` or ``NotFound``."""
        row = await self.source.session(claim.session)
        if row.epoch != claim.epoch:
            raise WriterFenced(claim.session, claim.epoch, row.epoch)

    async def _renew(self) -> None:
        while True:
            await clock.sleep(LEASE_SECONDS / 3)
            try:
                await self.source.renew(self._owner)
            except LeaseLost:
                raise
            except StorageUnavailable:
                continue  # the log decides who may write, not the lease
