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


class Payload(msgspec.Struct, frozen=True, omit_defaults=True):
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
        name = hashlib.sha256(raw).hexdigest()
        preview = raw[: PREVIEW * 4].decode("utf-8", "replace")[: min(PREVIEW, inline)]
        return Packed(Payload(len(raw), blob=name, preview=preview), {name: compress(raw)})
    try:
        return Packed(Payload(len(raw), text=raw.decode()))
    except UnicodeDecodeError:
        return Packed(Payload(len(raw), data=raw))


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
    squeezed = zlib.compress(raw, 1)
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
