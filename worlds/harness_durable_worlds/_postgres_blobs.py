"""Blobs: small ones in their row, with the append; larger ones in pieces, written ahead of it.

What surprises: pieces are named by a fresh object id, not by the blob's own name, so that pieces of a
write that was cut off can never be taken for the blob's; and nobody sees them before the append names them.
"""

from __future__ import annotations

import uuid
import zlib
from collections.abc import AsyncGenerator, Collection, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from typing import cast

from harness_durable.errors import DamagedLog, HarnessDurableError, NotFound, StorageUnavailable
from harness_durable_worlds._checks import no_session
from harness_durable_worlds._postgres_db import Connection, reading, writing
from harness_durable_worlds._postgres_lane import Lane
from harness_durable_worlds._postgres_log import Key
from harness_durable_worlds._postgres_writer import Blob

INLINE_BYTES = 256 << 10
PIECE_BYTES = 1 << 20


async def prepare(lane: Lane, key: Key, blobs: Mapping[str, bytes]) -> list[Blob]:
    """The rows for an append, after the pieces of the large ones have been written."""
    large = [sha for sha, body in blobs.items() if len(body) > INLINE_BYTES]
    known = set[object]()
    if large:
        known = {row[0] for row in await lane.do(reading("known_blobs", *key, large))}
    rows: list[Blob] = []
    for sha, body in blobs.items():
        crc = zlib.crc32(body)
        if len(body) <= INLINE_BYTES:
            rows.append(Blob(sha, len(body), crc, None, body))
        elif sha not in known:
            rows.append(Blob(sha, len(body), crc, await _put(lane, key, body), None))
    return rows


async def _put(lane: Lane, key: Key, body: bytes) -> str:
    """Write the pieces, one statement each, so that others get their turn between them."""
    name = uuid.uuid4().hex
    for part, start in enumerate(range(0, len(body), PIECE_BYTES)):
        piece = body[start : start + PIECE_BYTES]
        await lane.do(writing("put_piece", *key, name, part, piece))
    return name


@asynccontextmanager
async def named(lane: Lane, key: Key, blobs: Sequence[Blob]) -> AsyncGenerator[None]:
    """Around what names the blobs: removes the pieces that it did not name, since it was refused, or the blob
    was there already. Not while it may yet be done: when its outcome is unclear, or nobody waits for it."""
    try:
        yield
    except HarnessDurableError as error:
        if not (isinstance(error, StorageUnavailable) and error.unclear):
            await _tidy(lane, key, blobs)
        raise
    await _tidy(lane, key, blobs)


async def _tidy(lane: Lane, key: Key, blobs: Sequence[Blob]) -> None:
    objects = [blob.object for blob in blobs if blob.object is not None]
    if objects:
        with suppress(HarnessDurableError):  # what is left then goes with the session
            await lane.do(writing("drop_unnamed_pieces", *key, objects))


async def put(lane: Lane, key: Key, blobs: Mapping[str, bytes]) -> None:
    """Store them without an append, also for a session that does not exist yet."""
    rows = await prepare(lane, key, blobs)
    async with named(lane, key, rows):
        for blob in rows:
            await lane.do(writing("put_blob", *key, *blob))


async def missing(lane: Lane, key: Key, names: Collection[str]) -> set[str]:
    """Those that are not stored for this session, which need not exist."""
    found = await lane.do(reading("known_blobs", *key, list(names)))
    return set(names) - {cast(str, row[0]) for row in found}


async def get(lane: Lane, key: Key, sha: str) -> bytes:
    """Raises ``NotFound``, and ``DamagedLog`` if it is not what was stored."""
    rows = await lane.do(reading("blob", *key, sha))
    if not rows:
        if not await lane.do(reading("row", *key)):
            raise no_session(key[1])
        raise NotFound(f"session {key[1]!r} has no blob {sha}; it was pruned, or never stored here")
    size, crc, name, body = cast("tuple[int, int, str | None, bytes | None]", tuple(rows[0]))
    whole = body if body is not None else await _pieces(lane, key, name or "", size)
    if len(whole) != size or zlib.crc32(whole) != crc:
        raise DamagedLog(f"blob {sha} of session {key[1]!r}", 0, size, "all other blobs can be read")
    return whole


async def _pieces(lane: Lane, key: Key, name: str, size: int) -> bytes:
    found = bytearray()
    for part in range(-(-size // PIECE_BYTES)):
        rows = await lane.do(reading("piece", *key, name, part))
        if not rows:
            break
        found += cast(bytes, rows[0][0])
    return bytes(found)


# ------------------------------------------------------------------------------ what may be lost


async def put_snapshot(db: Connection, key: Key, seq: int, data: bytes) -> None:
    if not await db.write("put_snapshot", *key, seq, zlib.crc32(data, seq), data):
        raise no_session(key[1])


async def snapshot(db: Connection, key: Key) -> tuple[int, bytes] | None:
    """A damaged snapshot is none: it is a cache."""
    rows = await db.read("snapshot", *key)
    if not rows:
        raise no_session(key[1])
    seq, data, crc = cast("tuple[int | None, bytes, int]", tuple(rows[0]))
    return (seq, data) if seq is not None and zlib.crc32(data, seq) == crc else None
