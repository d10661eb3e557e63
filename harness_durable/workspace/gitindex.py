"""Which files a repository tracks, from the bytes of its ``index`` (versions 2 to 4), without running git.

A tracked file belongs to the workspace even where a ``.gitignore`` names it."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator

_STAT = 40
"""Bytes of an entry before the object's hash."""


def tracked(raw: bytes) -> frozenset[bytes] | None:
    """The paths in an index, and all folders above them (without trailing "/"). None if it is one that this
    reader does not know: another version, split, cut off."""
    version = int.from_bytes(raw[4:8], "big")
    size = _hash_size(raw)
    if raw[:4] != b"DIRC" or version not in (2, 3, 4) or not size:
        return None
    body = raw[: len(raw) - size]
    paths: set[bytes] = set()
    try:
        end = len(body)
        for path, after in _entries(body, version, size):
            end = after
            while path and path not in paths:
                paths.add(path)
                path = path.rpartition(b"/")[0]
    except (ValueError, IndexError):
        return None
    return None if body[end : end + 4] == b"link" else frozenset(paths)


def _hash_size(raw: bytes) -> int:
    """Of SHA-1 or SHA-256, by which of them the index ends with; all zero is allowed (``index.skipHash``)."""
    for size, of in ((20, hashlib.sha1), (32, hashlib.sha256)):
        if raw[-size:] == of(raw[:-size], usedforsecurity=False).digest():
            return size
    return 20 if raw[-20:] == bytes(20) else 0


def _entries(body: bytes, version: int, size: int) -> Iterator[tuple[bytes, int]]:
    """Each path with the offset after it."""
    at, path = 12, b""
    for _ in range(int.from_bytes(body[8:12], "big")):
        start = at
        at += _STAT + size
        flags = int.from_bytes(body[at : at + 2], "big")
        at += 4 if flags & 0x4000 else 2
        if version == 4:
            strip, at = _varint(body, at)
            end = body.index(b"\0", at)
            path = path[: len(path) - strip] + body[at:end]
            at = end + 1
        else:
            end = body.index(b"\0", at)
            path = body[at:end]
            at = start + (end - start) // 8 * 8 + 8  # padded with one to eight NULs
        yield path.rstrip(b"/"), at


def _varint(body: bytes, at: int) -> tuple[int, int]:
    """The number of bytes to strip, in the coding that packs use for offsets."""
    byte = body[at]
    value = byte & 127
    while byte & 128:
        at += 1
        byte = body[at]
        value = (value + 1 << 7) | (byte & 127)
    return value, at + 1
