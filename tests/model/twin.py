"""``Fence.tla`` once more, as Python that can walk beside a real World, step by step.

A step changes the twin and says what the World has to answer: "ok", or the name of the error.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

OK = "ok"


class Entry(NamedTuple):
    """A record: ``kind`` is "claim", "message", "work" or "done"; ``by`` the driver, -1 for a sender."""

    kind: str
    by: int
    epoch: int


@dataclass
class Pen:
    """What a driver believes. It may be old: a driver that was stopped, or superseded, goes on from it."""

    driver: int
    head: int
    epoch: int


@dataclass
class Twin:
    """``log``, ``due``, ``owner`` and ``epoch`` are the session; ``pens`` who has claimed and goes on."""

    log: list[Entry] = field(default_factory=lambda: [Entry("message", -1, 0)])
    due: bool = True
    owner: int | None = None
    epoch: int = 0
    pens: list[Pen] = field(default_factory=list[Pen])

    @property
    def head(self) -> int:
        return len(self.log)

    def accept(self) -> str:
        """An outsider appends a message and wakes the session, in one step."""
        self.log.append(Entry("message", -1, 0))
        self.due = True
        return OK

    def claim(self, driver: int, *, take_over: bool) -> str:
        if self.owner not in (None, driver) and not take_over:
            return "SessionBusy"
        self.epoch += 1
        self.owner = driver
        self.log.append(Entry("claim", driver, self.epoch))
        self.pens.append(Pen(driver, self.head, self.epoch))
        return OK

    def offered(self) -> bool:
        """Whether the queue gives the session to whoever asks."""
        return self.due and self.owner is None

    def append(self, pen: Pen, kind: str) -> str:
        """Work, or ("done") the end of it: with that, the session is parked."""
        if pen.epoch != self.epoch:
            return "WriterFenced"
        if pen.head != self.head:
            return "Conflict"
        self.log.append(Entry(kind, pen.driver, pen.epoch))
        pen.head = self.head
        if kind == "done":
            self.due = False
        return OK

    def release(self, pen: Pen) -> str:
        if pen.epoch == self.epoch:
            self.owner = None
        return OK

    def crash(self, driver: int) -> str:
        """The process is gone; the row still names it, and it is free."""
        if self.owner == driver:
            self.owner = None
        self.pens = [pen for pen in self.pens if pen.driver != driver]
        return OK


def broken(log: Sequence[Entry], due: bool) -> list[str]:
    """The invariants of ``Fence.tla`` that a log breaks."""
    epoch, by, waiting = 0, -1, False
    wrong: list[str] = []
    for place, entry in enumerate(log, 1):
        if entry.kind == "claim":
            wrong += [f"EpochsGrow at {place}"] if entry.epoch <= epoch else []
            epoch, by = entry.epoch, entry.by
        elif entry.kind == "message":
            waiting = True
        elif (entry.epoch, entry.by) != (epoch, by):
            wrong.append(f"OneWriter at {place}")
        waiting = waiting and entry.kind != "done"
    return wrong + (["NoMessageForgotten"] if waiting and not due else [])
