"""What a harness asks us over its relay beside model calls, where it has no other way: before it runs a tool,
for instance. The keeper holds such a request like any other, and offers it again to the next worker; so every
answer must be such that it can be given again."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping

import anyio

PREFIX = "/durable/"
"""How the paths begin. No model API has such a path."""

Answer = Callable[[bytes], Awaitable[bytes]]
"""From the body of a request to that of its answer, JSON both. What it raises ends the life unanswered."""


class Routes:
    """The routes of one life. An adapter opens them once; until then, requests wait."""

    def __init__(self) -> None:
        self._answers: dict[str, Answer] = {}
        self._opened = anyio.Event()

    def open(self, answers: Mapping[str, Answer]) -> None:
        """``answers`` by the rest of the path."""
        self._answers.update(answers)
        self._opened.set()

    async def answer(self, path: str, body: bytes) -> bytes | None:
        """None if there is no such route."""
        await self._opened.wait()
        known = self._answers.get(path.removeprefix(PREFIX))
        return await known(body) if known is not None else None
