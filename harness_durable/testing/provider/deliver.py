"""Putting a reply on a connection, with its style and its faults.

Each function returns how it ended; a client that hangs up shows as OSError or as a cancellation, and
is judged by the caller.
"""

from __future__ import annotations

import random
import zlib
from collections.abc import Sequence
from typing import Literal

import h11
from msgspec import Struct

from harness_durable import clock
from harness_durable.testing.provider.encode import to_json
from harness_durable.testing.provider.link import Link
from harness_durable.testing.provider.plan import Plan
from harness_durable.testing.provider.reply import Cut, Fault, Hang, HttpError, StreamError, Style
from harness_durable.testing.provider.wires import Wire

SSE = {"content-type": "text/event-stream; charset=utf-8", "cache-control": "no-cache"}
JSON = {"content-type": "application/json"}
_STATUSES = {
    "invalid_request_error": 400,
    "authentication_error": 401,
    "permission_error": 403,
    "not_found_error": 404,
    "request_too_large": 413,
    "rate_limit_error": 429,
    "overloaded_error": 529,
}


class Ending(Struct, frozen=True):
    """``delivered``: the last byte was handed over. ``faulted``: we ended it; ``note`` says how."""

    kind: Literal["delivered", "faulted"]
    note: str = ""


async def error(link: Link, wire: Wire, fault: HttpError, headers: dict[str, str]) -> Ending:
    """An error status with the API's body."""
    body = to_json(wire.error(fault.status, fault.kind, fault.message)).encode()
    await link.respond(fault.status, JSON | headers | fault.headers, body)
    return Ending("faulted", f"status {fault.status}")


async def stream(link: Link, plan: Plan, frames: Sequence[bytes], headers: dict[str, str]) -> Ending:
    """The frames as server-sent events. ``headers`` may ask for gzip; the body follows them."""
    await link.start(200, SSE | headers)
    body = _Body(link, plan.style, zipped="content-encoding" in headers)
    for place, frame in enumerate(frames):
        for fault in _due(plan.faults, place, len(frames)):
            await body.flush()
            if isinstance(fault, Hang):
                await clock.sleep(fault.seconds)
            else:
                return await _break(link, body, plan, frame, fault)
        await body.write(frame)
        if plan.style.event_delay:
            await body.flush()
            await clock.sleep(plan.style.event_delay)
    await body.end()
    return Ending("delivered")


async def whole(link: Link, plan: Plan, body: bytes, headers: dict[str, str]) -> Ending:
    """The body as one JSON response; a cut leaves half of it, a stream error is a status.

    ``end`` cannot be told from ``close`` here: with a length given, both are an early end.
    """
    for fault in plan.faults:
        if isinstance(fault, Hang):
            await clock.sleep(fault.seconds)
            continue
        if isinstance(fault, StreamError):
            status = _STATUSES.get(fault.kind, 500)
            return await error(link, plan.wire, HttpError(status, fault.kind, fault.message), headers)
        if isinstance(fault, Cut):
            await link.start(200, JSON | headers | {"content-length": str(len(body))})
            await link.send(h11.Data(data=body[: len(body) // 2]))
            await link.cut(reset=fault.how == "reset")
            return Ending("faulted", "cut in the middle of the JSON")
    if "content-encoding" in headers:
        body = zlib.compress(body, wbits=31)
    await link.respond(200, JSON | headers, body)
    return Ending("delivered")


def _due(faults: Sequence[Fault], place: int, count: int) -> list[Cut | Hang | StreamError]:
    return [
        fault for fault in faults if not isinstance(fault, HttpError) and min(fault.event, count - 1) == place
    ]


async def _break(link: Link, body: _Body, plan: Plan, frame: bytes, fault: Cut | StreamError) -> Ending:
    if isinstance(fault, StreamError):
        await body.write(plan.wire.broken(fault, plan.message_id))
        await body.end()
        return Ending("faulted", f"error event {fault.kind}")
    await body.write(frame[: fault.after_bytes])
    await body.flush()
    if fault.how == "end":
        await body.end()
    else:
        await link.cut(reset=fault.how == "reset")
    return Ending("faulted", f"cut at event {fault.event} ({fault.how})")


class _Body:
    """Cuts bytes into HTTP chunks of the style's sizes, across the borders of events."""

    def __init__(self, link: Link, style: Style, *, zipped: bool) -> None:
        self._link, self._longest = link, style.split_bytes
        self._dice = random.Random(f"bytes {style.seed}")
        self._zip = zlib.compressobj(wbits=31) if zipped else None
        self._waiting = b""

    async def write(self, data: bytes) -> None:
        self._waiting += self._packed(data)
        if not self._longest:
            await self.flush()
        while len(self._waiting) > self._longest > 0:
            await self._send(self._dice.randint(1, self._longest))

    async def flush(self) -> None:
        while left := len(self._waiting):
            size = self._dice.randint(1, self._longest) if self._longest else left
            await self._send(min(left, size))

    async def end(self) -> None:
        if self._zip is not None:
            self._waiting += self._zip.flush()
        await self.flush()
        await self._link.send(h11.EndOfMessage())

    def _packed(self, data: bytes) -> bytes:
        if self._zip is None:
            return data
        return self._zip.compress(data) + self._zip.flush(zlib.Z_SYNC_FLUSH)

    async def _send(self, size: int) -> None:
        chunk, self._waiting = self._waiting[:size], self._waiting[size:]
        await self._link.send(h11.Data(data=chunk))
        if self._longest:
            # Let the other side read before the next bytes come, so that the cut is seen as one.
            await clock.sleep(0)
