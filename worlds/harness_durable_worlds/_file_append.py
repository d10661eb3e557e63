"""Writing to a log: the append under the segment's lock, and the claim that begins a new segment.

The locks (flock) keep writers of one segment apart; they are not what fences. What surprises: a failed sync
is never repeated. What it left is cut off, the file is closed, and the next use reads it afresh.
"""

from __future__ import annotations

import contextlib
import fcntl
import logging
import os
import threading
import uuid
from collections.abc import Callable, Generator, Sequence
from pathlib import Path

from harness_durable import clock
from harness_durable.errors import Conflict, NotFound, StorageUnavailable, WriterFenced
from harness_durable.world import LEASE_SECONDS, Owner, Record, RowUpdate, claim_record
from harness_durable_worlds._file_disk import exists, sync_folder, unavailable, write_all
from harness_durable_worlds._file_frames import FORMAT, Header, encode_batch, encode_header, salt_of
from harness_durable_worlds._file_log import Log, damaged

_report = logging.getLogger("harness_durable.worlds.file")
_LOOKS = 5
_CLAIM_LOOKS = 200

Repaired = Callable[[str], None]
"""Told, in a sentence, about each torn tail that was cut off."""


class LockHeldError(Exception):
    """Another process is writing to the segment, or was stopped while it did. Ask again in a moment."""

    def __init__(self, path: Path) -> None:
        self.path = path
        super().__init__(str(path))


class RacedError(Exception):
    """Another claimer was first. Look again at who owns the session."""


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
    for _ in range(10):
        if first is not None or not log.ready():
            _find(log, epoch)
            if log.fenced():
                _go_on(log, repaired)
                continue
        if first is not None and expected_head == log.head:
            first()
            first = None
        try:
            with locked(log, _LOOKS) as fd:
                _find(log, epoch)
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


def _find(log: Log, epoch: int) -> None:
    """The newest state of the log, if ``epoch`` may still write to it."""
    log.refresh()
    if epoch and (log.fenced() or log.epoch != epoch):
        raise WriterFenced(log.session, epoch, log.newest if log.newest != epoch else None)
    if log.chain and log.top.header is None:
        raise damaged(log.top, log.top.damages[0])


def _settle_conflict(log: Log, fd: int, expected_head: int, records: Sequence[Record]) -> int:
    between = log.read(expected_head)
    ours = [record.id for record in records]
    if ours and [record.id for record in between[: len(ours)]] == ours:
        with unavailable(f"could not write to session {log.session!r}", unclear=True):
            os.fdatasync(fd)  # the writer whose answer was lost may have died before its sync
        return expected_head + len(ours)
    raise Conflict(log.session, expected_head, between)


def _write(
    log: Log, fd: int, epoch: int, records: Sequence[Record], row: RowUpdate | None, repaired: Repaired
) -> int:
    top = log.top
    cut_tail(log, fd, repaired)
    settle_entries(log)
    due = top.row.due if top.row else None
    if row is not None and row.due is not None and due is None:
        with unavailable(f"could not note that session {log.session!r} is due"):
            log.due.touch()  # first: an entry too many costs a look, one too few costs a session
    data = encode_batch(top.salt, top.head, epoch, records, row)
    try:
        write_all(fd, data, top.end)
        os.fdatasync(fd)
    except OSError as error:
        clean = _cut_back(fd, top.end)
        with unavailable(f"could not write to session {log.session!r}", unclear=not clean):
            raise error
    top.grown(top.end + len(data), records, row)
    if row is not None and row.due is None and due is not None:
        with contextlib.suppress(OSError):
            log.due.unlink(missing_ok=True)
    return top.head


def _cut_back(fd: int, length: int) -> bool:
    """Take back what a failed write left. The sync here is of the cut, not of what could not be written."""
    try:
        os.ftruncate(fd, length)
        os.fdatasync(fd)
    except OSError:
        return False
    return True


def cut_tail(log: Log, fd: int, repaired: Repaired) -> None:
    """Remove what a dead writer left half written. The caller holds the segment's lock."""
    top = log.top
    extra = top.size - top.end
    if extra <= 0:
        return
    with unavailable(f"could not repair session {log.session!r}"):
        os.ftruncate(fd, top.end)
        os.fdatasync(fd)
    sentence = f"{top.path}: cut off {extra} bytes at {top.end} that belong to no whole append"
    _report.warning("%s", sentence)
    repaired(sentence)
    top.look(fd)


def settle_entries(log: Log) -> None:
    """Once per open log: the entries of its folder are durable before anything in it is acknowledged,
    whoever made them."""
    if not log.settled:
        with unavailable(f"could not sync the folder of session {log.session!r}"):
            sync_folder(log.folder)
            sync_folder(log.folder.parent)
        log.settled = True


def begin(log: Log, owner: Owner | None, repaired: Repaired, *, force: bool = False) -> int:
    """Begin a new segment, with the claim record of ``owner`` or, to go on after a claimer that died
    half-way, with nothing. Its epoch. Raises ``RacedError`` if somebody else is at it; ``force`` does not
    wait for one that was stopped there."""
    epoch = next_epoch(log, force=force)
    with unavailable(f"could not claim session {log.session!r}"), _new_file(log, epoch) as fd:
        log.refresh()
        previous = None
        with _older_locked(log) as held:
            if log.chain:
                if log.top.header is None:
                    raise damaged(log.top, log.top.damages[0])
                if held:
                    cut_tail(log, log.fd(), repaired)
                os.fdatasync(log.fd())
                previous = (log.epoch, log.top.end)
        data = _opening(log, epoch, previous, owner)
        try:
            write_all(fd, data, 0)
            os.fdatasync(fd)
            sync_folder(log.folder)
        except OSError:
            _cut_back(fd, 0)
            raise
        if exists(log.path(epoch + 1)):
            raise RacedError
    log.refresh()
    return epoch


def fence(log: Log) -> None:
    """Let no claim and no append that is under way succeed. Raises ``RacedError`` or ``OSError``."""
    with _new_file(log, next_epoch(log, force=False)):
        log.refresh()


def next_epoch(log: Log, *, force: bool) -> int:
    """The epoch that a claim would get: that of a file without a header if its maker is dead."""
    if log.newest <= log.epoch and log.chain:
        return log.newest + 1
    if log.newest < 0:
        return 1
    path = log.path(log.newest)
    with contextlib.suppress(FileNotFoundError):
        age = clock.now_ms() / 1000 - os.stat(path).st_mtime  # noqa: PTH116
        force = force or age > LEASE_SECONDS
    if not force or not _is_locked(path):
        return max(log.newest, 1)
    return log.newest + 1


@contextlib.contextmanager
def _new_file(log: Log, epoch: int) -> Generator[int, None, None]:
    """The file of ``epoch``, empty, locked and ours."""
    path = log.path(epoch)
    flags = os.O_RDWR | os.O_CLOEXEC
    adopt = epoch == log.newest
    try:
        fd = os.open(path, flags if adopt else flags | os.O_CREAT | os.O_EXCL, 0o644)
    except FileExistsError:
        raise RacedError from None
    except FileNotFoundError:
        raise NotFound(f"session {log.session!r} has been deleted") from None
    try:
        if not _try_lock(fd):
            raise RacedError
        if adopt:
            log.refresh()
            if not log.fenced() or log.newest != epoch:
                raise RacedError
            os.ftruncate(fd, 0)
        yield fd
    finally:
        os.close(fd)


@contextlib.contextmanager
def _older_locked(log: Log) -> Generator[bool, None, None]:
    """Let a writer that is at work finish, but never wait for one that was stopped."""
    if not log.chain:
        yield False
        return
    try:
        with locked(log, _CLAIM_LOOKS) as fd:
            log.top.look(fd)
            yield True
    except LockHeldError:
        log.top.look(log.fd())
        yield False


def _opening(
    log: Log,
    epoch: int,
    previous: tuple[int, int] | None,
    owner: Owner | None,
) -> bytes:
    top = log.top if log.chain else None
    now = clock.now_ms()
    header = Header(
        FORMAT,
        log.session,
        epoch,
        previous,
        owner,
        top.row if top else None,
        top.header.created if top and top.header else now,
        top.updated if top else now,
    )
    salt = salt_of(log.session, epoch)
    claim = [claim_record(owner, epoch, uuid.uuid4().hex)] if owner else []
    batch = encode_batch(salt, log.head, epoch, claim, None) if claim else b""
    return encode_header(salt, log.head, header) + batch


@contextlib.contextmanager
def locked(log: Log, looks: int) -> Generator[int, None, None]:
    """Hold the lock of the newest segment. Raises ``LockHeldError`` after so many looks, a ms apart."""
    fd, path = log.fd(), log.top.path
    while not _try_lock(fd):
        looks -= 1
        if looks <= 0:
            raise LockHeldError(path)
        threading.Event().wait(0.001)
    try:
        yield fd
    finally:
        if log.holds(fd):  # otherwise it was closed, and its number may be somebody else's by now
            fcntl.flock(fd, fcntl.LOCK_UN)


def _try_lock(fd: int) -> bool:
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _is_locked(path: Path) -> bool:
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        return not _try_lock(fd)
    finally:
        os.close(fd)


def holder_of(path: Path) -> str:
    """Who holds the lock, for people: from the kernel's list of locks."""
    try:
        inode = str(os.stat(path).st_ino)  # noqa: PTH116
        lines = Path("/proc/locks").read_text().splitlines()
    except OSError:
        return "another process"
    for line in lines:
        fields = line.split()
        if len(fields) > 5 and fields[1] == "FLOCK" and fields[5].rpartition(":")[2] == inode:
            return f"process {fields[4]}"
    return "another process"
