"""The server's clock, as far as this process knows it.

What is due is judged by the server's clock, so that no worker's clock decides; but a caller says by its own
wall clock when. What surprises: the difference is rounded to a quarter of a second, so that clocks which
agree keep the order of due times exactly, and it is counted on by the monotonic clock, so that a wall clock
that is set anew moves nothing that was said before.
"""

from __future__ import annotations

from harness_durable import clock

_STEP = 250


class ServerClock:
    def __init__(self) -> None:
        self._server = 0.0
        self._since: float | None = None

    def met(self, server_ms: int) -> None:
        """The server has just said what time it is."""
        self._server, self._since = float(server_ms), clock.monotonic()

    def ahead(self) -> float:
        """Seconds by which the server's clock is ahead of this process's; 0 if it has not told it yet."""
        if self._since is None:
            return 0.0
        return (self._server + (clock.monotonic() - self._since) * 1000 - clock.now_ms()) / 1000

    def translate(self, due: int) -> int:
        """The server's time for a moment of this process's wall clock, both in ms."""
        if self._since is None:
            return due
        return due + round(self.ahead() * 1000 / _STEP) * _STEP
