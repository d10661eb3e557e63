"""The format of a snapshot's manifest: a node (some lines) for each folder, named by its hash.

::

    node = line (LF line)*          sorted by the raw bytes of the names; its blob is named sha256(node)
    line = kind SP mode SP size SP ref SP name
     f 644 1234 9f86d0...     a.py      a file; ref: the blob of its content, or "+" and a list of pieces
     r 600 310 77ab03...      config    the same, but values in it were replaced (see ``gitfolder``)
     l 0 7 ../x               link      ref: the target, escaped; "-" if there is none
     d 755 - 3a7bd3...        src       ref: the node of the folder
     n 0 - 77ab90... -                  a part of the lines of a folder with very many of them

Modes are octal. Names and targets are bytes: those that are not printable UTF-8 are written as ``\\xNN``,
so that a line never holds a space or a line feed that is not its own. There are no times in it: what was
touched only costs nothing, and equal trees have equal roots."""

from __future__ import annotations

import hashlib
import re
import zlib
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

PIECE = 256 << 10
"""Bytes of a content's pieces. A row that changes in a large database costs two of these, not the
database."""

CROWDED = 1024
"""Lines above which a folder's node is cut, so that a change in a folder of 20,000 files costs little."""

EMPTY = hashlib.sha256(b"").hexdigest()
"""The node of an empty folder (and the content of an empty file)."""

Get = Callable[[str], bytes]
"""A blob's content by its name. Raises what ``reading`` says."""

_ODD = re.compile(rb"[\x00-\x20\\\x7f]|[\x80-\xff]+")
_ESCAPED = re.compile(rb"\\x([0-9a-f]{2})")


class Line(NamedTuple):
    """A manifest's line, parsed. ``name`` is raw; ``ref`` is as in the line."""

    kind: str
    mode: int
    size: int
    ref: str
    name: bytes

    @property
    def is_folder(self) -> bool:
        return self.kind == "d"

    @property
    def shown(self) -> str:
        """The ref as events show it: of a link "@" and its target, so that nobody takes it for a blob."""
        return "@" + self.ref if self.kind == "l" else self.ref


def escape(name: bytes) -> bytes:
    """A name or a target as it stands in a line: UTF-8 without white space, control characters or "\\"."""
    return _ODD.sub(_escaped, name)


def unescape(text: bytes) -> bytes:
    """The inverse of ``escape``."""
    return _ESCAPED.sub(lambda found: bytes([int(found.group(1), 16)]), text)


def _escaped(found: re.Match[bytes]) -> bytes:
    part = found.group()
    if part[0] >= 0x80:
        try:
            part.decode()
        except UnicodeDecodeError:
            pass
        else:
            return part
    return b"".join(b"\\x%02x" % byte for byte in part)


def shown(path: bytes) -> str:
    """A path for events and people: each of its names escaped."""
    return escape(path).decode()


def file_line(kind: bytes, mode: int, size: int, ref: str, name: bytes) -> bytes:
    return b"%s %o %d %s %s" % (kind, mode & 0o7777, size, ref.encode(), escape(name))


def link_line(target: bytes, name: bytes) -> bytes:
    return b"l 0 %d %s %s" % (len(target), escape(target) or b"-", escape(name))


def folder_line(mode: int, ref: str, name: bytes) -> bytes:
    return b"d %o - %s %s" % (mode & 0o7777, ref.encode(), escape(name))


def parse(line: bytes) -> Line:
    """Raises ``ValueError`` for what no scanner of ours writes, above all a name that would lead out of its
    folder."""
    kind, mode, size, ref, name = line.split(b" ")
    raw = unescape(name)
    if kind not in (b"f", b"r", b"l", b"d", b"n") or raw in (b"", b".", b"..") or b"/" in raw or b"\0" in raw:
        raise ValueError(f"not a manifest's line: {line!r}")
    return Line(kind.decode(), int(mode, 8) & 0o7777, 0 if size == b"-" else int(size), ref.decode(), raw)


def target(line: Line) -> bytes:
    """Where a link points to."""
    return b"" if line.ref == "-" and not line.size else unescape(line.ref.encode())


def node(lines: Sequence[bytes], put: Callable[[bytes], str]) -> str:
    """Store the lines (sorted by name) as a node, or as several and one that lists them; gives its name.

    The cuts depend on names only: a change moves at most the cuts beside it."""
    if len(lines) <= CROWDED:
        return put(b"\n".join(lines))
    return put(b"\n".join(b"n 0 - %s -" % put(b"\n".join(part)).encode() for part in _cut(lines)))


def _cut(lines: Sequence[bytes]) -> Iterator[Sequence[bytes]]:
    start = 0
    for end, line in enumerate(lines, 1):
        name = line[line.rindex(b" ") + 1 :]
        if zlib.crc32(name) & 255 == 0 or end - start >= CROWDED:
            yield lines[start:end]
            start = end
    if start < len(lines):
        yield lines[start:]


def lines(ref: str, get: Get) -> Iterator[bytes]:
    """The lines of a folder by its node, those of its parts included. An empty ``ref`` has none."""
    raw = get(ref) if ref else b""
    for line in raw.split(b"\n") if raw else ():
        if line.startswith(b"n "):
            yield from get(parse(line).ref).split(b"\n")
        else:
            yield line


def entries(ref: str, get: Get) -> dict[bytes, Line]:
    """A folder's lines by raw name."""
    parsed = (parse(line) for line in lines(ref, get))
    return {line.name: line for line in parsed}


def walk(root: str, get: Get) -> Iterator[tuple[bytes, Line]]:
    """Every line below a root, with its path."""
    pending = [(b"", root)]
    while pending:
        above, ref = pending.pop()
        for name, line in entries(ref, get).items():
            yield above + name, line
            if line.is_folder:
                pending.append((above + name + b"/", line.ref))


def content(ref: str, get: Get) -> Iterator[bytes]:
    """A file's content, piece by piece."""
    if ref.startswith("+"):
        for name in get(ref[1:]).decode().split("\n"):
            yield get(name)
    else:
        yield get(ref)
