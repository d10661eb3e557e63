"""The claim: a segment whose existence fences the older one, and whose header says how much of that counts.

What surprises: a file that its maker left without a header is taken over under its lock, never removed.
"""

from __future__ import annotations

import contextlib
import logging
import os
import uuid
from collections.abc import Callable, Generator
from pathlib import Path

from harness_durable import clock
from harness_durable.errors import NotFound
from harness_durable.world import LEASE_SECONDS, Owner, claim_record
from harness_durable_worlds._file_disk import exists, sync_folder, unavailable, write_all
from harness_durable_worlds._file_frames import FORMAT, Header, encode_batch, encode_header, salt_of
from harness_durable_worlds._file_lock import LockHeldError, is_locked, locked, try_lock
from harness_durable_worlds._file_log import Log, damaged
from harness_durable_worlds._file_tail import keep_tail

_report = logging.getLogger("harness_durable.worlds.file")
_LOOKS = 200

Repaired = Callable[[str], None]
"""Told, in a sentence, about each torn tail that was cut off."""


class RacedError(Exception):
    """Another claimer was first. Look again at who owns the session."""


def begin(
    log: Log, owner: Owner | None, repaired: Repaired, *, force: bool = False, displaced: bool = False
) -> tuple[int, int]:
    """Begin a new segment, with the claim record of ``owner`` or, to go on after a claimer that died
    half-way, with nothing. Its epoch, and the seq of its first record. Raises ``RacedError`` if somebody
    else is at it; ``force`` does not wait for one that was stopped there."""
    epoch = next_epoch(log, force=force)
    with unavailable(f"could not claim session {log.session!r}"), _new_file(log, epoch) as fd:
        previous = None
        with _older_locked(log) as held:
            if log.chain:
                if log.top.header is None:
                    raise damaged(log.top, log.top.damages[0])
                if held:
                    cut_tail(log, log.fd(), repaired)
                os.fdatasync(log.fd())
                previous = (log.epoch, log.top.end)
        data, first = _opening(log, epoch, previous, owner, displaced), log.head + 1
        try:
            write_all(fd, data, 0)
            os.fdatasync(fd)
            sync_folder(log.folder)
        except OSError:
            cut_back(fd, 0)
            raise
        if exists(log.path(epoch + 1)):
            raise RacedError
    settled = log.settled
    log.refresh()
    log.settled = settled and log.newest == epoch  # this one's entry is durable
    return epoch, first


def fence(log: Log) -> None:
    """Let no claim and no append that is under way succeed. Raises ``RacedError`` or ``OSError``."""
    with _new_file(log, next_epoch(log, force=False)):
        pass


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
    if not force or not is_locked(path):
        return max(log.newest, 1)
    return log.newest + 1


@contextlib.contextmanager
def _new_file(log: Log, epoch: int) -> Generator[int, None, None]:
    """The file of ``epoch``, empty, locked and ours. Whoever made it may have been stopped before it had the
    lock, and somebody else may have begun in it since: it counts only if it is still the newest file, and
    still without a header."""
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
        if not try_lock(fd):
            raise RacedError
        log.refresh()
        if log.newest != epoch or not log.fenced() or not _is_at(fd, path):
            raise RacedError
        if adopt:
            keep_tail(path, fd, 0)
            os.ftruncate(fd, 0)
        yield fd
    finally:
        os.close(fd)


def _is_at(fd: int, path: Path) -> bool:
    """Whether the file has that name still: its session may have been deleted and made anew."""
    try:
        return os.path.samestat(os.fstat(fd), os.stat(path))  # noqa: PTH116
    except FileNotFoundError:
        return False


@contextlib.contextmanager
def _older_locked(log: Log) -> Generator[bool, None, None]:
    """Let a writer that is at work finish, but never wait for one that was stopped."""
    if not log.chain:
        yield False
        return
    try:
        with locked(log, _LOOKS) as fd:
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
    displaced: bool,
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
        None if owner else log.last_owner(),
    )
    salt = salt_of(log.session, epoch)
    claim = [claim_record(owner, epoch, uuid.uuid4().hex, displaced=displaced)] if owner else []
    batch = encode_batch(salt, log.head, epoch, claim, None) if claim else b""
    return encode_header(salt, log.head, header) + batch


def cut_back(fd: int, length: int) -> bool:
    """Take back what a failed write left. The sync here is of the cut, not of what could not be written."""
    try:
        os.ftruncate(fd, length)
        os.fdatasync(fd)
    except OSError:
        return False
    return True


def cut_tail(log: Log, fd: int, repaired: Repaired) -> None:
    """Remove what a dead writer left half written, or what a bad disk made of the last append: nobody can
    tell the two apart, so the bytes are kept. The caller holds the segment's lock."""
    top = log.top
    extra = top.size - top.end
    if extra <= 0:
        return
    with unavailable(f"could not repair session {log.session!r}"):
        kept = keep_tail(top.path, fd, top.end)
        os.ftruncate(fd, top.end)
        os.fdatasync(fd)
    sentence = (
        f"{top.path}: cut off {extra} bytes at {top.end} that belong to no whole append; they are kept in "
        f"{kept} (if no process and no machine died there, the disk damaged them)"
    )
    _report.warning("%s", sentence)
    repaired(sentence)
    top.look(fd)
