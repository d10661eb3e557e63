"""Progress of a session: what is arriving just now. It is replaced, never kept, and may be lost."""

from __future__ import annotations

import contextlib

import anyio
import msgspec

from harness_durable.errors import StorageUnavailable
from harness_durable.gateway import Progress
from harness_durable.payload import clean
from harness_durable.world import World


class Shown(msgspec.Struct, frozen=True):
    """What is stored: of a model call the end of its text, of a tool call what the tool said last. Without a
    call: what the harness waits for."""

    call: str
    text: str


class ProgressWriter:
    """Takes reports at any time and stores the latest; one task of the driver."""

    def __init__(self, world: World, session: str) -> None:
        self._world, self._session = world, session
        self._latest = self._stored = Shown("", "")
        self._news = anyio.Event()

    def model(self, progress: Progress) -> None:
        """Called by the gateway."""
        self._show(Shown(progress.call, "" if progress.done else progress.text))

    def tool(self, call: str, text: str) -> None:
        """Called by the tool host."""
        self._show(Shown(call, clean(text)))

    def harness(self, text: str) -> None:
        """Called by the adapter."""
        self._show(Shown("", clean(text)))

    def _show(self, shown: Shown) -> None:
        if not shown.text and not self._latest.text:
            return  # nothing is to be seen, as before
        self._latest = shown
        self._news.set()

    async def run(self) -> None:
        while True:
            await self._news.wait()
            self._news = anyio.Event()
            await self._store()

    async def over(self) -> None:
        """The life is over: nothing of it is arriving any more, nor waited for."""
        self._latest = Shown("", "")
        if self._stored.text:
            await self._store()

    async def _store(self) -> None:
        self._stored = self._latest
        # Nobody may wait for progress; the next report tries again.
        with contextlib.suppress(StorageUnavailable):
            await self._world.put_progress(self._session, msgspec.json.encode(self._latest))


def shown(data: bytes | None) -> Shown:
    """What a World's ``progress`` says; empty if there is none."""
    if not data:
        return Shown("", "")
    try:
        return msgspec.json.decode(data, type=Shown)
    except msgspec.MsgspecError:
        return Shown("", "")
