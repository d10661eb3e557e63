"""One segment file, as far as it has been read: what is whole in it, where it ends, and what is damaged.

Reading takes no lock. What surprises: bytes after the last whole batch mean nothing, they are an append that
is under way, or one that never was acknowledged.
"""

from __future__ import annotations

import bisect
import os
import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path

from harness_durable import clock
from harness_durable.errors import BadSetting, LogTooNew
from harness_durable.world import Record, RowUpdate, StoredRecord
from harness_durable_worlds._file_frames import (
    FORMAT,
    Batch,
    Damage,
    Header,
    first_of,
    read_batch,
    salt_of,
    scan,
    written_as,
)

_TICK_MS = 20
"""Within as long, two changes of a file may get the same time."""
_MARK_EVERY = 8
"""Batches. A read begins at a mark, and most reads are of the last few records."""
_GLANCE_BYTES = 64 << 10
_NO_WAIT: int = getattr(os, "RWF_NOWAIT", 0)
"""Read what is in memory, or nothing (Linux)."""


class Segment:
    """``base`` is the head before the first record, ``head`` the last whole one, ``end`` the offset after it.

    ``cut`` is the length up to which an older segment counts; None for the newest.
    """

    def __init__(self, path: Path, session: str, epoch: int, cut: int | None = None) -> None:
        self.path, self.session, self.epoch, self.cut = path, session, epoch, cut
        self.salt = salt_of(session, epoch)
        self.header: Header | None = None
        self.base = self.head = self.end = 0
        self.row: RowUpdate | None = None
        self.updated = 0
        self.damages: list[Damage] = []
        self.stamp: tuple[int, int, int] = (0, -1, 0)
        self._marks: list[tuple[int, int]] = []
        self._last = (1 << 62, 0)
        self._batches = 0
        self._tail = 0
        """Checksum of the last batch, by which the file is known again: its number may be another one's by
        now, if the session was deleted and made anew. Each batch has ids of its own."""
        self._sure = False
        """Whether a file of this stamp can be no other: its time was over when it was last looked at."""

    @property
    def whole(self) -> bool:
        """Whether the segment began: its header, or any batch behind a damaged header, is there."""
        return self.header is not None or self.end > 0

    @property
    def size(self) -> int:
        """Of the file, when it was last looked at."""
        return self.stamp[1]

    def look(self, fd: int | None = None) -> bool:
        """Read on if the file has changed. False if there is no such file."""
        own = fd is None
        try:
            found = os.stat(self.path) if fd is None else os.fstat(fd)  # noqa: PTH116
        except FileNotFoundError:
            return False
        stamp = (found.st_ino, found.st_size, found.st_mtime_ns)
        if found.st_nlink == 0:
            return False
        same = stamp == self.stamp
        if (same and (self._sure or not own)) or (self.cut is not None and stamp[0] == self.stamp[0]):
            return True  # an older segment never changes again, whatever a stopped writer adds to it
        if fd is None:
            try:
                fd = os.open(self.path, os.O_RDONLY | os.O_CLOEXEC)
            except FileNotFoundError:
                return False
        try:
            if stamp[0] != self.stamp[0] or stamp[1] < self.end or (own and not self._knows(fd)):
                self._forget()
                same = False
            if not same:
                self._read_on(fd, stamp[1] if self.cut is None else min(self.cut, stamp[1]))
        finally:
            if own:
                os.close(fd)
        self.stamp, self._sure = stamp, clock.now_ms() - stamp[2] // 1_000_000 > _TICK_MS
        return True

    def grown(self, data: bytes, records: Sequence[Record], row: RowUpdate | None) -> None:
        """``data``, which this process itself has just written: nobody needs to read it."""
        self._mark(self.head + 1, self.end)
        self._tail, self._sure = zlib.crc32(data), False
        self.end, self.head = self.end + len(data), self.head + len(records)
        self.row = row or self.row
        self.updated = records[-1].time if records else self.updated

    def items(self, after: int) -> Iterator[list[StoredRecord] | Damage]:
        """Records with seq > ``after`` batch by batch, and the damage between them."""
        if self.header is None and self.damages and self.damages[0].first > after:
            yield self.damages[0]
        first, start = self._place(after)
        fd = os.open(self.path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            data = read_range(fd, start, self.end)
        finally:
            os.close(fd)
        for item in scan(data, 0, self.salt, first - 1):
            if isinstance(item, Damage):
                yield Damage(item.start + start, item.end + start, item.first, item.last)
            else:
                yield [record for record in item.records() if record.seq > after]

    def glance(self, fd: int, after: int) -> list[StoredRecord] | None:
        """The records with seq > ``after``, if nothing else was written to the file than this process knows
        of, and what has to be read is little, whole and in memory; else ``None``."""
        found = os.fstat(fd)
        known = (found.st_ino, found.st_size, found.st_mtime_ns) == self.stamp and found.st_nlink > 0
        if not known or after < self.base or self.damages or not _NO_WAIT:
            return None
        first, start = self._place(after)
        data = bytearray(self.end - start) if 0 < self.end - start <= _GLANCE_BYTES else b""
        try:
            if not data or os.preadv(fd, [data], start, _NO_WAIT) != len(data):
                return None
        except OSError:  # not in memory, or a file system that cannot tell
            return None
        records: list[StoredRecord] = []
        for item in scan(bytes(data), 0, self.salt, first - 1):
            if isinstance(item, Damage):
                return None
            records += [record for record in item.records() if record.seq > after]
        return records if after + len(records) == max(self.head, after) else None

    def _place(self, after: int) -> tuple[int, int]:
        """Where a read of what follows ``after`` begins: the first seq there, and its offset."""
        if self._last[0] <= after + 1:
            return self._last
        place = bisect.bisect_right(self._marks, (after + 1, 1 << 62)) - 1
        if self.header is None and self.damages:
            place = max(place, 0)
        return self._marks[place] if place >= 0 else (self.base + 1, 0)

    def missing(self) -> list[Damage]:
        """What should be there up to the cut, and is not."""
        return [damage for damage in self.damages if damage.start == self.end]

    def lose(self, head: int) -> None:
        """The file is gone, and the records up to ``head`` with it."""
        self.damages = [Damage(0, self.cut or 0, 1, head)]

    def _knows(self, fd: int) -> bool:
        """Whether what was read before is what the file still begins with."""
        start = self._last[1]
        return self.end <= start or zlib.crc32(read_range(fd, start, self.end)) == self._tail

    def _forget(self) -> None:
        self.header, self.row, self._tail = None, None, 0
        self.base = self.head = self.end = self._batches = self.updated = 0
        self.damages, self._marks, self._last = [], [], (1 << 62, 0)

    def _read_on(self, fd: int, limit: int) -> None:
        data = read_range(fd, self.end, limit)
        start = self.end
        if start == 0 and not self.damages:
            self._begin(data)
        for item in scan(data, 0, self.salt, self.head):
            if isinstance(item, Damage):
                self._damaged(item, start)
            else:
                self._take(item, start)
                self._tail = zlib.crc32(data[item.start : item.end])
        lost = 0 if self.cut is None else self.cut - self.end
        if lost > 0:
            self.damages.append(Damage(self.end, self.cut or 0, self.head + 1, self.head + 1))

    def _begin(self, data: bytes) -> None:
        first = read_batch(data, 0, self.salt)
        header = first.frames[0].meta.header if first is not None else None
        if first is None or header is None:
            other = written_as(data)
            if other is not None and other != self.session:
                raise BadSetting(
                    f"{self.path} was written for session {other!r}; give the folder that name again, "
                    "or export the session there and import it under the new one"
                )
            return
        if header.format > FORMAT:
            raise LogTooNew(str(self.path), header.format, FORMAT)
        self.header, self.row, self.updated = header, header.row, header.updated
        self.base = self.head = first.head

    def _damaged(self, item: Damage, start: int) -> None:
        if self.header is None and not self.damages:
            self.base = self.head = item.last
            item = item._replace(first=item.last + 1)
        self.damages.append(item._replace(start=item.start + start, end=item.end + start))

    def _take(self, batch: Batch, start: int) -> None:
        self._mark(first_of(batch), batch.start + start)
        self.end, self.head = batch.end + start, batch.head
        last = batch.frames[-1].meta
        self.row = last.row or self.row
        self.updated = last.time or self.updated

    def _mark(self, first: int, offset: int) -> None:
        self._last = first, offset
        if self._batches % _MARK_EVERY == 0:
            self._marks.append(self._last)
        self._batches += 1


def read_range(fd: int, start: int, end: int) -> bytes:
    """All bytes of [start, end) that the file has."""
    parts: list[bytes] = []
    while start < end:
        part = os.pread(fd, min(end - start, 64 << 20), start)
        if not part:
            break
        parts.append(part)
        start += len(part)
    return parts[0] if len(parts) == 1 else b"".join(parts)
