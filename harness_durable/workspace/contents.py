"""The content of one file, read so that a change in the middle is noticed.

The stat before and after must be the same, and the length what it says. A file that is written to all the
time is kept as it was read, and said to be torn; the next snapshot reads it again."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import NamedTuple

from harness_durable.workspace.known import Stamp, stamp
from harness_durable.workspace.manifest import PIECE
from harness_durable.workspace.opening import Files, read_up_to

PAUSES = (0.01, 0.02)
"""Seconds to wait after a try that was disturbed."""


class TooLarge(Exception):
    """The file has more bytes than allowed, also if it grew while it was read."""


class Content(NamedTuple):
    """``size``: bytes that were read; of a torn file not what the stamp says."""

    ref: str
    size: int
    mark: Stamp
    torn: bool


class Reader:
    """``put`` takes a blob and gives its name; ``check`` raises if the snapshot was given up; ``pause``
    waits."""

    def __init__(
        self,
        files: Files,
        put: Callable[[bytes], str],
        check: Callable[[], None],
        pause: Callable[[float], None],
    ) -> None:
        self._files, self._put, self._check, self._pause = files, put, check, pause

    def read(self, name: bytes, at: int, most: int) -> Content:
        """Raises ``OSError``, ``TooLarge`` above ``most`` bytes, and what ``put`` and ``check`` raise."""
        found = self._try(name, at, most)
        for seconds in PAUSES:
            if not found.torn:
                break
            self._pause(seconds)
            found = self._try(name, at, most)
        return found

    def _try(self, name: bytes, at: int, most: int) -> Content:
        with self._files.opened(name, at) as fd:
            before = os.fstat(fd)
            ref, size = self._content(fd, before.st_size, most)
            after = os.fstat(fd)
        mark = stamp(after)
        return Content(ref, size, mark, stamp(before) != mark or size != after.st_size)

    def _content(self, fd: int, expected: int, most: int) -> tuple[str, int]:
        """The ref, which depends on the bytes only, and their number."""
        names: list[str] = []
        size, piece = 0, read_up_to(fd, min(PIECE, expected + 1))
        while True:
            size += len(piece)
            if size > most:
                raise TooLarge
            following = read_up_to(fd, PIECE) if len(piece) == PIECE else b""
            if not names and not following:
                return self._put(piece), size
            names.append(self._put(piece))
            if not following:
                return "+" + self._put("\n".join(names).encode()), size
            self._check()
            piece = following
