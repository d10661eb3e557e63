"""Noticing what other processes did: a thread that looks at a few stamps, fifty times a second.

What surprises: a change only wakes somebody, who then looks for himself. So a change too many costs a look,
and a thread that died would cost time, never an event.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import threading
from collections.abc import Callable, Generator
from pathlib import Path

from harness_durable.errors import StorageUnavailable
from harness_durable_worlds._file_disk import exists
from harness_durable_worlds._file_log import SUFFIX
from harness_durable_worlds._liveness import HostLiveness

_INTERVAL = 0.02
_WORKERS_EVERY = 10

Look = Callable[[], object]
"""What a place looks like now; compared with what it looked like before."""


class _Watched:
    def __init__(self, look: Look, name: str) -> None:
        self.look, self.before, self.event, self.name = look, look(), asyncio.Event(), name


class Watch:
    """Used from one event loop. The thread runs while somebody watches."""

    def __init__(self) -> None:
        self._watched: dict[int, _Watched] = {}
        self._stop: threading.Event | None = None
        self._thread: threading.Thread | None = None

    @contextlib.contextmanager
    def on(self, look: Look, name: str) -> Generator[asyncio.Event, None, None]:
        """An event that is set after each change from now on, and by :meth:`poke` under this name. Who waits
        clears it, and then looks."""
        watched, loop = _Watched(look, name), asyncio.get_running_loop()
        self._watched[id(watched)] = watched
        if self._thread is None:
            self._stop = threading.Event()
            self._thread = threading.Thread(
                target=self._work, args=(loop, self._stop), name="file-world-watch", daemon=True
            )
            self._thread.start()
        try:
            yield watched.event
        finally:
            del self._watched[id(watched)]
            if not self._watched:
                self._end()

    def poke(self, name: str) -> None:
        """This process has changed what is watched under ``name``."""
        for watched in self._watched.values():
            if watched.name == name:
                watched.event.set()

    def close(self) -> None:
        """End the thread, and wait for it."""
        thread = self._thread
        self._end()
        if thread is not None:
            thread.join()

    def _end(self) -> None:
        if self._stop is not None:
            self._stop.set()
        self._thread = self._stop = None

    def _work(self, loop: asyncio.AbstractEventLoop, stop: threading.Event) -> None:
        while not stop.wait(_INTERVAL):
            for watched in list(self._watched.values()):
                now = watched.look()
                if now == watched.before:
                    continue
                watched.before = now
                with contextlib.suppress(RuntimeError):  # the loop has ended
                    loop.call_soon_threadsafe(watched.event.set)


class SegmentLook:
    """A session's newest file: its epoch, size and time."""

    def __init__(self, folder: Path) -> None:
        self._folder, self._epoch = folder, 0

    def __call__(self) -> object:
        try:
            if self._epoch == 0:
                names = os.listdir(self._folder)  # noqa: PTH208
                stems = (name.removesuffix(SUFFIX) for name in names if name.endswith(SUFFIX))
                self._epoch = max((int(stem) for stem in stems if stem.isdigit()), default=0)
            while exists(self._folder / f"{self._epoch + 1}{SUFFIX}"):
                self._epoch += 1
            found = os.stat(self._folder / f"{self._epoch}{SUFFIX}")  # noqa: PTH116
        except OSError:
            return None
        return (self._epoch, found.st_ino, found.st_size, found.st_mtime_ns)


class DueLook:
    """The bell that is rung when a session becomes due or free, and the workers: who left, who died."""

    def __init__(self, bell: Path, liveness: HostLiveness) -> None:
        self._bell, self._liveness = bell, liveness
        self._turn, self._alive = 0, frozenset[str]()

    def __call__(self) -> object:
        if self._turn % _WORKERS_EVERY == 0:
            with contextlib.suppress(StorageUnavailable, OSError):  # a look that fails shows no change
                self._alive = self._liveness.living()
        self._turn += 1
        try:
            rung = os.stat(self._bell).st_mtime_ns  # noqa: PTH116
        except OSError:
            rung = 0
        return (rung, self._alive)
