"""How tests hurt the file and the SQLite World: full files, torn writes, flipped bytes."""

from __future__ import annotations

import resource
import sqlite3
from contextlib import closing
from pathlib import Path


class FullFiles:
    """No file of this process may be written: what a full disk does to any World that is files."""

    async def break_store(self) -> None:
        self._set(0)

    async def heal_store(self) -> None:
        self._set(resource.getrlimit(resource.RLIMIT_FSIZE)[1])

    def _set(self, size: int) -> None:
        _, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))


class FileFaults(FullFiles):
    """For ``file:FOLDER/store``."""

    def __init__(self, folder: Path) -> None:
        self._store = folder / "store"

    async def tear(self, app: str, session: str) -> bool:
        """The last bytes of the last segment never reached the disk."""
        segment = self._segments(app, session)[-1]
        with segment.open("r+b") as file:
            file.truncate(segment.stat().st_size - 40)
        return True

    async def damage(self, app: str, session: str, seq: int) -> bool:
        """``seq`` counts notes, whose bodies say ``note`` after the first."""
        segment = self._segments(app, session)[-1]
        segment.write_bytes(_flip_note(segment.read_bytes(), seq - 1))
        return True

    def _segments(self, app: str, session: str) -> list[Path]:
        return sorted((self._store / app).glob(f"**/{session}/*.log"))


class SqliteFaults(FullFiles):
    """For ``sqlite:FOLDER/store.db``."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / "store.db"

    async def tear(self, app: str, session: str) -> bool:
        """The last bytes of the write-ahead log never reached the disk."""
        wal = self._path.with_name("store.db-wal")
        with wal.open("r+b") as file:
            file.truncate(wal.stat().st_size - 40)
        return True

    async def damage(self, app: str, session: str, seq: int) -> bool:
        """Through SQL, for a flipped byte of the file may hit anything; the record's checksum stays."""
        spoil = "update event set body = zeroblob(length(body)) where app = ? and sid = ? and seq = ?"
        with closing(sqlite3.connect(self._path)) as db, db:
            return db.execute(spoil, (app, session, seq)).rowcount == 1


def _flip_note(data: bytes, which: int) -> bytes:
    """Change one byte in the ``which``-th body that begins with ``note``, counted from 1."""
    place = -1
    for _ in range(which):
        place = data.index(b"note 0", place + 1)
    return data[:place] + b"N" + data[place + 1 :]
