"""What a World should hold, as plain Python lists. The state machine compares the real one with it.

What surprises: a worker that vanished without leaving is neither live nor gone. Whether the World has noticed
is its own affair, so the model then allows both answers.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

from harness_durable.world import Claim, Owner, Record, RowUpdate, StoredRecord

Hold = Literal["free", "held", "unsure"]


@dataclass
class Worker:
    """``instance`` is the open World that it registered with."""

    owner: Owner
    instance: int
    state: Literal["live", "left", "vanished"] = "live"


@dataclass
class Driver:
    """One claim, as its holder sees it: ``head`` may be old, ``epoch`` superseded."""

    session: str
    epoch: int
    head: int


@dataclass
class Append:
    """An append that was acknowledged, kept so that it can be sent again."""

    session: str
    head: int
    epoch: int
    records: Sequence[Record]


@dataclass
class Session:
    row: RowUpdate
    log: list[StoredRecord] = field(default_factory=list[StoredRecord])
    epoch: int = 0
    holder: Worker | None = None
    blobs: dict[str, bytes] = field(default_factory=dict[str, bytes])
    snapshot: tuple[int, bytes] | None = None
    offset: int = 0
    """How far the wall clock was set wrong when ``row`` was said; always 0 for a store that asks it later."""

    @property
    def head(self) -> int:
        return len(self.log)

    @property
    def hold(self) -> Hold:
        if self.holder is None or self.holder.state == "left":
            return "free"
        return "held" if self.holder.state == "live" else "unsure"

    def add(self, epoch: int, records: Sequence[Record]) -> int:
        for one in records:
            seq = len(self.log) + 1
            self.log.append(StoredRecord(seq, epoch, one.id, one.kind, one.time, one.body))
        return self.head

    def due(self, now: int) -> bool:
        return self.row.due is not None and self.row.due - self.offset <= now

    def say(self, row: RowUpdate, offset: int) -> None:
        self.row, self.offset = row, offset


@dataclass
class Model:
    sessions: dict[str, Session] = field(default_factory=dict[str, Session])
    workers: list[Worker] = field(default_factory=list[Worker])
    drivers: list[Driver] = field(default_factory=list[Driver])
    appends: list[Append] = field(default_factory=list[Append])

    def verdict(self, session: str, head: int, epoch: int) -> Literal["gone", "fenced", "moved", "ok"]:
        """What an append with new records meets."""
        found = self.sessions.get(session)
        if found is None:
            return "gone"
        if epoch and epoch != found.epoch:
            return "fenced"
        return "moved" if head != found.head else "ok"

    def appended(
        self, append: Append, blobs: dict[str, bytes], row: RowUpdate | None, offset: int = 0
    ) -> None:
        found = self.sessions[append.session]
        found.add(append.epoch, append.records)
        found.blobs = {**blobs, **found.blobs}
        if row is not None:
            found.say(row, offset)
        self.appends.append(append)

    def claimed(self, worker: Worker, claim: Claim, record: StoredRecord) -> None:
        """Take over a claim record as the World wrote it: its id and time are the World's."""
        found = self.sessions[claim.session]
        found.log.append(record)
        found.epoch, found.holder = claim.epoch, worker
        self.drivers.append(Driver(claim.session, claim.epoch, claim.head))

    def released(self, driver: Driver) -> None:
        """The driver is done; only the current epoch's release frees the session."""
        self.drivers.remove(driver)
        found = self.sessions.get(driver.session)
        if found is not None and found.epoch == driver.epoch:
            found.holder = None

    def deleted(self, session: str) -> None:
        """A new session of this name starts over, so nothing that knew the old one is used again."""
        del self.sessions[session]
        self.drivers = [one for one in self.drivers if one.session != session]
        self.appends = [one for one in self.appends if one.session != session]

    def vanished(self, instance: int) -> None:
        for worker in self.workers:
            if worker.instance == instance and worker.state == "live":
                worker.state = "vanished"

    def offers(self, now: int) -> tuple[set[str], set[str]]:
        """(sessions that ``claim`` has to offer, those that it may offer as well)."""
        due = {name: one.hold for name, one in self.sessions.items() if one.due(now)}
        must = {name for name, hold in due.items() if hold == "free"}
        return must, {name for name, hold in due.items() if hold == "unsure"}
