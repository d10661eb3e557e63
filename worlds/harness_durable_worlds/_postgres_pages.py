"""Reading logs, page by page; and what is found in them: damage, or the records of a lost answer."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import NamedTuple, cast

import msgspec

from harness_durable.errors import Conflict, DamagedLog, WriterFenced
from harness_durable.world import Record, Salvage, StoredRecord
from harness_durable_worlds._checks import no_session
from harness_durable_worlds._postgres_db import Connection, Row
from harness_durable_worlds._postgres_log import Key, checksum

FIRST, PAGE = 20, 200
"""Records that are read at a time: first few, together with what others read; then more, alone."""


class Damage(msgspec.Struct, frozen=True):
    """A record that cannot be given: its place, and what is wrong with it."""

    seq: int
    reason: str


class Page(NamedTuple):
    """``damage`` ends ``records`` early. ``head`` is the session's, of the same moment."""

    records: list[StoredRecord]
    damage: Damage | None
    head: int


class Wanted(NamedTuple):
    session: str
    after: int
    limit: int


Pages = Callable[[Wanted], Awaitable[Page]]


async def read(pages: Pages, key: Key, after: int, limit: int | None) -> list[StoredRecord]:
    """See ``World.read``: the good records up to the first damaged one, which is raised when it comes first.
    Page by page, so that nobody waits long behind a long log."""
    good: list[StoredRecord] = []
    after, size = max(after, 0), FIRST
    while limit is None or len(good) < limit:
        count = size if limit is None else min(size, limit - len(good))
        page = await pages(Wanted(key[1], after + len(good), count))
        good += page.records
        if page.damage is not None:
            if good:
                break
            raise damaged(key, page.damage, page.head)
        if len(page.records) < count:
            break
        size = PAGE
    return good


async def read_pages(db: Connection, app: str, wanted: Sequence[Wanted]) -> list[Page | None]:
    """Several pages in one statement, so each of one moment; ``None`` for no session."""
    columns = map(list, zip(*wanted, strict=True))
    found: dict[int, list[Row]] = {}
    for row in await db.read("read", app, *columns):
        found.setdefault(cast(int, row[0]), []).append(row[1:])
    return [
        _page((app, each.session), each, found[place]) if place in found else None
        for place, each in enumerate(wanted, 1)
    ]


def alone(db: Connection, key: Key) -> Pages:
    """Pages through a connection at hand."""

    async def page(wanted: Wanted) -> Page:
        [found] = await read_pages(db, key[0], [wanted])
        if found is None:
            raise no_session(key[1])
        return found

    return page


def _page(key: Key, wanted: Wanted, rows: Sequence[Row]) -> Page:
    head, good = cast(int, rows[0][0]), list[StoredRecord]()
    for row in rows:
        if row[1] is None or cast(int, row[1]) > head:
            break
        record = _checked(key, row, wanted.after + len(good) + 1)
        if isinstance(record, Damage):
            return Page(good, record, head)
        good.append(record)
    if len(good) < min(wanted.limit, head - wanted.after):
        return Page(good, Damage(wanted.after + len(good) + 1, "its row is missing"), head)
    return Page(good, None, head)


def _checked(key: Key, row: Row, seq: int) -> StoredRecord | Damage:
    record = StoredRecord(*cast("tuple[int, int, str, str, int, bytes]", tuple(row[1:7])))
    if record.seq != seq:
        return Damage(seq, "its row is missing")
    return record if checksum(key, record) == row[7] else Damage(seq, "its checksum does not match")


async def salvage(pages: Pages, key: Key) -> Salvage:
    """Every record that is whole, and what is wrong with each of the others."""
    records, damages, seq = list[StoredRecord](), list[DamagedLog](), 0
    while True:
        page = await pages(Wanted(key[1], seq, PAGE))
        records += page.records
        seq += len(page.records)
        if page.damage is not None:
            damages.append(damaged(key, page.damage, page.head))
            seq = page.damage.seq
        if seq >= page.head:
            return Salvage(records, damages)


def damaged(key: Key, damage: Damage, head: int) -> DamagedLog:
    seq = damage.seq
    return DamagedLog(
        f"table event, record {seq} of session {key[1]!r}",
        0,
        None,
        f"{damage.reason}; records 1 to {seq - 1} and from {seq + 1} to {head} are not touched by it",
    )


async def settle(
    db: Connection, key: Key, expected_head: int, epoch: int, records: Sequence[Record]
) -> int | None:
    """What has become of an append that the head did not fit; its end if it has happened.

    Raises ``NotFound``, ``WriterFenced`` or ``Conflict`` as ``World.append`` says; ``None`` if the head fits
    now. The order matters: what has happened is told even to a writer that was superseded since.
    """
    found = await db.read("verdict", *key, expected_head, len(records))
    if not found:
        raise no_session(key[1])
    head, newest, ids = cast("tuple[int, int, list[str]]", tuple(found[0]))
    if records and ids == [record.id for record in records]:
        return expected_head + len(records)
    if epoch > 0 and epoch != newest:
        raise WriterFenced(key[1], epoch, newest)
    if head != expected_head:
        raise Conflict(key[1], expected_head, await read(alone(db, key), key, expected_head, None))
    return None


async def holds(db: Connection, key: Key, records: Sequence[Record] | Sequence[StoredRecord]) -> bool:
    """Whether the log begins with exactly these records."""
    found = await db.read("verdict", *key, 0, len(records))
    return bool(found) and cast("list[str]", found[0][2]) == [record.id for record in records]
