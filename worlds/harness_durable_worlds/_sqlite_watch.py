"""News: who waits for a session's head or for a session that is due, and how they learn of it.

Appends of this process are told at once. Those of others show in ``pragma data_version``, which one thread
asks every 25 ms, and only while somebody waits. What surprises: the thread reads the new heads itself, so
that a thousand waiting tasks cost one reading thread and no wake-ups for other people's appends.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path

import apsw

from harness_durable.errors import HarnessDurableError
from harness_durable_worlds._news import News
from harness_durable_worlds._sqlite_db import Db, Value
from harness_durable_worlds._sqlite_lane import Lane
from harness_durable_worlds._sqlite_sql import SQL

POLL_SECONDS = 0.025


class SqliteNews(News):
    """``due_waiters``: how many wait for a session that is due. ``wake`` is the watcher's."""

    def __init__(self) -> None:
        super().__init__()
        self.due_waiters = 0
        self.wake: Callable[[], None] = lambda: None

    def wanted(self) -> None:
        self.wake()

    @contextmanager
    def looking(self) -> Generator[None, None, None]:
        """Within it, sessions that become due are looked for."""
        self.due_waiters += 1
        self.wake()
        try:
            yield
        finally:
            self.due_waiters -= 1


class Watcher(Lane):
    """The thread that looks for other processes' commits. ``is_due`` asks whether one can be claimed."""

    def __init__(self, path: Path, app: str, news: SqliteNews, is_due: Callable[[Db], bool]) -> None:
        self._app, self._news, self._is_due = app, news, is_due
        self._interest, self._stop = threading.Event(), threading.Event()
        self._version: Value = None
        self._known: dict[str, Value] = {}
        news.wake = self._interest.set
        super().__init__(path, queue.SimpleQueue())

    def close(self) -> None:
        self._stop.set()
        self._interest.set()

    def _rounds(self) -> None:
        while not self._stop.wait(POLL_SECONDS):
            if not self._needed():
                self._interest.clear()
                if not self._needed() and not self._stop.is_set():
                    self._interest.wait()
                continue
            try:
                self._look(self._ready())
            except (apsw.Error, HarnessDurableError):
                self._drop()  # those who wait look for themselves now and then, and get the error

    def _needed(self) -> bool:
        return bool(self._news.sessions) or bool(self._news.due_waiters)

    def _drop(self) -> None:
        super()._drop()
        self._version = None

    def _look(self, connection: Db) -> None:
        version = connection.pragma("data_version")
        if version == self._version:
            return
        self._version = version
        heads: dict[str, Value] = {}
        for session in list(self._news.sessions):
            found = connection.execute(SQL["select_head"], (self._app, session)).fetchone()
            heads[session] = None if found is None else found[0]
        moved = [session for session, head in heads.items() if self._known.get(session, -1) != head]
        self._known = heads
        due = bool(self._news.due_waiters) and self._is_due(connection)
        if moved or due:
            self._tell(lambda: self._publish(moved, due))

    def _publish(self, sessions: list[str], due: bool) -> None:
        for session in sessions:
            self._news.appended(session)
        if due:
            self._news.became_due()
