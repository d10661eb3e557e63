"""Who waits for a session's head or for a session that is due, and how they learn of it.

Appends of this process are told at once. Those of others come by notification, and by asking for the heads of
all sessions that are followed, in one statement; only while somebody waits.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Sequence
from typing import cast

from harness_durable import clock
from harness_durable.errors import HarnessDurableError
from harness_durable_worlds._news import News
from harness_durable_worlds._postgres_db import Connection, Row, Value, reading

HINTED_SECONDS = 1.0
"""Between two looks while notifications work; they only find what a notification missed."""
BLIND_SECONDS = 0.15
"""Between two looks while they do not: others' appends are seen that late."""


class PostgresNews(News):
    """``interest`` is set while somebody follows a session."""

    def __init__(self) -> None:
        super().__init__()
        self.interest = asyncio.Event()

    def wanted(self) -> None:
        self.interest.set()

    def unwanted(self) -> None:
        self.interest.clear()

    def everything(self) -> None:
        """Anything may have happened: all who wait look for themselves."""
        for session in list(self._heads):
            self.appended(session)
        self.became_due()


Read = Callable[[Callable[[Connection], Awaitable[list[Row]]]], Awaitable[list[Row]]]


async def poll(news: PostgresNews, app: str, read: Read, hinted: Callable[[], bool]) -> None:
    """Look for others' appends, for ever. Trouble is left to those who wait: they look for themselves."""
    known: dict[str, Value] = {}
    while True:
        await news.interest.wait()
        pause = HINTED_SECONDS if hinted() else BLIND_SECONDS
        await clock.sleep(pause * random.uniform(0.8, 1.2))
        followed = list(news.sessions)
        try:
            rows = await read(reading("heads", app, followed))
        except HarnessDurableError:
            news.everything()
            continue
        heads = {cast(str, row[0]): row[1] for row in rows}
        for session in followed:
            if heads.get(session) != known.get(session):
                news.appended(session)
        known = heads


PAYLOAD_BYTES = 7000
"""Below the 8,000 of Postgres."""


def payloads(sessions: Sequence[str], *, due: bool) -> list[str]:
    """Notifications for these sessions, as few as possible. Ids hold no spaces."""
    lines, line = list[str](), "due" if due else "log"
    for session in sessions:
        if len(line) + len(session) + 1 > PAYLOAD_BYTES:
            lines.append(line)
            line = "log"
        line += f" {session}"
    return [*lines, line]


def heard(news: PostgresNews, payload: str) -> None:
    """Tell those whom a notification concerns."""
    kind, *sessions = payload.split(" ")
    for session in sessions:
        news.appended(session)
    if kind == "due":
        news.became_due()
