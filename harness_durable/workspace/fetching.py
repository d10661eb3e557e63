"""Blobs for a worker thread that needs very many, such as one that makes a folder anew.

What surprises: handing a question over to the event loop and back costs more than its answer. So they are
asked for in batches, which the loop has under way at once, and unpacked in the thread."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TypeVar

import anyio
from anyio import from_thread

from harness_durable.errors import DamagedLog, HarnessDurableError, NotFound
from harness_durable.payload import expand
from harness_durable.workspace.manifest import EMPTY, PIECE
from harness_durable.workspace.reading import Read

MOST, MOST_BYTES = 512, 8 << 20
"""Of one batch: blobs, and raw bytes as far as their sizes are known. That much is held in memory."""
AT_ONCE = 16
"""Questions under way."""

T = TypeVar("T")
Found = Mapping[str, bytes | HarnessDurableError]


class Blobs:
    """Those of one snapshot. For threads that the event loop waits for."""

    def __init__(self, read: Read) -> None:
        self._read = read
        self._hand: dict[str, bytes | HarnessDurableError] = {}
        self._wanted = Counter[str]()

    def fetch(self, names: Sequence[str]) -> None:
        """Have these in hand, until each was got as often as it is named. Raises nothing."""
        self._wanted.update(names)
        lacking = [name for name in dict.fromkeys(names) if name not in self._hand and name != EMPTY]
        if lacking:
            self._hand.update(from_thread.run(_all, dict.fromkeys(lacking), self._read))

    def get(self, name: str) -> bytes:
        """The content of one. Raises ``DamagedLog`` if it is missing or is not what its name says, and what
        ``read`` raises."""
        if name == EMPTY:
            return b""
        if name not in self._hand:
            self.fetch([name])
        self._wanted[name] -= 1
        stored = self._hand[name] if self._wanted[name] > 0 else self._hand.pop(name)
        if isinstance(stored, NotFound):
            raise DamagedLog(f"blob {name}", 0, None, "it is missing") from stored
        if isinstance(stored, HarnessDurableError):
            raise stored
        return expand(name, stored)

    def _drop(self, names: Iterable[str]) -> None:
        """These are not going to be got."""
        for name in names:
            self._wanted[name] -= 1
            if self._wanted[name] <= 0:
                self._hand.pop(name, None)

    def content(self, ref: str) -> Iterator[bytes]:
        """A file's, piece by piece."""
        if not ref.startswith("+"):
            yield self.get(ref)
            return
        for part in batches(self.get(ref[1:]).decode().split("\n"), lambda _: (1, PIECE)):
            self.fetch(part)
            left = iter(part)
            try:
                for name in left:
                    yield self.get(name)
            finally:  # of a damaged file the rest is not held
                self._drop(left)


def harmed(error: DamagedLog | ValueError, ref: str) -> str:
    """The blob that is damaged; ``ref``, if that holds what no scanner of ours writes."""
    return error.where.removeprefix("blob ") if isinstance(error, DamagedLog) else ref


def batches(items: Sequence[T], size: Callable[[T], tuple[int, int]]) -> Iterator[Sequence[T]]:
    """In order, as many together as may be asked for at once, one at least. ``size``: how many blobs, and
    raw bytes, one item needs."""
    start = many = much = 0
    for end, item in enumerate(items):
        count, length = size(item)
        many, much = many + count, much + length
        if end > start and (many > MOST or much > MOST_BYTES):
            yield items[start:end]
            start, many, much = end, count, length
    if start < len(items):
        yield items[start:]


async def _all(names: Mapping[str, None], read: Read) -> Found:
    """As they are stored, or what was raised: if a store is away, for all of them."""
    found: dict[str, bytes | HarnessDurableError] = {}
    left = iter(names)
    async with anyio.create_task_group() as tasks:

        async def some() -> None:
            for name in left:
                try:
                    found[name] = await read(name)
                except (NotFound, DamagedLog) as error:
                    found[name] = error
                except HarnessDurableError as error:
                    found.update(dict.fromkeys(names, error))
                    tasks.cancel_scope.cancel()

        for _ in range(min(AT_ONCE, len(names))):
            tasks.start_soon(some)
    return found
