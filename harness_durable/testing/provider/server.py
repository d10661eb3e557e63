"""The provider itself: a small HTTP server that asks a policy what the model says.

It may run inside a test's event loop or as its own process (``python -m
harness_durable.testing.provider``). The surprise: it keeps no conversation. A policy gets the request
and nothing else, so a provider behaves the same before and after any crash around it.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Self
from uuid import uuid4

import anyio
from anyio.abc import TaskGroup

from harness_durable.testing.provider import deliver, encode, wires
from harness_durable.testing.provider.exchange import Exchange
from harness_durable.testing.provider.ledger import Ledger
from harness_durable.testing.provider.link import Incoming, Link
from harness_durable.testing.provider.messages import Request
from harness_durable.testing.provider.mood import Mood
from harness_durable.testing.provider.plan import Policy
from harness_durable.testing.provider.reply import HttpError


class ScriptedProvider:
    """``async with ScriptedProvider(policy) as p:`` serves at ``p.url`` until the block ends.

    ``ledger``: file to append to (None: memory only; either way ``p.ledger.tally()``). ``mood``: how
    replies without a style of their own are treated. ``check``: refuse conversations that the real
    API refuses. ``accepts_key``: the ``fingerprint`` of the only key that gets an answer.
    ``p.requests`` holds the last 200 requests. Ready to serve once entered; raises OSError if the
    port is taken.
    """

    ledger: Ledger

    def __init__(
        self,
        policy: Policy,
        *,
        ledger: Path | str | None = None,
        mood: Mood | None = None,
        check: bool = True,
        accepts_key: str = "",
        host: str = "127.0.0.1",
        port: int = 0,
    ) -> None:
        self._policy, self._mood, self._check = policy, mood or Mood(), check
        self._accepts_key, self._host, self.port = accepts_key, host, port
        self._ledger_path = None if ledger is None else Path(ledger)
        self.requests: deque[Request] = deque(maxlen=200)
        self._tasks: TaskGroup | None = None

    @property
    def url(self) -> str:
        """The base URL, without ``/v1``."""
        return f"http://{self._host}:{self.port}"

    async def __aenter__(self) -> Self:
        self.ledger = Ledger(self._ledger_path)
        self._exchange = Exchange(
            policy=self._policy,
            mood=self._mood,
            ledger=self.ledger,
            check=self._check,
            accepts_key=self._accepts_key,
            seen=self.requests,
        )
        try:
            self._server = await asyncio.start_server(self._accept, self._host, self.port)
        except BaseException:
            self.ledger.close()
            raise
        self.port = self._server.sockets[0].getsockname()[1]
        self._stop, ready = anyio.Event(), anyio.Event()
        # A task of its own, because fixtures enter and leave in different tasks, which a task
        # group does not survive; it owns all connections and is awaited on leaving.
        self._owner = asyncio.create_task(self._own_connections(ready))
        await ready.wait()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._server.close()
        self._stop.set()
        try:
            await self._owner
        finally:
            await self._server.wait_closed()
            self.ledger.close()

    async def _own_connections(self, ready: anyio.Event) -> None:
        async with anyio.create_task_group() as self._tasks:
            ready.set()
            await self._stop.wait()
            self._tasks.cancel_scope.cancel()

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self._tasks is None or self._stop.is_set():
            writer.transport.abort()
            return
        self._tasks.start_soon(self._serve, Link(reader, writer))

    async def _serve(self, link: Link) -> None:
        try:
            while (incoming := await link.next_request()) is not None:
                if not await self._answer(link, incoming):
                    return
        except OSError:
            return  # hung up during a short answer: nothing was promised
        finally:
            await link.close()

    async def _answer(self, link: Link, incoming: Incoming) -> bool:
        """Answer one request; False when the connection is of no more use."""
        headers = {"request-id": f"req_{uuid4().hex[:24]}"}
        wire = wires.at(incoming.path)
        if incoming.method == "HEAD":
            await link.respond(200, headers, b"")
        elif incoming.path in _FREE:
            method, told = _FREE[incoming.path]
            if incoming.method != method:
                await self._refuse(link, HttpError(405, "invalid_request_error", f"use {method}"), headers)
            else:
                body = encode.to_json(told(incoming.body)).encode()
                await link.respond(200, deliver.JSON | headers, body)
        elif wire is None:
            await self._refuse(link, HttpError(404, message=f"no {incoming.path} here"), headers)
        elif incoming.method != "POST":
            only_post = HttpError(405, "invalid_request_error", "use POST")
            await deliver.error(link, wire, only_post, headers)
        else:
            return await self._exchange.answer(link, wire, incoming, headers)
        return True

    async def _refuse(self, link: Link, fault: HttpError, headers: dict[str, str]) -> None:
        """An error where no wire is asked; nobody reads its form."""
        await deliver.error(link, wires.named("anthropic"), fault, headers)


def _token_count(body: bytes) -> encode.Event:
    return {"input_tokens": len(body) // 4}


def _models(_: bytes) -> encode.Event:
    """One model, with the members that each API gives it."""
    model: encode.Event = {"id": "scripted", "type": "model", "object": "model", "owned_by": "scripted"}
    times: encode.Event = {"created": 0, "created_at": "1970-01-01T00:00:00Z", "display_name": "Scripted"}
    return {"object": "list", "data": [{**model, **times}], "has_more": False}


_FREE: dict[str, tuple[str, Callable[[bytes], encode.Event]]] = {
    "/v1/messages/count_tokens": ("POST", _token_count),
    "/v1/models": ("GET", _models),
}
