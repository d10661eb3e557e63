"""Questions of the harness, each answered in a task of its own: one that waits for a person, or a custom tool
that takes an hour, keeps nothing else waiting.

What is still to be answered after a takeover is what the harness asked, minus what any worker answered, minus
what the harness took back; ``conversation`` finds that out, this answers."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import anyio

from harness_durable import clock

Start = Callable[[Callable[[], Awaitable[object]]], None]
"""Begins a task that the conversation owns."""


class Serving:
    """``last``: when a question was last answered, by the monotonic clock."""

    def __init__(self, write: Callable[[bytes], Awaitable[None]], start: Start) -> None:
        self._write, self._start = write, start
        self._scopes: dict[str, anyio.CancelScope] = {}
        self.last = clock.monotonic()

    @property
    def busy(self) -> bool:
        """Is a question being answered?"""
        return bool(self._scopes)

    def begin(self, number: str, reply: Callable[[], Awaitable[bytes]]) -> None:
        """Answer a question; ``reply`` makes the frame that goes back. What it raises ends the life."""
        scope = self._scopes[number] = anyio.CancelScope()

        async def serve() -> None:
            try:
                with scope:
                    await self._write(await reply())
            finally:
                self._scopes.pop(number, None)
                self.last = clock.monotonic()

        self._start(serve)

    def cancel(self, number: str) -> None:
        """The harness took a question back: it must not be answered any more."""
        scope = self._scopes.get(number)
        if scope is not None:
            scope.cancel()
