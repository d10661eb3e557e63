"""How the conformance suite hurts a SQLite World: rows of its own app, or a database that is its own.

What surprises: tearing needs a second database, beside the one that is checked, because all apps share one
write-ahead log.
"""

from __future__ import annotations

import shutil
import uuid
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import anyio.to_thread

from harness_durable_worlds._faults import FullFiles
from harness_durable_worlds._sqlite_file import connect

_TORN = 40
"""Bytes that a torn append lacks."""
_SPOIL = "update event set body = zeroblob(length(body)) where app = ? and sid = ? and seq = ?"


class SqliteFaults(FullFiles):
    """Implements ``Faults`` for ``sqlite:PATH``."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self._path = path

    @contextmanager
    def apart(self) -> Generator[tuple[str, SqliteFaults]]:
        """A database beside this one, which is removed afterwards."""
        path = self._path.with_name(f"{self._path.name}-check-{uuid.uuid4().hex[:12]}")
        try:
            yield f"sqlite:{path}", SqliteFaults(path)
        finally:
            for end in ("", "-wal", "-shm", "-journal"):
                path.with_name(f"{path.name}{end}").unlink(missing_ok=True)
            shutil.rmtree(path.with_name(f"{path.name}-workers"), ignore_errors=True)

    async def tear(self, app: str, session: str) -> bool:
        """The last bytes of the write-ahead log never reached the disk."""
        wal = self._path.with_name(f"{self._path.name}-wal")
        with wal.open("r+b") as file:
            file.truncate(wal.stat().st_size - _TORN)
        return True

    async def damage(self, app: str, session: str, seq: int) -> bool:
        """Through SQL, for a flipped byte of the file may hit anything; the record's checksum stays."""
        return await anyio.to_thread.run_sync(self._spoil, app, session, seq)

    def _spoil(self, app: str, session: str, seq: int) -> bool:
        db = connect(self._path, write=True)
        try:
            rows = db.execute(f"{_SPOIL} returning seq", (app, session, seq)).fetchall()
            return len(rows) == 1
        finally:
            db.close()
