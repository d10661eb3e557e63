"""The bytes of a segment file: checksummed frames, in batches that are written whole or not at all.

    frame: 'DHR1' | u32 length of body | u32 crc32 | u64 seq | u32 epoch | body
    body:  a line of JSON (``Meta``), the record's bytes, a newline

The checksum starts from a salt of the session and the segment, so that a log which an agent printed and which
became part of a record is never taken for frames of this one. What surprises: a frame that carries no record
(a segment's header, a change of the row alone) has the seq of the record before it.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import msgspec

from harness_durable.world import MAX_RECORD, Owner, Record, RowUpdate, StoredRecord

FORMAT = 1
MAGIC = b"DHR1"
_HEAD = struct.Struct("<4sIIQI")
_START = struct.Struct("<4sI")
_PLACE = struct.Struct("<QI")
_MAX_BODY = MAX_RECORD + (1 << 16)


class Header(msgspec.Struct, frozen=True, omit_defaults=True):
    """What a segment begins with. ``previous`` is the older segment's epoch and the length up to which it
    counts; ``owner`` is the worker that claimed with this epoch. The row's state is carried on, so that
    nobody reads older segments to know it. ``former`` is who drove before a segment that nobody drives."""

    format: int
    session: str
    epoch: int
    previous: tuple[int, int] | None = None
    owner: Owner | None = None
    row: RowUpdate | None = None
    created: int = 0
    updated: int = 0
    former: Owner | None = None


class Meta(msgspec.Struct, frozen=True, omit_defaults=True):
    """The line of JSON. ``part`` is (i, n) for the i-th of n frames of a batch, absent for the only one;
    ``note`` marks a frame without a record."""

    id: str = ""
    kind: str = ""
    time: int = 0
    part: tuple[int, int] | None = None
    row: RowUpdate | None = None
    header: Header | None = None
    note: bool = False


class Frame(NamedTuple):
    """One frame that passed its checksum."""

    seq: int
    epoch: int
    meta: Meta
    body: bytes
    end: int


class Batch(NamedTuple):
    """A whole batch, and where it lies."""

    start: int
    end: int
    frames: list[Frame]

    @property
    def head(self) -> int:
        return self.frames[-1].seq

    def records(self) -> list[StoredRecord]:
        return [
            StoredRecord(f.seq, f.epoch, f.meta.id, f.meta.kind, f.meta.time, f.body)
            for f in self.frames
            if not f.meta.note
        ]


class Damage(NamedTuple):
    """Bytes that fail their checksum although whole batches follow, and the seqs that are lost with them."""

    start: int
    end: int
    first: int
    last: int


_encoder = msgspec.json.Encoder()
_decoder = msgspec.json.Decoder(Meta)


def salt_of(session: str, epoch: int) -> int:
    return zlib.crc32(f"{session}/{epoch}".encode())


def encode_frame(salt: int, seq: int, epoch: int, meta: Meta, body: bytes = b"") -> bytes:
    content = b"%b\n%b\n" % (_encoder.encode(meta), body)
    crc = _checksum(salt, len(content), _PLACE.pack(seq, epoch), content)
    return _HEAD.pack(MAGIC, len(content), crc, seq, epoch) + content


def encode_header(salt: int, head: int, header: Header) -> bytes:
    return encode_frame(salt, head, header.epoch, Meta(header=header, note=True))


def encode_batch(salt: int, head: int, epoch: int, records: Sequence[Record], row: RowUpdate | None) -> bytes:
    """The frames of one append after ``head``; without records, a frame that changes the row alone."""
    count = len(records)
    if not count:
        return encode_frame(salt, head, epoch, Meta(row=row, note=True))
    return b"".join(
        encode_frame(
            salt,
            head + i,
            epoch,
            Meta(r.id, r.kind, r.time, (i, count) if count > 1 else None, row if i == count else None),
            r.body,
        )
        for i, r in enumerate(records, 1)
    )


def _checksum(salt: int, length: int, place: bytes, content: bytes | memoryview) -> int:
    return zlib.crc32(content, zlib.crc32(_START.pack(MAGIC, length) + place, salt))


def _frame(data: bytes, at: int, salt: int) -> Frame | None:
    """The frame at ``at``, or None if what is there is not one (yet)."""
    if len(data) - at < _HEAD.size:
        return None
    magic, length, crc, seq, epoch = _HEAD.unpack_from(data, at)
    start, end = at + _HEAD.size, at + _HEAD.size + length
    if magic != MAGIC or length > _MAX_BODY or end > len(data):
        return None
    content = data[start:end]
    if _checksum(salt, length, data[at + 12 : start], content) != crc:
        return None
    line, _, rest = content.partition(b"\n")
    try:
        return Frame(seq, epoch, _decoder.decode(line), rest[:-1], end)
    except msgspec.MsgspecError:
        return None


def read_batch(data: bytes, at: int, salt: int) -> Batch | None:
    """The whole batch that begins at ``at``, or None."""
    frames: list[Frame] = []
    end = at
    while True:
        frame = _frame(data, end, salt)
        if frame is None:
            return None
        part, count = frame.meta.part or (1, 1)
        if part != len(frames) + 1 or (frames and frame.seq != frames[-1].seq + 1):
            return None
        frames.append(frame)
        end = frame.end
        if part == count:
            return Batch(at, end, frames)


def written_as(data: bytes) -> str | None:
    """The session that a segment was written for, if it is not this one's: its folder was renamed."""
    if data[:4] == MAGIC:
        _, length, _, _, epoch = _HEAD.unpack_from(data.ljust(_HEAD.size, b"\0"))
        try:
            line = data[_HEAD.size : _HEAD.size + length].partition(b"\n")[0]
            header = _decoder.decode(line).header
        except msgspec.MsgspecError:
            return None
        if header is not None and read_batch(data, 0, salt_of(header.session, epoch)) is not None:
            return header.session
    return None


def scan(data: bytes, at: int, salt: int, head: int) -> Iterator[Batch | Damage]:
    """The batches from ``at`` on that continue ``head``, and between them the damage. Ends where no whole
    batch follows: what is left there was never acknowledged, or is still being written."""
    while at < len(data):
        batch = read_batch(data, at, salt)
        if batch is None or not _continues(batch, head):
            batch = _next_batch(data, at, salt, head)
            if batch is None:
                return
            yield Damage(at, batch.start, head + 1, first_of(batch) - 1)
        yield batch
        at, head = batch.end, batch.head


def first_of(batch: Batch) -> int:
    """The seq of the first record in the batch, or of the next one if it has none."""
    first = batch.frames[0]
    return first.seq + 1 if first.meta.note else first.seq


def _continues(batch: Batch, head: int) -> bool:
    return first_of(batch) == head + 1


def _next_batch(data: bytes, at: int, salt: int, head: int) -> Batch | None:
    """The next whole batch that can stand after ``head`` and what is damaged. Copies of this log's own older
    frames, in the body of a damaged record, have lower numbers and are passed over."""
    while (at := data.find(MAGIC, at)) >= 0:
        batch = read_batch(data, at, salt)
        if batch is not None and batch.frames[0].seq > head:
            return batch
        at += 1
    return None
