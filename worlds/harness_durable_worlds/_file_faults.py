"""How the conformance suite hurts a file World: only ever in the folder of the session that it names."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

from harness_durable_worlds._faults import FullFiles
from harness_durable_worlds._file_frames import Batch, Frame, read_batch, salt_of, scan
from harness_durable_worlds._file_log import SUFFIX
from harness_durable_worlds._file_store import Store

_TORN = 40
"""Bytes that a torn append lacks."""


class FileFaults(FullFiles):
    """Implements ``Faults`` for ``file:ROOT``."""

    def __init__(self, url: str, root: Path) -> None:
        super().__init__()
        self._url, self._root = url, root

    @contextmanager
    def apart(self) -> Generator[tuple[str, FileFaults]]:
        """The store itself: a session has files of its own, so that no other can be torn with it."""
        yield self._url, self

    async def tear(self, app: str, session: str) -> bool:
        """The last bytes of the last segment never reached the disk."""
        segment = self._segments(app, session)[-1]
        with segment.open("r+b") as file:
            file.truncate(segment.stat().st_size - _TORN)
        return True

    async def damage(self, app: str, session: str, seq: int) -> bool:
        """Flip a bit in the record's last byte."""
        for segment in self._segments(app, session):
            data = bytearray(segment.read_bytes())
            frame = _frame_of(bytes(data), salt_of(session, int(segment.stem)), seq)
            if frame is not None:
                data[frame.end - 2] ^= 1  # the last byte is the newline
                segment.write_bytes(data)
                return True
        return False

    def _segments(self, app: str, session: str) -> list[Path]:
        folder = Store(self._root, app).folder(session)
        return sorted(folder.glob(f"*{SUFFIX}"), key=lambda path: int(path.stem))


def _frame_of(data: bytes, salt: int, seq: int) -> Frame | None:
    header = read_batch(data, 0, salt)
    for batch in scan(data, header.end, salt, header.head) if header else ():
        for frame in batch.frames if isinstance(batch, Batch) else ():
            if frame.seq == seq and not frame.meta.note:
                return frame
    return None
