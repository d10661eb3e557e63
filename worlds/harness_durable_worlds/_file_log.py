"""One session's log: a folder with a segment file per epoch, which says how much of the older ones counts.

A claim makes the next file *first* (O_EXCL) and looks at the older one's length *after*; a writer looks for a
next file *after* its sync and *before* it acknowledges. One of the two always sees the other. What surprises:
a next file without a header (its maker died, or is at work) already fences the older one, and has no owner.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from harness_durable.errors import DamagedLog, NotFound
from harness_durable.world import Owner, StoredRecord
from harness_durable_worlds._file_disk import exists
from harness_durable_worlds._file_frames import Damage
from harness_durable_worlds._file_segments import Segment

SUFFIX = ".log"


class Log:
    """What this process knows of one session's files. Used from one thread at a time, blocking."""

    def __init__(self, folder: Path, due: Path) -> None:
        self.folder, self.due = folder, due
        self.session = folder.name
        self.chain: list[Segment] = []
        """Oldest first, as far back as it was needed; the last is the newest that has begun."""
        self.newest = -1
        """The newest file's epoch; larger than the top's if a file without a header fences it."""
        self.settled = False
        """Whether this process has made sure that the folder's entries are durable, that of the newest
        segment among them: whoever made another one may have died before it was."""
        self.blob_folders: set[str] = set()
        """Those of whose entries the same is known. While the newest segment is open, nobody can have removed
        the session and made another one of its name without that being seen."""
        self._fd: int | None = None
        self._next = ""

    @property
    def top(self) -> Segment:
        return self.chain[-1]

    @property
    def head(self) -> int:
        return self.top.head if self.chain else 0

    @property
    def epoch(self) -> int:
        return self.top.epoch if self.chain else 0

    def path(self, epoch: int) -> Path:
        return self.folder / f"{epoch}{SUFFIX}"

    def fenced(self) -> bool:
        """Whether a file that is newer than the top's stands there."""
        return self.newest > self.epoch or not self.chain

    def refresh(self) -> None:
        """See what others did. Raises ``NotFound`` if the session is not there."""
        before = self._file()
        if not self._current():
            self._reload()
            self.settled = self.settled and self._file() == before

    def ready(self) -> bool:
        """Whether the newest segment, as far as we know, is open."""
        return self._fd is not None and self.newest == self.epoch

    def confirm(self, fd: int) -> bool:
        """After a sync: whether the top is still the newest file, and still there. First the one, then the
        other, because a session that is deleted loses its newest file last."""
        if exists(self._next):
            return False
        found = os.fstat(fd)
        self.top.stamp = (found.st_ino, found.st_size, found.st_mtime_ns)
        return found.st_nlink > 0

    def _current(self) -> bool:
        if not self.chain or self.newest != self.epoch or exists(self._next):
            return False
        inode = self.top.stamp[0]
        return self.top.look(self._fd) and self.top.stamp[0] == inode and self.top.whole

    def fd(self) -> int:
        """The newest segment, open for reading and writing."""
        if self._fd is None:
            self._fd = os.open(self.top.path, os.O_RDWR | os.O_CLOEXEC)
        return self._fd

    def holds(self, fd: int) -> bool:
        """Whether ``fd`` is still the newest segment's."""
        return self._fd == fd

    def close(self) -> None:
        if self._fd is not None:
            os.close(self._fd)
            self._fd = None
        self.blob_folders = set()

    def forget(self) -> None:
        """Close, and read everything again before the next use."""
        self.close()
        self.chain, self.newest, self.settled = [], -1, False

    def owner(self) -> Owner | None:
        """The worker that claimed last and has not released."""
        if self.fenced() or self.top.header is None or exists(self.free_mark(self.epoch)):
            return None
        return self.top.header.owner

    def last_owner(self) -> Owner | None:
        """As ``owner``, also if a claim that is under way, or died half-way, has fenced that worker."""
        if not self.chain or self.top.header is None or exists(self.free_mark(self.epoch)):
            return None
        return self.top.header.owner or self.top.header.former

    def free_mark(self, epoch: int) -> Path:
        return self.folder / f"{epoch}.free"

    def read(self, after: int, limit: int | None = None) -> list[StoredRecord]:
        """Records after ``after``. Raises ``DamagedLog`` if damage is all that comes next."""
        found: list[StoredRecord] = []
        for segment, item in self.items(after):
            if isinstance(item, Damage):
                if found:
                    break
                raise damaged(segment, item)
            found += item
            if limit is not None and len(found) >= limit:
                return found[:limit]
        return found

    def glance(self, after: int, limit: int | None = None) -> list[StoredRecord] | None:
        """``read`` without waiting for the disk: of the newest segment, if it is open and nobody else has
        written, what the system has in memory. ``None`` if that is not all that ``read`` would give."""
        if not self.ready() or self._fd is None or not self.chain or exists(self._next):
            return None
        found = self.top.glance(self._fd, after)
        return found if found is None or limit is None else found[:limit]

    def items(self, after: int) -> Iterator[tuple[Segment, list[StoredRecord] | Damage]]:
        """Batches of records, and the damage between them, in order."""
        self.refresh()
        while self.chain and self.chain[0].base > after and self._older():
            pass
        if not self.chain:
            return
        bounds = [segment.base for segment in self.chain[1:]] + [self.head]
        for segment, bound in zip(self.chain, bounds, strict=True):
            for item in segment.items(after) if segment.head > after else ():
                if not isinstance(item, Damage):
                    yield segment, [record for record in item if record.seq <= bound]
                elif item.first > after:
                    yield segment, item
            for item in segment.missing():
                if item.first > after:
                    yield segment, item

    def _file(self) -> tuple[int, int]:
        """Which the newest segment is."""
        return (self.epoch, self.top.stamp[0]) if self.chain else (-1, 0)

    def _reload(self) -> None:
        epochs = self._epochs()
        known = {segment.epoch: segment for segment in self.chain if segment.cut is None}
        top: Segment | None = None
        for epoch in reversed(epochs):
            candidate = known.get(epoch) or Segment(self.path(epoch), self.session, epoch)
            if candidate.look() and candidate.whole:
                top = candidate
                break
        if top is None or not self.chain or top is not self.top:
            self.close()
            self.chain = [top] if top else []
        elif self._fd is not None and os.fstat(self._fd).st_ino != top.stamp[0]:
            self.close()
            self.chain = [top]
        self.newest = epochs[-1] if epochs else -1
        self._next = str(self.path(self.newest + 1))

    def _older(self) -> bool:
        """Put the segment before the chain's first one before it."""
        first = self.chain[0]
        if first.header is not None:
            previous = first.header.previous
            if previous is None:
                return False
            epoch, cut = previous
        else:  # a damaged header: the newest older file, up to where this one begins
            epoch, cut = self._guess(first)
            if epoch < 0:
                return False
        segment = Segment(self.path(epoch), self.session, epoch, cut)
        if not segment.look():
            segment.lose(first.base)
        self.chain.insert(0, segment)
        return True

    def _guess(self, first: Segment) -> tuple[int, int]:
        for epoch in reversed([e for e in self._epochs() if e < first.epoch]):
            candidate = Segment(self.path(epoch), self.session, epoch)
            if candidate.look() and candidate.whole:
                return epoch, candidate.end
        return -1, 0

    def _epochs(self) -> list[int]:
        try:
            names = os.listdir(self.folder)  # noqa: PTH208
        except (FileNotFoundError, NotADirectoryError):
            raise NotFound(
                f"no session {self.session!r} here; `harness-durable sessions` lists them"
            ) from None
        stems = (name[: -len(SUFFIX)] for name in names if name.endswith(SUFFIX))
        return sorted(int(stem) for stem in stems if stem.isdigit())


def damaged(segment: Segment, damage: Damage) -> DamagedLog:
    lost = (
        f"records {damage.first} to {damage.last} are lost, those before and after can be read"
        if damage.last >= damage.first
        else "its header is lost, the records before and after can be read"
    )
    return DamagedLog(str(segment.path), damage.start, damage.end - damage.start, lost)
