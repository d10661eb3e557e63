"""The snapshots of one workspace: what the runtime calls, in the order scan, append, landed, remember.

The walk runs in a worker thread and asks the World through the event loop. What surprises: nothing here
changes by a scan. Only ``landed``, after the append returned, makes its result what is known; so a failure
leaves nothing to mend, and the next scan finds the same changes again."""

from __future__ import annotations

import os
import threading
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import islice
from pathlib import Path

import anyio
import anyio.from_thread
import anyio.to_thread
import msgspec

from harness_durable import clock
from harness_durable.events.workspace import MAX_CHANGES, Change, Counts, LeftOut
from harness_durable.workspace import known
from harness_durable.workspace.differences import changes
from harness_durable.workspace.ignoring import Own
from harness_durable.workspace.known import Known
from harness_durable.workspace.limits import Limits, OverLimit
from harness_durable.workspace.manifest import Line, parse, shown
from harness_durable.workspace.mapped import writable
from harness_durable.workspace.reading import Read, getter
from harness_durable.workspace.scanner import Scan, Surroundings
from harness_durable.workspace.sink import Sink

STUCK = (
    "the look before is still waiting for the file system, so none was begun; see whether the file system of "
    "the workspace answers"
)

REMEMBER_SECONDS = 5.0
"""How long an outcome waits for the cache to be written: a crash meanwhile would cost a full read."""

MAX_LEFT = 100
"""Paths of what is left out, or torn, that an event names."""

Put = Callable[[Mapping[str, bytes]], Awaitable[None]]
Missing = Callable[[Sequence[str]], Awaitable[Iterable[str]]]


class Scanned(msgspec.Struct, frozen=True):
    """As in ``WorkspaceCommitted``. ``blobs`` belong into the append that holds the event; larger ones were
    stored before. With ``skipped`` (``timeout``, ``max_step``, ``max_total``, ``max_files``, ``error``)
    there is no snapshot: ``root`` is the parent, and ``why`` says what to do. ``opened``: files that were
    opened."""

    root: str
    blobs: dict[str, bytes] = {}
    counts: Counts = Counts()
    changes: tuple[Change, ...] = ()
    more: int = 0
    new_bytes: int = 0
    stored_bytes: int = 0
    left_out: tuple[LeftOut, ...] | None = None
    left_out_more: int = 0
    torn: tuple[str, ...] = ()
    skipped: str = ""
    why: str = ""
    ms: int = 0
    opened: int = 0


class _GivenUp(Exception):
    """The scan was cancelled, or took too long; nobody waits for it any more."""


class Tracker:
    """One for each workspace. ``cache``: a file outside of it for the stat cache, None for none. ``put``
    stores blobs, ``missing`` gives those that the World lacks, ``read`` gives one as it is stored.
    ``processes``: those of the session, whose shared mappings the stat of a file does not show."""

    def __init__(
        self,
        place: Path,
        limits: Limits,
        *,
        cache: Path | None,
        put: Put,
        missing: Missing,
        read: Read,
        processes: Callable[[], Iterable[int]] = tuple,
    ) -> None:
        self._place = place.resolve()
        self._limits = msgspec.structs.replace(
            limits, outside=tuple(path.resolve() for path in limits.outside)
        )
        self._own = Own(self._limits)
        owner = f"{os.uname().nodename}:{os.fspath(self._place)}"
        self._cache = known.CacheFile(cache, owner) if cache is not None else None
        self._put, self._missing, self._read, self._processes = put, missing, read, processes
        self._known: Known | None = None
        self._pending: Known | None = None
        self._dirty, self._landings = False, 0
        self._unsaid: set[str] = set()
        self._idle = threading.Event()
        self._idle.set()
        self._given_up = False

    def remembered(self) -> str:
        """The root that was last recorded on this host, as far as is known; blocks for milliseconds."""
        stored = self._cache.load() if self._cache is not None else None
        return stored.root if stored is not None else ""

    async def scan(self, parent: str) -> Scanned:
        """A snapshot after the one whose root is ``parent`` ("" if there was none). One at a time.

        Raises ``WorkspaceMissing``, and ``StorageError`` if the World cannot be asked. A walk that hangs in
        the file system keeps its thread, and nobody waits for it; until it is back there is no other."""
        began, stop = clock.monotonic(), threading.Event()
        if self._given_up and not self._idle.is_set():
            return Scanned(parent, skipped="timeout", why=STUCK)
        self._given_up = False
        try:
            with anyio.move_on_after(self._limits.timeout):
                while not self._idle.is_set():  # one that was cancelled is on its way out
                    await clock.sleep(0.01)
                found, new = await anyio.to_thread.run_sync(self._work, parent, stop, abandon_on_cancel=True)
                self._pending = new
                return msgspec.structs.replace(found, ms=_ms_since(began))
        finally:
            stop.set()
        self._given_up = True
        why = (
            f"not finished within {self._limits.timeout:g} s; ignore what is generated, or raise "
            "`HARNESS_DURABLE_WORKSPACE_TIMEOUT_SECONDS`"
        )
        return Scanned(parent, skipped="timeout", why=why, ms=_ms_since(began))

    def landed(self, scanned: Scanned) -> None:
        """The append with this result returned (or it changed nothing): the next scan starts from here. Then
        ``remember`` it."""
        if self._pending is None or scanned.skipped or self._pending.root != scanned.root:
            return
        self._known, self._pending = self._pending, None
        self._unsaid.clear()
        self._landings += 1

    async def remember(self) -> None:
        """What is known is on the disk, for the next worker; or that takes too long, and goes on without us.
        Also if we are cancelled: who has to read all again loses more."""
        if self._cache is None or self._known is None or not self._dirty:
            return
        self._dirty = False
        save = partial(self._cache.save, self._known, self._landings)
        with anyio.move_on_after(REMEMBER_SECONDS, shield=True):
            await anyio.to_thread.run_sync(save, abandon_on_cancel=True)

    def _work(self, parent: str, stop: threading.Event) -> tuple[Scanned, Known | None]:
        """In the worker thread."""
        self._idle.clear()
        try:
            return self._walk(parent, stop)
        finally:
            self._idle.set()

    def _walk(self, parent: str, stop: threading.Event) -> tuple[Scanned, Known | None]:
        def check() -> None:
            if stop.is_set():
                raise _GivenUp
            anyio.from_thread.check_cancelled()

        async def missing(names: Sequence[str]) -> list[str]:
            return list(await self._missing(names))

        async def put(blobs: Mapping[str, bytes]) -> None:
            await self._put(blobs)

        have = self._known_of(parent)
        sink = Sink(
            lambda names: anyio.from_thread.run(missing, names),
            lambda blobs: anyio.from_thread.run(put, blobs),
            most=self._limits.max_step if parent else 0,
            unsaid=self._unsaid,
        )
        around = Surroundings(
            sink.add,
            clock.now_ms() * 1_000_000,
            check=check,
            pause=lambda seconds: anyio.from_thread.run(clock.sleep, seconds),
            mapped=writable(self._processes()),
        )
        try:
            if not parent:
                self._measure(around)
            scan = Scan(self._place, self._limits, self._own, have, around)
            new = scan.run()
            blobs = sink.finish() if new.root != parent else {}
        except OverLimit as error:
            return Scanned(parent, skipped=error.word, why=str(error)), None
        except OSError as error:
            why = f"{error.strerror or error}; the next step tries again"
            return Scanned(parent, skipped="error", why=why), None
        check()
        return self._result(have, new, scan, sink, blobs), new

    def _measure(self, around: Surroundings) -> None:
        """Before the first snapshot: whether there can be one, without storing half of it."""
        dry = Surroundings(lambda _: "", around.now_ns, check=around.check)
        Scan(self._place, self._limits, self._own, Known(), dry, measuring=True).run()

    def _known_of(self, parent: str) -> Known:
        """What is known of that root. A result that never heard of its append's success is as good."""
        for have in (self._known, self._pending):
            if have is not None and have.root == parent:
                return have
        if self._cache is not None and parent:
            stored = self._cache.load()
            if stored is not None and stored.root == parent:
                return stored
        return known.from_manifest(parent, getter(self._read))

    def _result(self, old: Known, new: Known, scan: Scan, sink: Sink, blobs: dict[str, bytes]) -> Scanned:
        listed = _changes(old, new)
        named = tuple(islice(listed, MAX_CHANGES))
        kinds = Counter(change.op for change in named)
        kinds.update(change.op for change in listed)
        left = [LeftOut(shown(path), reason) for path, reason in sorted(scan.left)]
        new.said = known.digest(left)
        changed = new.root != old.root or new.said != old.said
        self._dirty = self._dirty or changed or scan.files.count > 0
        counts = Counts(kinds["added"], kinds["modified"], kinds["removed"])
        return Scanned(
            new.root,
            blobs,
            counts,
            named,
            counts.total - len(named),
            sink.new_bytes,
            sink.stored_bytes,
            None if new.said == old.said else tuple(left[:MAX_LEFT]),
            max(0, len(left) - MAX_LEFT),
            tuple(shown(path) for path in sorted(scan.torn)[:MAX_LEFT]),
            opened=scan.files.count,
        )


def _changes(old: Known, new: Known) -> Iterator[Change]:
    return changes(old.root, new.root, _entries(old), _entries(new))


def _entries(have: Known) -> Callable[[bytes, str], dict[bytes, Line]]:
    """A folder's lines from the cache instead of the World."""

    def entries(path: bytes, ref: str) -> dict[bytes, Line]:
        folder = have.folders.get(path) if ref else None
        return {} if folder is None else {name: parse(entry[2]) for name, entry in folder.entries.items()}

    return entries


def _ms_since(began: float) -> int:
    return round((clock.monotonic() - began) * 1000)
