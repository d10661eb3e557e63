"""Blobs of a snapshot as the World has them, and what is made of them: a file's content, a root's
difference."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from functools import partial

import anyio.from_thread
import anyio.to_thread

from harness_durable.errors import DamagedLog, NotFound
from harness_durable.events.workspace import Change
from harness_durable.payload import expand
from harness_durable.workspace import manifest
from harness_durable.workspace.differences import changes

Read = Callable[[str], Awaitable[bytes]]
"""A blob as it is stored, by its name. Raises ``NotFound`` if there is none."""


async def blob(name: str, read: Read) -> bytes:
    """A blob's content. Raises ``DamagedLog`` if it is missing or is not what its name says."""
    try:
        stored = await read(name)
    except NotFound as error:
        raise DamagedLog(f"blob {name}", 0, None, "it is missing") from error
    return expand(name, stored)


def getter(read: Read) -> manifest.Get:
    """For worker threads that the event loop waits for."""

    def get(name: str) -> bytes:
        return anyio.from_thread.run(blob, name, read)

    return get


async def pieces(ref: str, read: Read) -> AsyncIterator[bytes]:
    """A file's content by the ref of its line or of a ``Change``, at most 256 KiB at a time. Of a link ("@"
    and its target) the target. Raises ``DamagedLog``."""
    if ref.startswith("@"):
        yield b"" if ref == "@-" else manifest.unescape(ref[1:].encode())
    elif ref.startswith("+"):
        for name in (await blob(ref[1:], read)).decode().split("\n"):
            yield await blob(name, read)
    elif ref:
        yield await blob(ref, read)


async def content(ref: str, read: Read) -> bytes:
    """The same as one."""
    return b"".join([piece async for piece in pieces(ref, read)])


async def diff(old: str, new: str, read: Read) -> list[Change]:
    """All that differs between two roots; an empty one has no files. Raises ``DamagedLog``."""
    return await anyio.to_thread.run_sync(_diff, old, new, getter(read))


def _diff(old: str, new: str, get: manifest.Get) -> list[Change]:
    def entries(_: bytes, ref: str) -> dict[bytes, manifest.Line]:
        return manifest.entries(ref, get)

    return list(changes(old, new, entries, entries))


async def names(roots: Iterable[str], read: Read) -> set[str]:
    """Every blob that these roots need: to copy them, or to know what must not be swept. Raises
    ``DamagedLog``."""
    try:
        return await anyio.to_thread.run_sync(partial(_names, roots, getter(read)))
    except ValueError as error:  # no scanner of ours wrote that
        raise DamagedLog("the manifests of the workspace", 0, None, str(error)) from error


def _names(roots: Iterable[str], get: manifest.Get) -> set[str]:
    found, read = set[str](), set[str]()  # a file may have the very content of a manifest

    def keep(name: str) -> bytes:
        found.add(name)
        read.add(name)
        return get(name)

    pending = [root for root in roots if root]
    while pending:
        folder = pending.pop()
        for line in manifest.entries(folder, keep).values() if folder not in read else ():
            if line.is_folder:
                pending.append(line.ref)
            elif line.kind in ("f", "r") and not line.ref.startswith("+"):
                found.add(line.ref)
            elif line.kind in ("f", "r") and line.ref[1:] not in read:
                found.update(keep(line.ref[1:]).decode().split("\n"))
    return found
