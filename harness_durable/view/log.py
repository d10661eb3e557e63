"""Where a viewer's sessions come from: a World, or a file that ``export`` wrote. Only ever read.

What surprises: a file is given to a ``Reader`` in the place of a World, as it answers everything that one
asks. It holds the whole file in memory, and is also read if it was salvaged and has holes."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import cast

import anyio

from harness_durable import clock
from harness_durable.errors import NotFound
from harness_durable.transfer import Contents, read_file
from harness_durable.world import SessionRow, StoredRecord, World

_CHUNK = 1 << 20


class FileLog:
    """One session of an exported file, for who reads. ``lost``: sentences about what a salvaged one lacks."""

    app = ""

    def __init__(self, contents: Contents) -> None:
        self.name, self.lost = contents.session, tuple(contents.lost)
        self._records, self._blobs, self._status = contents.records, contents.blobs, contents.status

    def world(self) -> World:
        """As a ``Reader`` takes it. Only what reads is there."""
        return cast(World, self)

    async def read(self, session: str, after: int = 0, limit: int | None = None) -> list[StoredRecord]:
        self._known(session)
        start = _first_after(self._records, after)
        return self._records[start : None if limit is None else start + limit]

    async def session(self, session: str) -> SessionRow:
        self._known(session)
        first, last = self._records[0], self._records[-1]
        epoch = max(record.epoch for record in self._records)
        return SessionRow(
            session, last.seq, epoch, self._status, None, first.time, last.time, owner=None, owner_alive=False
        )

    async def sessions(self, after: str = "", limit: int = 1000) -> list[SessionRow]:
        return [await self.session(self.name)] if self.name > after and self._records and limit else []

    async def wait(self, session: str, after: int, timeout: float) -> int:
        """A file never grows."""
        head = (await self.session(session)).head
        if head <= after:
            await clock.sleep(timeout)
        return head

    async def blob(self, session: str, sha: str) -> bytes:
        self._known(session)
        if sha not in self._blobs:
            raise NotFound(f"blob {sha} is not in the file; export the session again")
        return self._blobs[sha]

    async def snapshot(self, session: str) -> tuple[int, bytes] | None:
        return None

    async def progress(self, session: str) -> bytes | None:
        return None

    async def aclose(self) -> None:
        return None

    def _known(self, session: str) -> None:
        if session != self.name or not self._records:
            raise NotFound(f"the file holds session {self.name!r}, not {session!r}; open that one")


def _first_after(records: list[StoredRecord], after: int) -> int:
    """The place of the first record behind ``after``; there may be holes."""
    low, high = 0, len(records)
    while low < high:
        middle = (low + high) // 2
        low, high = (middle + 1, high) if records[middle].seq <= after else (low, middle)
    return low


async def open_file(path: Path) -> FileLog:
    """Raises ``BadInput`` for what is no export, or was cut short or altered."""
    return FileLog(await read_file(_chunks(path)))


async def _chunks(path: Path) -> AsyncIterator[bytes]:
    async with await anyio.open_file(path, "rb") as file:
        while chunk := await file.read(_CHUNK):
            yield chunk
