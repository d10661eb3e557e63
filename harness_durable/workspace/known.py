"""What the last snapshot saw, so that the next one reads only what changed: a cache, and nothing but one.

A file whose stamp is as it was is not opened. Without a cache (lost, damaged, of another place, host or
version) all is read once, and the root is the same. What surprises: ``rules`` of a folder names the state
of all ignore rules above it; where it differs, each name is judged anew."""

from __future__ import annotations

import hashlib
import os
import threading
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

import msgspec

from harness_durable.errors import DamagedLog
from harness_durable.events.workspace import LeftOut
from harness_durable.workspace.manifest import Get, lines, parse

Stamp = tuple[int, int, int, int, int]
"""mode, size, mtime_ns, ctime_ns, inode."""

Entry = tuple[Stamp | None, bool, bytes]
"""Stamp (None: must be read), racy (must be read, too), the manifest's line."""

_MAGIC = b"harness-durable stat cache 1\n"


class Folder(msgspec.Struct, array_like=True):
    """``ref`` is the node; ``inside``: below an ignored folder; ``left``: names that were left out, and
    why."""

    ref: str = ""
    rules: bytes = b""
    inside: bool = False
    entries: dict[bytes, Entry] = {}
    left: dict[bytes, str] = {}


class Known(msgspec.Struct, array_like=True):
    """``folders`` by path below the workspace (each with a trailing "/", the workspace itself is empty).
    ``said`` is the digest of what was reported as left out last."""

    root: str = ""
    said: str = ""
    folders: dict[bytes, Folder] = {}


class _Cache(msgspec.Struct, array_like=True):
    owner: str
    known: Known


def stamp(found: os.stat_result) -> Stamp:
    """What tells a changed file from an unchanged one. ctime: a time that was put back (``rsync -t``) is
    seen."""
    return found.st_mode, found.st_size, found.st_mtime_ns, found.st_ctime_ns, found.st_ino


def digest(left: Sequence[LeftOut]) -> str:
    """Of what is left out, to say it only when it changed. Empty if nothing is."""
    return hashlib.sha256(msgspec.json.encode(left)).hexdigest() if left else ""


class CacheFile:
    """The cache of one workspace, whose ``owner`` is a place on a host. Threads write it, and one that nobody
    waits for any more may come late: it never replaces what is newer."""

    def __init__(self, path: Path, owner: str) -> None:
        self._path, self._owner = path, owner
        self._one, self._newest = threading.Lock(), 0

    def load(self) -> Known | None:
        """What was saved, if it is whole and this owner's; else None."""
        try:
            raw = self._path.read_bytes()
        except OSError:
            return None
        magic, digest, body = raw[: len(_MAGIC)], raw[len(_MAGIC) :][:32], raw[len(_MAGIC) + 32 :]
        if magic != _MAGIC or hashlib.sha256(body).digest() != digest:
            return None
        try:
            cache = msgspec.msgpack.decode(body, type=_Cache)
        except msgspec.MsgspecError:
            return None
        return cache.known if cache.owner == self._owner else None

    def save(self, known: Known, number: int) -> None:
        """Write beside, then rename; nothing if one with a higher ``number`` was. A kill leaves one file
        beside, which the next write takes over. That it cannot be written only costs time at the next start,
        so that is no error."""
        beside = self._path.with_name(self._path.name + ".new")
        with self._one:
            if number < self._newest:
                return
            self._newest = number
            body = _encoded(self._owner, known)
            try:
                self._path.parent.mkdir(parents=True, exist_ok=True)
                beside.write_bytes(_MAGIC + hashlib.sha256(body).digest() + body)
                beside.replace(self._path)
            except OSError:
                with suppress(OSError):
                    beside.unlink()


def _encoded(owner: str, known: Known) -> bytes:
    """A ``_Cache``, folder by folder: in one go it would hold up every other thread for all of it."""
    encode = msgspec.msgpack.Encoder().encode
    parts = [b"\x92", encode(owner), b"\x93", encode(known.root), encode(known.said)]
    parts.append(b"\xdf" + len(known.folders).to_bytes(4, "big"))
    for path, folder in known.folders.items():
        parts += encode(path), encode(folder)
    return b"".join(parts)


def from_manifest(root: str, get: Get) -> Known:
    """What a snapshot in the World knows: names, but no stamps, so that all is read. What once was in stays
    in, and changes can be told. If the World lacks a part, that part is as if it were new."""
    known = Known(root)
    pending = [(b"", root)] if root else []
    while pending:
        path, ref = pending.pop()
        folder = known.folders[path] = Folder(ref)
        try:
            found = list(lines(ref, get))
        except DamagedLog:
            folder.ref = ""
            continue
        for raw in found:
            line = parse(raw)
            folder.entries[line.name] = (None, True, raw)
            if line.is_folder:
                pending.append((path + line.name + b"/", line.ref))
    return known
