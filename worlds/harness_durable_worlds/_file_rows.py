"""Who may drive a session: its row, claiming and giving back. Everything here runs on the session's lane."""

from __future__ import annotations

import contextlib
import errno
import logging
import threading
from collections.abc import Callable

from harness_durable import clock
from harness_durable.errors import (
    BadSetting,
    Conflict,
    DamagedLog,
    LogTooNew,
    SessionBusy,
    StorageUnavailable,
    WriterFenced,
)
from harness_durable.world import Claim, Owner, RowUpdate, SessionRow
from harness_durable_worlds._file_append import append
from harness_durable_worlds._file_claim import RacedError, Repaired, begin, fence
from harness_durable_worlds._file_disk import unavailable
from harness_durable_worlds._file_lock import LockHeldError, locked
from harness_durable_worlds._file_log import Log
from harness_durable_worlds._liveness import HostLiveness

Alive = Callable[[str], bool]
_RACES = 300
_report = logging.getLogger("harness_durable.worlds.file")


def row_of(log: Log, alive: Alive) -> SessionRow:
    """The row as the log has it. A file without a whole header is a session without records."""
    log.refresh()
    if not log.chain:
        return SessionRow(log.session, 0, 0, "", None, 0, 0, None, False)
    top, owner = log.top, log.owner()
    header, row = top.header, top.row
    status = row.status if row else "damaged" if header is None else ""
    return SessionRow(
        session=log.session,
        head=top.head,
        epoch=top.epoch,
        status=status,
        due=row.due if row else None,
        created=header.created if header else 0,
        updated=top.updated,
        owner=owner,
        owner_alive=owner is not None and alive(owner.worker),
    )


def listed_row(log: Log, alive: Alive) -> SessionRow:
    """As ``row_of``, for lists: one session that cannot be read must not hide the others."""
    try:
        return row_of(log, alive)
    except LogTooNew:
        status = "too new"
    except BadSetting:
        status = "misnamed"
    except DamagedLog:
        status = "damaged"
    return SessionRow(log.session, 0, 0, status, None, 0, 0, None, False)


def claim(
    log: Log, owner: Owner, liveness: HostLiveness, repaired: Repaired, due: int | None, *, take_over: bool
) -> Claim | None:
    """Become the session's driver. With ``due`` (now, in ms): None unless it is due.

    Raises ``SessionBusy`` if a live worker holds it, unless ``take_over``, or by name its holder itself.
    """
    for _ in range(_RACES):
        row = row_of(log, liveness.alive)
        if due is not None and (row.due is None or row.due > due):
            return None
        again = due is None and row.owner is not None and row.owner.worker == owner.worker
        if row.owner is not None and row.owner_alive and not take_over and not again:
            raise SessionBusy(log.session, str(row.owner), liveness.lease_left(row.owner.worker))
        before = log.last_owner()
        try:
            displaced = before is not None and liveness.lease_left(before.worker) is not None
            epoch, head = begin(log, owner, repaired, force=take_over, displaced=displaced)
        except RacedError:
            threading.Event().wait(0.001)
            continue
        return Claim(log.session, epoch, head, before, displaced, clock.now_ms())
    raise SessionBusy(log.session, "another worker, which is claiming it at this moment", None)


def release(log: Log, epoch: int, due: int | None, repaired: Repaired) -> bool:
    """Give it back, due at ``due`` if that is given and it is not parked; whether it was ours. The mark need
    not be synced: after a power loss the worker is dead, and the session free.
    Raises ``LockHeldError`` as well."""
    log.refresh()
    if log.fenced() or log.epoch != epoch or epoch == 0:
        return False
    if due is not None and not _put_off(log, epoch, due, repaired):
        return False
    with unavailable(f"could not release session {log.session!r}"):
        log.free_mark(epoch).touch()
    return True


def _put_off(log: Log, epoch: int, due: int, repaired: Repaired) -> bool:
    """Make a session that is not parked due at ``due``; False if the session is no longer ours."""
    while (row := log.top.row) is not None and row.due is not None:
        try:
            append(log, log.head, epoch, [], RowUpdate(row.status, due), repaired)
            break
        except Conflict:
            continue  # a message came in between; the log was read again
        except WriterFenced:
            return False
    return True


def fence_for_delete(log: Log, liveness: HostLiveness) -> None:
    """Nobody can append or claim any more. Raises ``SessionBusy`` if it is driven."""
    with contextlib.suppress(DamagedLog, LogTooNew):
        row = row_of(log, liveness.alive)
        if row.owner is not None and row.owner_alive:
            raise SessionBusy(log.session, str(row.owner), liveness.lease_left(row.owner.worker))
    try:
        fence(log)
    except RacedError:
        raise SessionBusy(log.session, "another worker, which is claiming it at this moment", None) from None
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EDQUOT):  # a full disk is a reason to delete
            raise StorageUnavailable(
                f"could not delete session {log.session!r}: {error}; try again"
            ) from error


def reconcile(log: Log, listed: bool) -> None:
    """Make the index of due sessions agree with the log. One that cannot be read is left as it is."""
    try:
        log.refresh()
    except (LogTooNew, DamagedLog, BadSetting) as error:
        _report.warning("%s", error)
        return
    wanted = bool(log.chain) and log.top.row is not None and log.top.row.due is not None
    if wanted == listed:
        return
    if wanted:
        with unavailable(f"could not note that session {log.session!r} is due"):
            log.due.touch()
        return
    if log.chain and not log.fenced():
        with contextlib.suppress(LockHeldError), locked(log, 1) as fd:
            log.refresh()
            row = log.top.row if log.holds(fd) else None
            if row is not None and row.due is None:
                log.due.unlink(missing_ok=True)
