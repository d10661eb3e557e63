"""What happens, as it happens: server-sent events, each with the number of the last event that it tells.

A page that lost the connection says which number it saw last (``Last-Event-ID``) and gets what came after it.
Text that is arriving is sent as ``progress``; it has no number, since it is no part of the log."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable

import msgspec

from harness_durable import clock
from harness_durable.errors import HarnessDurableError
from harness_durable.runtime.progress import shown
from harness_durable.view.sheet import Sheet

LOOK = 0.15
"""Seconds between two looks at the progress."""

ALIVE = 15.0
"""Seconds after which something is said, so that nobody in between thinks that the connection is dead."""

MOST = 2000
"""Events of one message."""

_SHOWN = 4000
"""Characters of the text that is arriving: its end."""


async def stream(
    sheet: Sheet, after: int, *, over: Callable[[], bool] = lambda: False
) -> AsyncIterator[bytes]:
    """Ends when the page is gone, when it is ``over``, or with ``trouble`` when the store is gone; the page
    then connects anew."""
    session, world = sheet.reader.session, sheet.reader.world
    last, quiet_since = "", clock.monotonic()
    yield b"retry: 1000\n: hello\n\n"
    while not over():
        try:
            head = await world.wait(session, after, LOOK)
            if head > after:
                await sheet.refresh()
            text = shown(await world.progress(session)).text[-_SHOWN:]
        except HarnessDurableError as error:
            yield _event("trouble", {"error": str(error)})
            return
        while after < sheet.head:
            upto = min(sheet.head, after + MOST)
            yield _event("rows", {"rows": sheet.between(after, upto), "upto": upto, "head": sheet.head}, upto)
            after, quiet_since = upto, clock.monotonic()
        if text != last:
            last, quiet_since = text, clock.monotonic()
            yield _event("progress", {"text": text})
        if clock.monotonic() - quiet_since > ALIVE:
            quiet_since = clock.monotonic()
            yield b": still here\n\n"


def _event(kind: str, content: object, number: int = 0) -> bytes:
    head = b"id: %d\n" % number if number else b""
    return head + b"event: %s\ndata: %s\n\n" % (kind.encode(), msgspec.json.encode(content))
