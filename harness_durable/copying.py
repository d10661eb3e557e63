"""Copying sessions from one World to another, of any two kinds: verified, and resumable.

Nothing is remembered beside the two stores. What is there already is not sent again, so whoever was cut off
just begins anew. What surprises: a session appears in the other store in one step, at the end, when its blobs
are there already; and it appears parked, so that a message that both stores have is worked on in one of them.

In memory there are the records of one session, and its blobs ``BATCH`` by ``BATCH``.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from typing import Literal

import msgspec

from harness_durable.errors import BadInput, DamagedLog, NotFound, StorageError
from harness_durable.journal import Reader
from harness_durable.journal.naming import needed_blobs
from harness_durable.world import RowUpdate, SessionRow, StoredRecord, World

BATCH = 8 << 20
"""Bytes of blobs that are sent at once; a larger blob goes by itself."""

PAGE = 500
"""Records that are read at once."""

TELL_EVERY = 64 << 20
"""Bytes of blobs after which progress is told."""

Tell = Callable[[str], None]
"""Hears sentences about progress."""

Result = Literal["copied", "moved", "already there", "would be copied", "would be moved"]


class Report(msgspec.Struct, frozen=True):
    """What became of a session. ``records`` it has there; ``blobs`` and ``sent`` (bytes of them) are what had
    to be sent. ``note`` is a sentence, or empty."""

    session: str
    result: Result
    records: int = 0
    blobs: int = 0
    sent: int = 0
    note: str = ""


class Sent:
    """Blobs on their way: the digests of all that the session needs, and how many had to be sent."""

    def __init__(self) -> None:
        self.digests: dict[str, bytes] = {}
        self.blobs = self.bytes = 0


async def copy_session(
    source: World, target: World, session: str, tell: Tell, *, dry: bool = False
) -> Report:
    """One session as it is now; the source is not touched. With ``dry``, only say what would be done.

    Raises ``BadInput`` if the target has another log under this name or the session has left the source,
    ``DamagedLog`` if it cannot be read whole, ``StorageError`` if it arrived otherwise than it was sent.
    """
    row = await source.session(session)
    if (moved := await moved_to(source, row)) is not None:
        raise BadInput(f"session {session!r} is on its way to {moved}; finish that with --move, to there")
    there = await row_of(target, session)
    if there is not None:
        await check_same(source, target, session, row.head, there.head)
    elif dry:
        await read_through(source, session, row.head)
        return Report(session, "would be copied", row.head)
    if dry:
        return Report(session, "already there", row.head)
    records = [] if there is not None else await read_all(source, session, row.head)
    sent = Sent()
    await send_blobs(source, target, session, sent, tell)
    if there is None:
        await target.restore(session, records, {}, RowUpdate(row.status, None))
    await verify(source, target, session, row.head, sent)
    if there is not None and not sent.blobs:
        return Report(session, "already there", row.head)
    note = "" if row.due is None else "it has work to do, and waits until `harness-durable recover` wakes it"
    return Report(session, "copied", row.head, sent.blobs, sent.bytes, note)


async def row_of(world: World, session: str) -> SessionRow | None:
    try:
        return await world.session(session)
    except NotFound:
        return None


async def moved_to(world: World, row: SessionRow) -> str | None:
    """Where a session that has left is going. Its log is only read for this if its row says that it ended."""
    if row.status != "closed":
        return None
    move = (await Reader(world, row.session).load()).moved
    return None if move is None else move.to


async def read_all(world: World, session: str, upto: int) -> list[StoredRecord]:
    """The first ``upto`` records. Raises ``DamagedLog`` if they are not all there and whole."""
    records: list[StoredRecord] = []
    while page := await _page(world, session, len(records), upto):
        records += page
    return records


async def read_through(world: World, session: str, upto: int) -> None:
    """Read them and keep nothing: raises ``DamagedLog``."""
    after = 0
    while page := await _page(world, session, after, upto):
        after = page[-1].seq


async def _page(world: World, session: str, after: int, upto: int) -> Sequence[StoredRecord]:
    """The next records up to ``upto``; none at its end."""
    page = await world.read(session, after, max(0, min(PAGE, upto - after)))
    if not page and after < upto:
        where = f"session {session!r}, record {after + 1}"
        raise DamagedLog(where, 0, None, f"the log ends there, and should have {upto} records")
    return page


async def check_same(
    source: World, target: World, session: str, upto: int, head: int, *, longer: bool = False
) -> None:
    """Whether the target, whose log ends at ``head``, has exactly the first ``upto`` records of the source;
    with ``longer``, at least those. Raises ``BadInput`` that says how far they agree."""
    same = await _in_common(source, target, session, min(upto, head))
    if same == upto and (head == upto or longer):
        return
    if same == head:
        why = f"with the first {head} of {upto} records: the session has gone on since it was copied"
    elif same == upto:
        why = f"and has gone on from record {upto} to {head}"
    else:
        why = f"with another log, from record {same + 1} on"
    raise BadInput(
        f"session {session!r} is there already, {why}. Neither was touched: delete the one that counts less"
    )


async def _in_common(source: World, target: World, session: str, upto: int) -> int:
    """How many records agree, from the first one on."""
    after = 0
    while ours := await _page(source, session, after, upto):
        theirs = await _page(target, session, after, after + len(ours))
        for mine, other in zip(ours, theirs, strict=False):
            if mine != other:
                return mine.seq - 1
        after = theirs[-1].seq
    return after


async def send_blobs(source: World, target: World, session: str, sent: Sent, tell: Tell) -> None:
    """Send what the target has not. Blobs that came since a record was read do no harm; those that nothing
    names stay behind."""
    batch: dict[str, bytes] = {}
    size = told = 0

    async def flush() -> None:
        missing = await target.missing_blobs(session, batch)
        if missing:
            await target.put_blobs(session, {name: batch[name] for name in missing})
        sent.blobs += len(missing)
        sent.bytes += sum(len(batch[name]) for name in missing)
        batch.clear()

    async for name, body in needed_blobs(source, session):
        if batch and size + len(body) > BATCH:
            await flush()
            size = 0
        batch[name] = body
        size += len(body)
        sent.digests[name] = _digest(body)
        if sent.bytes - told >= TELL_EVERY:
            told = sent.bytes
            tell(f"{session}: {sent.blobs} blobs, {megabytes(sent.bytes)}")
    if batch:
        await flush()


async def verify(source: World, target: World, session: str, upto: int, sent: Sent) -> None:
    """Read what has arrived, record by record and blob by blob. Raises ``StorageError`` if it is not what the
    source has."""
    same = await _in_common(source, target, session, upto)
    if same != upto:
        raise _altered(session, f"record {same + 1}")
    missing = dict(sent.digests)
    async for name, body in target.blobs(session):
        if name in missing and missing.pop(name) != _digest(body):
            raise _altered(session, f"blob {name}")
    if missing:
        raise _altered(session, f"blob {next(iter(missing))}")


def megabytes(size: int) -> str:
    return f"{size / 1_000_000:.1f} MB"


def _digest(body: bytes) -> bytes:
    return hashlib.sha256(body).digest()


def _altered(session: str, what: str) -> StorageError:
    return StorageError(
        f"session {session!r} arrived otherwise than it was sent ({what}). It is whole where it came from: "
        "delete what arrived, check that store, and copy again"
    )
