"""One model call from its arrival to its last line in the ledger.

Every request that is noted as requested gets exactly one end, also when the client hangs up or the
provider is closed in the middle.
"""

from __future__ import annotations

import contextlib
from collections import deque

import anyio
from msgspec import Struct, ValidationError

from harness_durable import clock
from harness_durable.errors import BadInput
from harness_durable.testing.provider import check, deliver, plan
from harness_durable.testing.provider.key import match_key
from harness_durable.testing.provider.ledger import Kind, Ledger, fingerprint
from harness_durable.testing.provider.link import Incoming, Link
from harness_durable.testing.provider.messages import Request
from harness_durable.testing.provider.mood import Mood
from harness_durable.testing.provider.plan import Plan, Policy
from harness_durable.testing.provider.reply import HttpError
from harness_durable.testing.provider.wires import Wire

_NOTED = (
    "anthropic-beta",
    "anthropic-version",
    "originator",
    "session-id",
    "user-agent",
    "x-claude-code-session-id",
    "x-parent-session-id",
    "x-session-id",
)


class Exchange(Struct):
    """What answering needs; one for the life of a provider."""

    policy: Policy
    mood: Mood
    ledger: Ledger
    check: bool
    accepts_key: str
    seen: deque[Request]

    async def answer(self, link: Link, wire: Wire, incoming: Incoming, headers: dict[str, str]) -> bool:
        """Answer a model call of this wire; False when the connection is of no more use."""
        try:
            request = wire.parse(incoming.body)
            key = match_key(request)
        except (BadInput, ValidationError) as error:
            await deliver.error(link, wire, HttpError(400, message=str(error)), headers)
            return True
        self.seen.append(request)
        n, before = self.ledger.requested(key, **_facts(request, incoming))
        planned = self._planned(wire, request, incoming, key, before)
        if isinstance(planned, HttpError):
            self.ledger.ended(n, key, "refused", note=planned.message)
            await deliver.error(link, wire, planned, headers)
            return True
        end = _End(self.ledger, n, key, planned.message_id)
        try:
            ending = await _watched(link, planned, headers, end)
        except anyio.get_cancelled_exc_class():
            end.note("abandoned")
            raise
        if ending is None:
            end.note("delivered" if link.all_out and not planned.faults else "client_gone")
        return ending is not None and not link.closing

    def _planned(
        self, wire: Wire, request: Request, incoming: Incoming, key: str, before: int
    ) -> Plan | HttpError:
        if self.accepts_key and fingerprint(_secret(incoming)) != self.accepts_key:
            return HttpError(401, message="this is not the key that I accept")
        if self.check and (said := check.complaint(request) or wire.complaint(request)):
            return HttpError(400, message=said)
        size, gzip = len(incoming.body), "gzip" in incoming.headers.get("accept-encoding", "")
        return plan.make(wire, self.policy, self.mood, request, key, before, size=size, gzip=gzip)


class _End(Struct):
    """The one end of a request: the first note counts."""

    ledger: Ledger
    n: int
    key: str
    message_id: str
    noted: bool = False

    def note(self, kind: Kind, note: str = "") -> None:
        if not self.noted:
            self.noted = True
            self.ledger.ended(self.n, self.key, kind, message_id=self.message_id, note=note)


async def _watched(link: Link, planned: Plan, headers: dict[str, str], end: _End) -> deliver.Ending | None:
    """Deliver while watching the client, and note the end; None, and no note, if it hung up first."""
    ending: deliver.Ending | None = None
    async with anyio.create_task_group() as tasks:

        async def watch() -> None:
            await link.gone()
            tasks.cancel_scope.cancel()

        tasks.start_soon(watch)
        # A client that hangs up between two writes is the same as one that the watch saw leaving.
        with contextlib.suppress(OSError):
            ending = await _deliver(link, planned, headers)
            # Before anything else can run: a client that has the last byte may look at once.
            end.note(ending.kind, ending.note)
        tasks.cancel_scope.cancel()
    return ending


async def _deliver(link: Link, planned: Plan, headers: dict[str, str]) -> deliver.Ending:
    if planned.style.start_delay:
        await clock.sleep(planned.style.start_delay)
    for fault in planned.faults:
        if isinstance(fault, HttpError):
            return await deliver.error(link, planned.wire, fault, headers)
    if planned.style.gzip:
        headers = headers | {"content-encoding": "gzip"}
    if isinstance(planned.content, bytes):
        return await deliver.whole(link, planned, planned.content, headers)
    return await deliver.stream(link, planned, planned.content, headers)


def _facts(request: Request, incoming: Incoming) -> dict[str, object]:
    return {
        "model": request.model,
        "messages": len(request.messages),
        "stream": request.stream,
        "path": incoming.target,
        "api_key": fingerprint(_secret(incoming)),
        "headers": {name: incoming.headers[name] for name in _NOTED if name in incoming.headers},
    }


def _secret(incoming: Incoming) -> str:
    bearer = incoming.headers.get("authorization", "").removeprefix("Bearer ")
    return incoming.headers.get("x-api-key", bearer)
