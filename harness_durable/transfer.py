"""A session as a file: ``export`` and ``import``, from any World to any other.

The file is JSON lines, so that people can read and ``grep`` it: a header, the records, the blobs in pieces,
and a last line with the counts and the SHA-256 of all lines before it. What surprises: nothing is written to
the World before the last line has been verified, so a file that was cut short imports nothing. A file that
was salvaged from a damaged log says what it lacks; it is for reading, and is not imported.
"""

from __future__ import annotations

import hashlib
from collections.abc import AsyncIterable, AsyncIterator, Callable, Sequence

import msgspec

from harness_durable.errors import BadInput, DamagedLog, LogTooNew
from harness_durable.journal.naming import needed_blobs
from harness_durable.world import RowUpdate, StoredRecord, World, check_session_id

VERSION = 1
"""Of the file. A reader refuses a larger one; older ones are read for ever."""

_PAGE = 500
_PIECE = 1 << 20
_LONGEST_LINE = 16 << 20


class _Line(msgspec.Struct, frozen=True, omit_defaults=True, tag_field="line"):
    """Base of the four kinds of line."""


class _Header(_Line, frozen=True, tag="session"):
    """``lost``: of a salvaged file, what was damaged, in sentences."""

    version: int
    session: str
    status: str
    due: int | None = None
    lost: tuple[str, ...] = ()


class _Record(_Line, frozen=True, tag="record"):
    """Exactly one of ``text`` and ``data`` is set."""

    seq: int
    epoch: int
    id: str
    kind: str
    time: int
    text: str | None = None
    data: bytes | None = None


class _Blob(_Line, frozen=True, tag="blob"):
    """A piece of a blob; the last one has ``more`` of false."""

    name: str
    data: bytes
    more: bool = False


class _End(_Line, frozen=True, tag="end"):
    records: int
    blobs: int
    sha256: str


class _Version(msgspec.Struct):
    line: str
    version: int


_decoder: msgspec.json.Decoder[_Header | _Record | _Blob | _End] = msgspec.json.Decoder(
    _Header | _Record | _Blob | _End
)
_encoder = msgspec.json.Encoder()


async def export_session(world: World, session: str) -> AsyncIterator[bytes]:
    """The file's lines, each with its newline. Blobs come last and in pieces of 1 MiB.

    Safe while the session runs: the file is a prefix of the log, with every blob that it names. Blobs that
    nothing names stay behind.
    """
    row = await world.session(session)
    lines = _Lines()
    yield lines.add(_Header(VERSION, session, row.status, row.due))
    seq = 0
    while page := await world.read(session, seq, _PAGE):
        for record in page:
            yield lines.add(_packed(record))
        seq = page[-1].seq
    async for name, stored in needed_blobs(world, session):
        for piece in _pieces(name, stored):
            yield lines.add(piece)
    yield lines.end()


async def salvage_session(world: World, session: str) -> tuple[AsyncIterator[bytes], Sequence[str]]:
    """What ``export_session`` would give, without what is damaged; and what that is, in sentences."""
    row = await world.session(session)
    records, damages = await world.salvage(session)
    lost = tuple(str(damage) for damage in damages)

    async def file() -> AsyncIterator[bytes]:
        lines = _Lines()
        yield lines.add(_Header(VERSION, session, row.status, row.due, lost))
        for record in records:
            yield lines.add(_packed(record))
        try:
            async for name, stored in world.blobs(session):
                for piece in _pieces(name, stored):
                    yield lines.add(piece)
        except DamagedLog as damaged:
            raise DamagedLog(
                damaged.where, damaged.offset, damaged.length, "all records are in the file, not every blob"
            ) from damaged
        yield lines.end()

    return file(), lost


class _Lines:
    """The file as far as it is written: its checksum and what its last line counts."""

    def __init__(self) -> None:
        self._checksum, self._records, self._blobs = hashlib.sha256(), 0, 0

    def add(self, line: _Header | _Record | _Blob) -> bytes:
        self._records += isinstance(line, _Record)
        self._blobs += isinstance(line, _Blob) and not line.more
        encoded = _encode(line)
        self._checksum.update(encoded)
        return encoded

    def end(self) -> bytes:
        return _encode(_End(self._records, self._blobs, self._checksum.hexdigest()))


def _pieces(name: str, stored: bytes) -> list[_Blob]:
    starts = range(0, len(stored) or 1, _PIECE)
    return [_Blob(name, stored[start : start + _PIECE], start + _PIECE < len(stored)) for start in starts]


class Contents(msgspec.Struct, frozen=True):
    """A file, for who only reads it. ``lost``: of a salvaged one, what it lacks; its records have holes."""

    session: str
    status: str
    records: list[StoredRecord]
    blobs: dict[str, bytes]
    lost: tuple[str, ...] = ()


async def read_file(stream: AsyncIterable[bytes]) -> Contents:
    """What is in a file, also in a salvaged one. Called by the viewer. Raises as ``import_session`` does."""
    reader = _Reader(salvaged=True)
    async for line in _lines(stream):
        reader.take(line)
    header = reader.finish()
    return Contents(header.session, header.status, reader.records, reader.blobs, header.lost)


async def import_session(
    world: World,
    stream: AsyncIterable[bytes],
    *,
    name: str | None = None,
    tell: Callable[[str], None] = lambda _: None,
) -> str:
    """Restore what ``export_session`` made; the session's id, which is ``name`` if that is given. It arrives
    parked, so that a message that both Worlds have is worked on in one of them; ``tell`` hears of it if there
    is work to do.

    ``stream`` may be cut anywhere. Raises ``BadInput`` for a file that is something else, cut short or
    altered, and for a session that exists already; ``LogTooNew`` for a newer file. Nothing is stored then.
    """
    reader = _Reader()
    async for line in _lines(stream):
        reader.take(line)
    header = reader.finish()
    session = check_session_id(name or header.session)
    await world.restore(session, reader.records, reader.blobs, RowUpdate(header.status, None))
    if header.due is not None:
        tell(
            f"session {session} has work to do, and waits until `harness-durable recover {session}` wakes "
            "it; see to it that the World that it came from does not go on with it"
        )
    return session


class _Reader:
    """Collects a file line by line, and refuses whatever could not have come from ``export_session``; and
    what was salvaged from a damaged log, unless it is only to be read."""

    def __init__(self, *, salvaged: bool = False) -> None:
        self._salvaged = salvaged
        self.records: list[StoredRecord] = []
        self.blobs: dict[str, bytes] = {}
        self._header: _Header | None = None
        self._open: tuple[str, bytearray] | None = None
        self._checksum = hashlib.sha256()
        self._ended = False

    def take(self, raw: bytes) -> None:
        line = self._parse(raw)
        if isinstance(line, _End):
            self._end(line)
            return
        self._checksum.update(raw)
        match line:
            case _Header(lost=[first, *_]) if not self._salvaged:
                raise BadInput(
                    "the file was salvaged from a damaged log, and a session that lacks a part of its past "
                    f"could do things again; read it, and import a backup instead. Lost: {first}"
                )
            case _Header():
                self._header = line
            case _Record():
                if line.seq != len(self.records) + 1 and not self._salvaged:
                    raise _altered(f"record {line.seq} follows record {len(self.records)}")
                self.records.append(_unpacked(line))
            case _Blob():
                self._piece(line)

    def finish(self) -> _Header:
        if self._header is None:
            raise BadInput("the file is empty; export the session again")
        if not self._ended:
            raise BadInput(
                "the export ends before its last line, so it was cut short; copy or export it again"
            )
        return self._header

    def _parse(self, raw: bytes) -> _Header | _Record | _Blob | _End:
        first = self._header is None
        if first:
            _check_version(raw)
        if self._ended:
            raise _altered("something follows its last line")
        try:
            line = _decoder.decode(raw)
        except (msgspec.MsgspecError, UnicodeDecodeError) as error:
            if not raw.endswith(b"\n"):
                raise BadInput(
                    "the export was cut short in the middle of a line; copy or export it again"
                ) from None
            raise _altered(f"a line cannot be read ({error})") from None
        if isinstance(line, _Header) is not first:
            raise _altered("its header is not where it belongs")
        return line

    def _piece(self, line: _Blob) -> None:
        name, so_far = self._open or (line.name, bytearray())
        if name != line.name:
            raise _altered(f"blob {name} ends too soon")
        so_far += line.data
        self._open = (name, so_far) if line.more else None
        if not line.more:
            self.blobs[name] = bytes(so_far)

    def _end(self, line: _End) -> None:
        found = (len(self.records), len(self.blobs), self._checksum.hexdigest())
        if found != (line.records, line.blobs, line.sha256):
            raise _altered(
                f"it has {found[0]} records and {found[1]} blobs where its last line counts "
                f"{line.records} and {line.blobs}, or its checksum does not match"
            )
        self._ended = True


def _check_version(raw: bytes) -> None:
    try:
        found = msgspec.json.decode(raw, type=_Version)
    except (msgspec.MsgspecError, UnicodeDecodeError):
        found = None
    if found is None or found.line != "session":
        raise BadInput("this is not a session export; make one with `harness-durable export SESSION`")
    if found.version > VERSION:
        raise LogTooNew("the export", found.version, VERSION)


def _altered(why: str) -> BadInput:
    return BadInput(f"the export was altered after it was made: {why}; export the session again")


def _encode(line: _Line) -> bytes:
    return _encoder.encode(line) + b"\n"


def _packed(record: StoredRecord) -> _Record:
    try:
        text, data = record.body.decode(), None
    except UnicodeDecodeError:
        text, data = None, record.body
    return _Record(record.seq, record.epoch, record.id, record.kind, record.time, text, data)


def _unpacked(line: _Record) -> StoredRecord:
    body = line.text.encode() if line.text is not None else line.data or b""
    return StoredRecord(line.seq, line.epoch, line.id, line.kind, line.time, body)


async def _lines(stream: AsyncIterable[bytes]) -> AsyncIterator[bytes]:
    """The stream cut at newlines; the last piece comes as it is. Each byte is looked at once, because a
    stream may come in very small chunks."""
    rest = bytearray()
    async for chunk in stream:
        first, *others = chunk.split(b"\n")
        rest += first
        for other in others:
            yield bytes(rest) + b"\n"
            rest = bytearray(other)
        if len(rest) > _LONGEST_LINE:
            raise BadInput("this is not a session export: a line is longer than any export writes")
    if rest:
        yield bytes(rest)
