"""The connection that notifies and is notified, and that dies with this process.

Notifications are a hint: they are gathered for a few ms, sent here, at most 40 a second, and never with an
append (which would cost every append a lock that all commits share), and whoever waits looks from time to
time all the same. What surprises: a connection on which LISTEN was accepted may never deliver, because a
pooler stands between, or because the network forgot it. So it is tested from another connection at the start,
and by an echo every few seconds; at any doubt it is built anew.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
import uuid
from collections.abc import Awaitable, Callable
from functools import partial

import anyio

from harness_durable import clock
from harness_durable.errors import HarnessDurableError
from harness_durable_worlds._postgres_db import Connection, Identity, reading
from harness_durable_worlds._postgres_errors import TROUBLE, explain
from harness_durable_worlds._postgres_lane import Lane
from harness_durable_worlds._postgres_line import Line, Store
from harness_durable_worlds._postgres_news import PostgresNews, heard, payloads

GATHER_SECONDS, APART_SECONDS = 0.005, 0.025
"""A notification waits so long for others to go along, and so long after the one before it."""
ECHO_EVERY = 5.0
ECHO_SECONDS = 3.0
_QUIET_SECONDS = 10.0
_LAST_SECONDS = 0.25

log = logging.getLogger("harness_durable.worlds.postgres")


def channel_of(schema: str, app: str) -> str:
    """The channel of one app: a name that every server takes."""
    return "hd_" + hashlib.sha256(f"{schema}\0{app}".encode("utf-8", "surrogatepass")).hexdigest()[:24]


class Complaints:
    """Says what goes wrong, and not again and again."""

    def __init__(self) -> None:
        self._said = float("-inf")
        self._unsaid = 0

    def say(self, sentence: str) -> None:
        now = clock.monotonic()
        if now - self._said < _QUIET_SECONDS:
            self._unsaid += 1
            return
        more = f" ({self._unsaid} more like it)" if self._unsaid else ""
        self._said, self._unsaid = now, 0
        log.warning("no notifications, polling instead: %s%s", sentence, more)


class Listener:
    """``works``: notifications arrive. ``identity``: the server process of this connection now, if it is ours
    alone; ``moved`` is called when it has changed."""

    def __init__(
        self,
        store: Store,
        news: PostgresNews,
        channel: str,
        elsewhere: Lane,
        moved: Callable[[], None],
    ) -> None:
        self._line, self._store, self._news, self._channel = Line(store), store, news, channel
        self._elsewhere, self._moved = elsewhere, moved
        self.works = False
        self.identity: Identity | None = None
        self.tried = asyncio.Event()
        self._sessions: dict[str, None] = {}
        self._due = False
        self._work, self._told = asyncio.Event(), asyncio.Event()
        self._echoes: dict[str, asyncio.Event] = {}
        self._complaints = Complaints()

    def tell(self, session: str | None, *, due: bool) -> None:
        """Others shall know soon that a session has moved, or that one may be due."""
        if session is not None:
            self._sessions[session] = None
        self._due = self._due or due
        self._told.clear()
        self._work.set()

    async def main(self) -> None:
        """For ever; cancelled at the end."""
        try:
            while True:
                try:
                    await self._serve(await self._line.patiently())
                except TROUBLE as error:
                    self._complaints.say(str(explain(error, self._store.shown)))
                except HarnessDurableError as error:
                    self._complaints.say(str(error))
                self._forget()
        finally:
            self._line.drop()

    async def last_words(self) -> None:
        """Wait until all has been told, if that is possible at once."""
        if (self._sessions or self._due) and self._line.usable:
            with anyio.move_on_after(_LAST_SECONDS):
                await self._told.wait()

    def _forget(self) -> None:
        self._line.drop()
        was, self.works, self.identity = self.identity, False, None
        if was is not None:
            self._moved()  # else, if no new one comes at once, others would take us for dead
        self.tried.set()
        self._news.everything()

    async def _serve(self, db: Connection) -> None:
        lost = asyncio.Event()

        def closed() -> None:
            lost.set()
            self._work.set()

        await db.listen(self._channel, self._heard, closed)
        if not db.identity.pooled:
            self.identity = db.identity
        self._moved()
        here = partial(db.read, "notify", self._channel)
        self.works = await self._echo(self._notify_elsewhere if db.identity.pooled else here)
        if not self.works and db.identity.pooled:
            log.info("notifications do not come through the pooler of %s; polling", self._store.shown)
            await db.unlisten(self._channel)
        elif not self.works:
            self._complaints.say("LISTEN was accepted, but nothing arrives")
        self.tried.set()
        self._news.everything()
        next_echo, next_one = clock.monotonic() + ECHO_EVERY, 0.0
        while not lost.is_set():
            with anyio.move_on_after(next_echo - clock.monotonic()):
                await self._work.wait()
                await clock.sleep(max(GATHER_SECONDS, next_one - clock.monotonic()))
            if self._sessions or self._due:
                await self._send(db)
                next_one = clock.monotonic() + APART_SECONDS
            if clock.monotonic() >= next_echo:
                await self._check(db)
                next_echo = clock.monotonic() + ECHO_EVERY
        raise ConnectionResetError("the connection that listens was closed")

    async def _send(self, db: Connection) -> None:
        sessions, due = list(self._sessions), self._due
        self._sessions, self._due = {}, False
        self._work.clear()
        for payload in payloads(sessions, due=due):
            await db.read("notify", self._channel, payload)
        self._told.set()

    async def _check(self, db: Connection) -> None:
        """An echo through this session, within a bound. Behind a pooler it proves little: any answer does."""
        with anyio.fail_after(ECHO_SECONDS):
            if db.identity.pooled:
                await db.read("notify", self._channel, "echo")
                return
            if not await self._echo(partial(db.read, "notify", self._channel)):
                raise ConnectionResetError("the connection that listens hears nothing any more")
            self.works = True

    async def _notify_elsewhere(self, payload: str) -> object:
        return await self._elsewhere.do(reading("notify", self._channel, payload))

    async def _echo(self, notify: Callable[[str], Awaitable[object]]) -> bool:
        """Whether a notification arrives here."""
        name = uuid.uuid4().hex
        echo = self._echoes[name] = asyncio.Event()
        try:
            with anyio.move_on_after(ECHO_SECONDS * 0.8):
                await notify(f"echo {name}")
                await echo.wait()
            return echo.is_set()
        finally:
            del self._echoes[name]

    def _heard(self, payload: str) -> None:
        kind, _, rest = payload.partition(" ")
        if kind != "echo":
            heard(self._news, payload)
        elif rest in self._echoes:
            self._echoes[rest].set()
