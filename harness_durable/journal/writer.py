"""Decide and append: the one way in which anything gets into a log.

A transition is a pure function from the state to the events that follow from it. It is run under a lock, its
events are appended with compare-and-set, and only then is the state moved on. If somebody else wrote in
between (a message, a stop), their records are applied and the transition decides again.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Sequence
from typing import TypeVar

import anyio
import msgspec

from harness_durable import clock, codec, events, fold
from harness_durable.errors import Conflict, StorageUnavailable, WriterFenced
from harness_durable.journal.known import Known
from harness_durable.journal.reader import Reader, entry_of
from harness_durable.payload import Packed, Payload
from harness_durable.state import Session
from harness_durable.world import ANSWER_SECONDS, NOW, Claim, Record, RowUpdate, World

SNAPSHOT_EVERY = 500
"""Events between snapshots within a turn, and at least a quarter of the log, so that all snapshots together
cost no more than the log itself. One more is taken when a turn ends."""

T = TypeVar("T")


class Decision(msgspec.Struct):
    """What a transition wants: events in order, blobs that they name, and the row. ``listed``: the events
    change what the row says; it is made from the state as it will be after them."""

    events: list[events.AnyEvent] = []
    blobs: dict[str, bytes] = {}
    listed: bool = False
    row: RowUpdate | None = None

    def keep(self, packed: Packed) -> Payload:
        """Take a packed payload's blobs along; its payload goes into an event."""
        self.blobs.update(packed.blobs)
        return packed.payload


def row_of(state: Session, now: int) -> RowUpdate:
    """What lists and claims see of a session. Pure."""
    due = state.due
    return RowUpdate(state.status, due if due is None or due > now else NOW)


async def set_aside(world: World, claim: Claim, status: str) -> None:
    """Park a session that we hold and whose log cannot be read: only its row is written."""
    row = RowUpdate(status, None)
    await world.append(claim.session, expected_head=claim.head, epoch=claim.epoch, records=[], row=row)


class Writer:
    """A session's log, open for writing under one epoch (0: for a writer that does not drive).

    ``patience`` is in seconds: how long an append is tried again while the store is unavailable. Nobody is
    told of the event meanwhile, so no effect can follow it.
    """

    def __init__(
        self, world: World, session: str, state: Session, *, epoch: int = 0, patience: float = 0.0
    ) -> None:
        self.world, self.session, self.state, self.epoch = world, session, state, epoch
        self.reader = Reader(world, session)
        self._patience = patience
        self._lock = anyio.Lock()
        self._fenced: WriterFenced | None = None
        self._changed = anyio.Event()
        self._snapshot_at = state.seq

    @classmethod
    async def open(
        cls, world: World, session: str, *, epoch: int = 0, patience: float = 0.0, known: Known | None = None
    ) -> Writer:
        """Read the session, as far as it is not ``known`` here, and be ready to write."""
        state = await Reader(world, session).load() if known is None else await known.copy()
        return cls(world, session, state, epoch=epoch, patience=patience)

    async def decide(self, decision: Callable[[Session, Decision], T]) -> T:
        """Run a transition and make its events durable; then what it returned.

        Raises ``WriterFenced`` if a newer owner has the session (and from then on always),
        ``StorageUnavailable`` when patience is at its end.
        """
        async with self._lock:
            return await self._decide(decision)

    async def refresh(self) -> None:
        """Take in what others wrote. As patient as an append."""
        give_up = clock.monotonic() + self._patience
        while True:
            try:
                async with self._lock:
                    records = await self.world.read(self.session, self.state.seq)
                    self._apply([entry_of(record, self.session) for record in records])
                return
            except StorageUnavailable:
                if clock.monotonic() > give_up:
                    raise
            await clock.sleep(0.1)

    async def watch(self) -> None:
        """Take in what others write, as they write it. One task of the driver; ends with ``WriterFenced``."""
        while True:
            try:
                await self.world.wait(self.session, self.state.seq, 30.0)
                await self.refresh()
            except StorageUnavailable:
                # What runs need not be cut off for this; whoever must write finds out by itself.
                await clock.sleep(0.5)
            if self._fenced is not None:
                raise self._fenced

    async def until(self, condition: Callable[[Session], bool]) -> None:
        """Return when the state fulfils ``condition``."""
        while not condition(self.state):
            await self._changed.wait()

    async def take_snapshot(self) -> None:
        """Store the state beside the log. A cache: trouble with it is no trouble."""
        self._snapshot_at = self.state.seq
        try:
            await self.world.put_snapshot(self.session, self.state.seq, fold.dump(self.state))
        except StorageUnavailable:
            return

    async def _decide(self, decision: Callable[[Session, Decision], T]) -> T:
        while True:
            if self._fenced is not None:
                raise self._fenced
            wanted = Decision()
            answer = decision(self.state, wanted)
            if not wanted.events:
                return answer
            records = [
                Record(uuid.uuid4().hex, codec.kind_of(event), clock.now_ms(), codec.encode(event))
                for event in wanted.events
            ]
            first = self.state.seq + 1
            entries = [
                events.Entry(first + place, record.time, self.epoch, event)
                for place, (record, event) in enumerate(zip(records, wanted.events, strict=True))
            ]
            if wanted.listed:
                wanted.row = row_of(fold.fold(entries, fold.copy(self.state)), clock.now_ms())
            try:
                await self._append(records, wanted)
            except Conflict as conflict:
                if not conflict.records:
                    raise  # the log is shorter than what we have read of it: no decision can help
                self._apply([entry_of(record, self.session) for record in conflict.records])
                continue
            self._apply(entries)
            due = max(SNAPSHOT_EVERY, self.state.seq // 4)
            if self.epoch and self.state.seq - self._snapshot_at >= due:
                await self.take_snapshot()
            return answer

    async def _append(self, records: Sequence[Record], wanted: Decision) -> None:
        """Append, and while the store is away append the same records again: their ids settle whether an
        earlier try has happened."""
        give_up = clock.monotonic() + self._patience
        pause = 0.05
        unclear = False
        while True:
            try:
                await self._append_once(records, wanted)
                return
            except WriterFenced as fenced:
                self._fenced = fenced
                raise
            except StorageUnavailable as trouble:
                unclear = unclear or trouble.unclear
                if clock.monotonic() + pause > give_up:
                    if unclear and self.epoch:
                        self._fenced = WriterFenced(self.session, self.epoch)
                    raise
                await clock.sleep(pause)
                pause = min(pause * 2, 1.0)

    async def _append_once(self, records: Sequence[Record], wanted: Decision) -> None:
        """Shielded: a cancelled caller must not leave us behind a log that has moved on. Without an answer
        the same records are handed in again."""
        with anyio.move_on_after(ANSWER_SECONDS, shield=True):
            await self.world.append(
                self.session,
                expected_head=self.state.seq,
                epoch=self.epoch,
                records=records,
                blobs=wanted.blobs,
                row=wanted.row,
            )
            return
        raise StorageUnavailable(
            f"the store has not answered an append to session {self.session!r} for {ANSWER_SECONDS:.0f} s; "
            "see whether it is overloaded or cut off",
            unclear=True,
        )

    def _apply(self, entries: Sequence[events.Entry]) -> None:
        for entry in entries:
            if entry.seq > self.state.seq:
                fold.apply(self.state, entry)
                if self.epoch and isinstance(entry.event, events.SessionClaimed):
                    self._check_claim(entry.event)
        if entries:
            self._changed.set()
            self._changed = anyio.Event()

    def _check_claim(self, claim: events.SessionClaimed) -> None:
        if claim.epoch > self.epoch:
            self._fenced = WriterFenced(self.session, self.epoch, claim.epoch)
