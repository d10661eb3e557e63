"""Who waits for a session's head, or for a session that is due, in this process.

Appends of this process are told at once (``appended``, ``became_due``); how those of others are found is the
matter of each World. News are hints: who waits looks for itself now and then."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Generator
from contextlib import contextmanager

import anyio


class News:
    """``sessions`` are those that somebody follows. Events are set, and replaced, whenever what is waited for
    may have come."""

    def __init__(self) -> None:
        self.sessions: Counter[str] = Counter()
        self._heads: dict[str, asyncio.Event] = {}
        self._due = asyncio.Event()

    @contextmanager
    def following(self, session: str) -> Generator[None, None, None]:
        """Within it, appends to ``session`` by others are looked for."""
        self.sessions[session] += 1
        self.wanted()
        try:
            yield
        finally:
            self.sessions[session] -= 1
            if not self.sessions[session]:
                del self.sessions[session]
                self._heads.pop(session, None)
            if not self.sessions:
                self.unwanted()

    def wanted(self) -> None:
        """Somebody waits: begin to look for what others append."""

    def unwanted(self) -> None:
        """Nobody follows a session any more."""

    def head_event(self, session: str) -> asyncio.Event:
        """Set at the session's next append. Take it before reading the head."""
        return self._heads.setdefault(session, asyncio.Event())

    def due_event(self) -> asyncio.Event:
        return self._due

    def appended(self, session: str) -> None:
        event = self._heads.pop(session, None)
        if event is not None:
            event.set()

    def became_due(self) -> None:
        self._due.set()
        self._due = asyncio.Event()

    async def head_after(
        self, session: str, after: int, timeout: float, head: Callable[[], Awaitable[int]], again: float
    ) -> int:
        """``World.wait``: the ``head`` once it is > ``after``, or after ``timeout`` seconds. It is looked at
        whenever there are news, and every ``again`` seconds, since news may be missed."""
        with self.following(session):
            event = self.head_event(session)
            found = await head()
            with anyio.move_on_after(timeout):
                while found <= after:
                    with anyio.move_on_after(again):
                        await event.wait()
                    event = self.head_event(session)
                    found = await head()
            return found
