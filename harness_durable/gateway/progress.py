"""What people see of a model call while it runs: state, not history, and at most every 50 ms."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from harness_durable import clock
from harness_durable.payload import clean

INTERVAL = 0.05
"""Seconds between two reports of one call."""

TAIL = 32 << 10
"""Characters of text that a report carries: the end of it, so that long answers cost no more."""


class Progress(msgspec.Struct, frozen=True):
    """A model call's visible text so far. ``size`` counts all its characters, of which ``text`` has the last
    ``TAIL``. ``done``: the call is over, and the log says how."""

    call: str
    agent: str | None
    text: str
    size: int
    done: bool = False


class Reporter:
    """Reports one call."""

    def __init__(self, call: str, agent: str | None, report: Callable[[Progress], None] | None) -> None:
        self._call, self._agent, self._report = call, agent, report
        self._text, self._size = "", 0
        self._told = 0
        self._last: float | None = None

    def add(self, text: str) -> None:
        """More text, or none, when something else has arrived; reported now or with what comes later."""
        if text:
            self._size += len(text)
            self._text = (self._text + text)[-TAIL:]
        elif self._size == self._told:
            return
        now = clock.monotonic()
        if self._last is None or now - self._last >= INTERVAL:
            self._last = now
            self._tell(done=False)

    def end(self) -> None:
        """Always reported."""
        self._tell(done=True)

    def _tell(self, *, done: bool) -> None:
        self._told = self._size
        if self._report is not None:
            self._report(Progress(self._call, self._agent, clean(self._text), self._size, done))
