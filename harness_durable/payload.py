"""Bytes that other people made, as they go into an event: tool inputs, results, transcript lines, requests.

They come back exactly as they went in (NUL, lone surrogates in escapes, integers over 2^53, CRLF), because
nothing here parses them. UTF-8 is kept as text so that people can read a log; other bytes as base64; what is
over ``INLINE`` bytes as the name of a blob.
"""

from __future__ import annotations

import hashlib
import zlib

import msgspec

from harness_durable.errors import DamagedLog

INLINE = 32 << 10
"""Larger payloads become blobs: a log of references stays quick to read from the start."""

PREVIEW = 200
"""Characters of a blob that the event itself shows."""


class Payload(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """At most one of ``text``, ``data`` and ``blob`` is set. ``size`` in bytes; ``preview`` for people.

    None of the three is set where a state shortened it: then the event in the log has the content.
    """

    size: int
    text: str | None = None
    data: bytes | None = None
    blob: str | None = None
    preview: str = ""

    @property
    def inline(self) -> bytes | None:
        """The bytes, unless they are in a blob."""
        if self.text is not None:
            return self.text.encode()
        return self.data


class Media(msgspec.Struct, frozen=True, omit_defaults=True):
    """An image, a document or the like within a model request: what it is, not its content. ``kind`` is the
    block's. ``digest`` is the SHA-256 (hex) of the file itself, ``size`` its bytes; of a mere reference (a
    URL, an uploaded file) the digest of that, and no size."""

    digest: str
    kind: str
    media_type: str = ""
    size: int = 0

    def __str__(self) -> str:
        """For people, such as ``image/png, 812 kB, sha256 ab12cd34ef56…``."""
        size = [_size(self.size)] if self.size else []
        return ", ".join([self.media_type or self.kind, *size, f"sha256 {self.digest[:12]}…"])


class Packed(msgspec.Struct, frozen=True):
    """A payload and, if it is large, the blob to store with the event that holds it."""

    payload: Payload
    blobs: dict[str, bytes] = {}


def pack(raw: bytes, inline: int = INLINE) -> Packed:
    """Make a payload of any bytes; a blob if they are more than ``inline``."""
    if len(raw) > inline:
        return _as_blob(raw, hashlib.sha256(raw).hexdigest(), compress(raw), inline)
    try:
        return Packed(Payload(len(raw), text=raw.decode()))
    except UnicodeDecodeError:
        return Packed(Payload(len(raw), data=raw))


class Packing:
    """``pack`` of bytes that arrive piece by piece: most of the work is done when the last one is there."""

    def __init__(self) -> None:
        self._early: list[bytes] = []
        self._size = 0
        self._digest, self._squeeze = hashlib.sha256(), zlib.compressobj(1)
        self._squeezed: list[bytes] = []

    def add(self, piece: bytes) -> None:
        """The next piece. Nothing is compressed that may yet fit into an event."""
        self._early.append(piece)
        self._size += len(piece)
        if self._size > INLINE:
            for each in self._early:
                self._digest.update(each)
                self._squeezed.append(self._squeeze.compress(each))
            self._early.clear()

    def packed(self, raw: bytes) -> Packed:
        """What ``pack(raw)`` gives; ``raw`` are all pieces. Once, at the end."""
        if self._size <= INLINE or self._size != len(raw):
            return pack(raw)
        squeezed = b"".join([*self._squeezed, self._squeeze.flush()])
        return _as_blob(raw, self._digest.hexdigest(), _smaller(squeezed, raw), INLINE)


def _as_blob(raw: bytes, name: str, stored: bytes, inline: int) -> Packed:
    preview = raw[: PREVIEW * 4].decode("utf-8", "replace")[: min(PREVIEW, inline)]
    return Packed(Payload(len(raw), blob=name, preview=preview), {name: stored})


def pack_text(text: str) -> Packed:
    """Make a payload of a Python string. A lone surrogate, which UTF-8 cannot hold, becomes U+FFFD."""
    return pack(clean(text).encode())


def clean(text: str) -> str:
    """Replace lone surrogates by U+FFFD, so that the text can be stored and sent anywhere."""
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def _size(size: int) -> str:
    if size < 1000:
        return f"{size} bytes"
    return f"{size / 1000:.0f} kB" if size < 1_000_000 else f"{size / 1_000_000:.1f} MB"


def compress(raw: bytes) -> bytes:
    """How a blob is stored: one byte that names the coding, then the content."""
    return _smaller(zlib.compress(raw, 1), raw)


def _smaller(squeezed: bytes, raw: bytes) -> bytes:
    return b"z" + squeezed if len(squeezed) < len(raw) else b"r" + raw


def expand(name: str, stored: bytes) -> bytes:
    """The content of a blob. Raises ``DamagedLog`` if it is not what its name says."""
    try:
        raw = zlib.decompress(stored[1:]) if stored[:1] == b"z" else stored[1:]
    except zlib.error:
        raw = b""
    if hashlib.sha256(raw).hexdigest() != name:
        raise DamagedLog(f"blob {name}", 0, len(stored), "its content does not match its name")
    return raw
