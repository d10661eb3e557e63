"""The only clock. Tests replace it with :func:`use`; nothing else reads the time or sleeps.

``now_ms`` is wall-clock time for people and for the log. ``monotonic`` is for deadlines: on Linux it
is the same for all processes of one boot, and no setting of the wall clock moves it.
"""

from __future__ import annotations

import time
from collections.abc import Generator
from contextlib import contextmanager
from typing import Protocol

import anyio


class Clock(Protocol):
    """What tests replace."""

    def now_ms(self) -> int: ...
    def monotonic(self) -> float: ...
    async def sleep(self, seconds: float) -> None: ...


class _SystemClock:
    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000

    def monotonic(self) -> float:
        return time.monotonic()

    async def sleep(self, seconds: float) -> None:
        await anyio.sleep(seconds)


_clock: Clock = _SystemClock()


def now_ms() -> int:
    """Milliseconds since the epoch, by the wall clock."""
    return _clock.now_ms()


def monotonic() -> float:
    """Seconds on a clock that only goes forward."""
    return _clock.monotonic()


async def sleep(seconds: float) -> None:
    """Wait; under a test's clock no real time passes."""
    await _clock.sleep(seconds)


def current() -> Clock:
    """The clock in use, for a test's clock that wraps it."""
    return _clock


@contextmanager
def use(clock: Clock) -> Generator[None]:
    """Replace the clock within a test."""
    global _clock
    before, _clock = _clock, clock
    try:
        yield
    finally:
        _clock = before
