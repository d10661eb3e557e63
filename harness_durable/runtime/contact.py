"""What a worker knows of its store: whether it answers, and since when it has not.

No question to a store may hang without bound, since a worker that waits for an answer looks like one that has
nothing to do. So each is asked within a limit, and one that is exceeded counts as a store that is away.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TypeVar

import anyio

from harness_durable import clock
from harness_durable.errors import LeaseLost, StorageUnavailable
from harness_durable.world import ANSWER_SECONDS

T = TypeVar("T")


class Contact:
    """One per worker. ``claimed`` and ``renewed`` are the last times, by the monotonic clock, at which that
    succeeded."""

    def __init__(self) -> None:
        self.claimed = self.renewed = clock.monotonic()
        self.trouble = ""
        self._since: dict[str, float] = {}

    @property
    def away(self) -> float:
        """For how many seconds one need has met nothing but failures; 0 if the last answers were good."""
        return clock.monotonic() - min(self._since.values()) if self._since else 0.0

    async def ask(
        self, question: Callable[[], Awaitable[T]], within: float | None = None, *, need: str = ""
    ) -> T:
        """The store's answer. Raises ``StorageUnavailable`` also if there is none ``within`` so many
        seconds; then it may have done what was asked, or not. ``need``: what a worker cannot be without, the
        queue or the lease; a store that serves only one of them is as good as away."""
        within = ANSWER_SECONDS if within is None else within
        try:
            with anyio.fail_after(within):
                answer = await question()
        except TimeoutError:
            trouble = StorageUnavailable(
                f"the store gave no answer within {within:g} s; see whether it is up and not overloaded",
                unclear=True,
            )
            self._failed(trouble, need)
            raise trouble from None
        except StorageUnavailable as trouble:
            if not isinstance(trouble, LeaseLost):  # that is an answer
                self._failed(trouble, need)
            raise
        self._since.pop(need, None)
        return answer

    def needs_no_more(self, need: str) -> None:
        """Nobody asks for it from here on, so that nothing could show that it is met again."""
        self._since.pop(need, None)

    def give_up_after(self, patience: float) -> None:
        """Raises ``StorageUnavailable`` once the store has been away for longer than ``patience`` seconds."""
        if self.away > patience:
            raise StorageUnavailable(
                f"the store has been away for {self.away:.0f} s ({self.trouble}); this worker ends with an "
                "error, so that whoever supervises it starts it anew. Nothing is lost"
            )

    def _failed(self, trouble: StorageUnavailable, need: str) -> None:
        if need:
            self.trouble = str(trouble)
            self._since.setdefault(need, clock.monotonic())
