"""The append: compare-and-set on the head, under the segment's lock, synced before it is acknowledged.

What surprises: a failed sync is never repeated. What it left is cut off, the file is closed, and the next use
reads it afresh.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Sequence

from harness_durable import clock
from harness_durable.errors import Conflict, DamagedLog, StorageUnavailable, WriterFenced
from harness_durable.world import Record, RowUpdate, stamped
from harness_durable_worlds._file_claim import RacedError, Repaired, begin, cut_back, cut_tail
from harness_durable_worlds._file_disk import sync_folder, unavailable, write_all
from harness_durable_worlds._file_frames import encode_batch
from harness_durable_worlds._file_lock import LockHeldError, locked
from harness_durable_worlds._file_log import Log, damaged

_LOOKS = 5


def append(
    log: Log,
    expected_head: int,
    epoch: int,
    records: Sequence[Record],
    row: RowUpdate | None,
    repaired: Repaired,
    first: Callable[[], None] | None = None,
) -> int:
    """See ``World.append``. ``first`` stores the blobs; it is not called if nothing will be written.
    Raises ``LockHeldError`` as well."""
    known = records
    for _ in range(10):
        if first is not None or not log.ready():
            _find(log, expected_head, epoch, known)
            if log.fenced():
                _go_on(log, repaired)
                continue
        if first is not None and expected_head == log.head:
            first()
            first = None
        try:
            with locked(log, _LOOKS) as fd:
                _find(log, expected_head, epoch, known)
                here = expected_head == log.head
                if log.fenced() or not log.holds(fd) or (here and first is not None):
                    log.close()
                    continue
                if here:
                    head = _write(log, fd, epoch, records, row, repaired)
                else:
                    head = _settle_conflict(log, fd, expected_head, records)
                if log.confirm(fd):
                    return head
                known = ()  # a driver that was passed meanwhile is told so, even if its records count
        except LockHeldError:
            log.close()  # a newer file may have made this lock meaningless: look, then ask again
            raise
        except StorageUnavailable:
            log.forget()  # what this process knows of the file is suspect: open and read it again
            raise
    raise StorageUnavailable(
        f"session {log.session!r} is being claimed over and over; append the same records again", unclear=True
    )


def _go_on(log: Log, repaired: Repaired) -> None:
    """A claimer is at work, or died half-way: wait for it, or begin a segment that nobody drives."""
    path = log.path(max(log.newest, 0))
    try:
        begin(log, None, repaired)
    except RacedError:
        raise LockHeldError(path) from None


def _find(log: Log, expected_head: int, epoch: int, records: Sequence[Record]) -> None:
    """The newest state of the log, if ``epoch`` may still write to it, or if it has written this before it
    was fenced. (As long as a claim is under way, nobody knows what it will cut.)"""
    log.refresh()
    if epoch and (log.fenced() or (log.epoch != epoch and not _there(log, expected_head, records))):
        raise WriterFenced(log.session, epoch, log.newest if log.newest != epoch else None)
    if log.chain and log.top.header is None:
        raise damaged(log.top, log.top.damages[0])


def _settle_conflict(log: Log, fd: int, expected_head: int, records: Sequence[Record]) -> int:
    if _there(log, expected_head, records):
        with unavailable(f"could not write to session {log.session!r}", unclear=True):
            os.fdatasync(fd)  # the writer whose answer was lost may have died before its sync
        return expected_head + len(records)
    raise Conflict(log.session, expected_head, log.read(expected_head))


def _there(log: Log, expected_head: int, records: Sequence[Record]) -> bool:
    """Whether exactly these records, by id, stand right after ``expected_head``."""
    if not records or log.head < expected_head + len(records):
        return False
    with contextlib.suppress(DamagedLog):
        found = log.read(expected_head, len(records))
        return [record.id for record in found] == [record.id for record in records]
    return False


def _write(
    log: Log, fd: int, epoch: int, records: Sequence[Record], row: RowUpdate | None, repaired: Repaired
) -> int:
    top = log.top
    row = None if row is None else stamped(row, clock.now_ms())
    cut_tail(log, fd, repaired)
    _settle_entries(log)
    due = top.row.due if top.row else None
    if row is not None and row.due is not None and due is None:
        with unavailable(f"could not note that session {log.session!r} is due"):
            log.due.touch()  # first: an entry too many costs a look, one too few costs a session
    data = encode_batch(top.salt, top.head, epoch, records, row)
    try:
        write_all(fd, data, top.end)
        os.fdatasync(fd)
    except OSError as error:
        clean = cut_back(fd, top.end)
        with unavailable(f"could not write to session {log.session!r}", unclear=not clean):
            raise error
    top.grown(data, records, row)
    if row is not None and row.due is None and due is not None:
        with contextlib.suppress(OSError):
            log.due.unlink(missing_ok=True)
    return top.head


def _settle_entries(log: Log) -> None:
    """Once per open log: the entries of its folder are durable before anything in it is acknowledged,
    whoever made them."""
    if not log.settled:
        with unavailable(f"could not sync the folder of session {log.session!r}"):
            sync_folder(log.folder)
            sync_folder(log.folder.parent)
        log.settled = True
