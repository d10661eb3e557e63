"""A stream of bytes, cut into lines; and lines, put together to a file."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterable

_PIECE = 1 << 20
"""Bytes of a file that are handed over at once, and one line more."""

MAX_LINE = 1 << 30
"""Bytes. Far above what a harness can hold itself; a longer line is skipped, and nothing else is."""


class Lines:
    """Cuts a stream of bytes into lines, each with the offset after it."""

    def __init__(self, offset: int = 0) -> None:
        self._parts: list[bytes] = []
        self._size = 0
        self._offset = offset
        self.too_long = 0

    def feed(self, chunk: bytes) -> list[tuple[int, bytes]]:
        """Whole lines, now that ``chunk`` has come. What follows the last one is kept."""
        found: list[tuple[int, bytes]] = []
        start = 0
        while (end := chunk.find(b"\n", start)) >= 0:
            self._hold(chunk[start:end])
            line, self._parts, size, self._size = b"".join(self._parts), [], self._size, 0
            self._offset += size + 1
            if size > MAX_LINE:
                self.too_long += 1
            else:
                found.append((self._offset, line))
            start = end + 1
        self._hold(chunk[start:])
        return found

    def _hold(self, part: bytes) -> None:
        self._size += len(part)
        if self._size > MAX_LINE:
            self._parts.clear()
        elif part:
            self._parts.append(part)


async def pieces(lines: AsyncIterable[bytes]) -> AsyncGenerator[bytes]:
    """The content of a file of these lines, which never is in memory as a whole."""
    held, size = list[bytes](), 0
    async for line in lines:
        held += (line, b"\n")
        size += len(line) + 1
        if size >= _PIECE:
            yield b"".join(held)
            held, size = [], 0
    yield b"".join(held)
