"""The gateway: takes the harness's requests from its keeper, and answers each from the log or the provider.

**Store, then forward.** The harness gets no byte of a response before all of it is durable, with the tool
calls that it asks for. So a worker may die at any point and the harness cannot tell, nothing recorded is paid
twice, and no tool can start unrecorded. A gateway whose session was taken answers nothing more that could
have an effect: see ``_release``.
"""

from __future__ import annotations

import hmac
from collections.abc import AsyncIterator, Callable, Iterator

import anyio
from anyio.abc import TaskGroup

from harness_durable import _http
from harness_durable.crashpoints import reach
from harness_durable.errors import HarnessStuck, KeeperGone, ProviderError, SandboxError, StorageError
from harness_durable.gateway import upstream as provider
from harness_durable.gateway.asking import Asker, Classify, Reply
from harness_durable.gateway.connection import Connection, HungUp, Incoming, Malformed, Proxied
from harness_durable.gateway.progress import Progress
from harness_durable.gateway.replay import recorded
from harness_durable.gateway.routes import PREFIX, Routes
from harness_durable.gateway.upstream import Upstream
from harness_durable.gateway.way_out import WayOut
from harness_durable.gateway.wire import JSON, SSE, Wire
from harness_durable.journal import Journal
from harness_durable.sandbox import Request
from harness_durable.state import ModelCall

_JSON = ("content-type", JSON)


class _Flight:
    """A model call that somebody waits for. Kept until the last who waits has gone, so that a request that
    comes again meanwhile joins it."""

    def __init__(self, call: str) -> None:
        self.call = call
        self.reply: Reply | None = None
        self.settled = anyio.Event()
        self.waiting = 0
        self.delivered = False
        self.patience = anyio.CancelScope()

    def settle(self, reply: Reply) -> None:
        self.reply = reply
        self.settled.set()


class Gateway:
    """The model endpoint of one life, for one worker.

    ``token`` is what the harness must present: as its API key, or before the path (``/TOKEN/v1/…``), which is
    the only way if it has a login of its own. ``ready`` is set once the harness's barrier is in place.
    ``on_progress`` is called on the event loop; it must return at once and not raise. ``routes`` are the
    adapter's own. ``way_out`` is for a harness behind a wall that may reach other hosts as well.
    """

    def __init__(
        self,
        *,
        journal: Journal,
        wire: Wire,
        upstream: Upstream,
        life: str,
        token: str,
        ready: anyio.Event,
        classify: Classify,
        on_progress: Callable[[Progress], None] | None = None,
        routes: Routes | None = None,
        way_out: WayOut | None = None,
    ) -> None:
        self._routes, self._way_out = routes, way_out
        self._journal, self._wire, self._upstream = journal, wire, upstream
        self._life, self._token, self._ready = life, token, ready
        self._classify, self._on_progress = classify, on_progress
        self._flights: dict[tuple[str, str | None], _Flight] = {}
        self._spent: set[str] = set()

    async def drained(self) -> None:
        """Return when no model call is under way, while ``serve`` runs. For the driver, after the harness has
        died: what is paid for is then in the log before the next life asks again."""
        flights = list(self._flights.values())
        for flight in flights:
            flight.patience.cancel()  # a harness that is dead tells of no outcome any more
        for flight in flights:
            await flight.settled.wait()

    async def serve(self, requests: AsyncIterator[Request]) -> None:
        """Answer until ``requests`` ends, then until what is under way is recorded.

        Raises ``WriterFenced`` or ``StorageUnavailable`` as soon as the log cannot be written: all
        connections are closed without an answer, so that the keeper can give their requests to the next
        worker. Raises what ``requests`` raises; after ``KeeperGone`` only when all that is paid is recorded.
        Raises ``HarnessStuck`` for a life that nobody can go on with, when all that is paid is recorded.
        """
        gone: KeeperGone | None = None
        try:
            async with _http.client() as client, anyio.create_task_group() as tasks:
                asker = Asker(
                    self._journal,
                    self._wire,
                    self._upstream,
                    self._life,
                    self._classify,
                    self._on_progress,
                    client,
                )
                try:
                    async for request in requests:
                        tasks.start_soon(self._serve_one, request, asker, tasks)
                except KeeperGone as error:
                    gone = error
        except BaseExceptionGroup as group:
            raise _cause(group) from group
        if gone is not None:
            raise gone

    async def _serve_one(self, request: Request, asker: Asker, tasks: TaskGroup) -> None:
        try:
            await self._exchange(Connection(request.stream), request.id, asker, tasks)
            await request.done()
        except (HungUp, SandboxError, anyio.ClosedResourceError):
            # The harness or its keeper went away after all that had to be recorded was; if it is the
            # keeper, the iterator of requests says so, too.
            return
        finally:
            await anyio.aclose_forcefully(request.stream)

    async def _exchange(self, connection: Connection, request: int, asker: Asker, tasks: TaskGroup) -> None:
        try:
            incoming = await connection.read()
        except Malformed as error:
            await self._error(connection, error.status, str(error))
            return
        except Proxied as proxied:
            await self._let_out(connection, proxied)
            return
        admitted = self._admit(incoming)
        if incoming.method in ("HEAD", "GET") and (admitted or incoming).path == "/":
            await connection.send(200, [_JSON], b"{}" if incoming.method == "GET" else b"")
        elif admitted is None:
            said = "this is not the token of this life; the harness must present the one that it was given"
            await self._error(connection, 401, said)
        elif self._routes is not None and admitted.path.startswith(PREFIX):
            await self._routed(connection, self._routes, admitted)
        elif self._wire.is_model_path(admitted.method, admitted.target):
            await self._model_call(connection, request, admitted, asker, tasks)
        elif self._wire.is_free(admitted.method, admitted.target):
            await self._pass_on(connection, admitted, asker)
        else:
            said = "harness-durable passes on model calls, token counts and the list of models; nothing else"
            await self._error(connection, 404, said)

    def _admit(self, incoming: Incoming) -> Incoming | None:
        """The request without our token; None if it has not got it."""
        first, slash, rest = incoming.target[1:].partition("/")
        prefix, question, query = first.partition("?")
        if self._is_token(prefix):
            target = f"/{rest}" if slash else f"/{question}{query}"
            return Incoming(incoming.method, target, incoming.headers, incoming.body)
        named = incoming.named
        scheme, _, bearer = named.get("authorization", "").partition(" ")
        presented = self._is_token(named.get("x-api-key", ""))
        presented = presented or (scheme.lower() == "bearer" and self._is_token(bearer))
        return incoming if presented and self._upstream.auth == "key" else None

    def _is_token(self, presented: str) -> bool:
        return hmac.compare_digest(presented.encode(), self._token.encode())

    # ------------------------------------------------------------------------------- model calls

    async def _model_call(
        self, connection: Connection, request: int, incoming: Incoming, asker: Asker, tasks: TaskGroup
    ) -> None:
        # No await between looking for a call in flight and being in the table: two equal requests that
        # arrive together must become one call.
        name = self._wire.match_key(incoming.body, incoming.target), self._wire.agent_of(incoming.named)
        flight = self._flights.get(name)
        if flight is None:
            flight = self._begin(name, incoming, asker, tasks)
        flight.waiting += 1
        try:
            reply = await self._awaited(flight, connection)
            denied = await self._release(flight.call, request) if reply.recorded else ""
            reach("model.forwarding")
            if denied:
                await self._error(connection, 403, denied)
                return
            await self._forward(connection, reply, stream=self._wire.wants_stream(incoming.body))
            flight.delivered = True
        finally:
            flight.waiting -= 1
            self._clear(name, flight)

    def _begin(
        self, name: tuple[str, str | None], incoming: Incoming, asker: Asker, tasks: TaskGroup
    ) -> _Flight:
        """Put a call into flight. It belongs to the gateway: it goes on when the harness hangs up."""
        given = self._spent | {flight.call for flight in self._flights.values()}
        record = recorded(self._journal.state, name[0], self._life, given)
        flight = _Flight(record.id if record is not None else "")
        self._flights[name] = flight

        key, agent = name

        def began(call: str) -> None:
            flight.call = call
            if self._on_progress is not None:  # whatever the harness waited for is over
                self._on_progress(Progress(call, agent, "", 0))

        async def fly() -> None:
            if record is not None:
                began(record.id)
                flight.settle(await self._replayed(record))
            else:
                asked = asker.ask(incoming, key=key, agent=agent, began=began, patience=flight.patience)
                flight.settle(await asked)
            self._clear(name, flight)

        tasks.start_soon(fly)
        return flight

    async def _replayed(self, record: ModelCall) -> Reply:
        await self._journal.model_replayed(record.id, self._life)
        body = await self._journal.reader.content(record.body) if record.body is not None else b""
        return Reply(record.http_status or 200, record.content_type, body, recorded=True)

    async def _awaited(self, flight: _Flight, connection: Connection) -> Reply:
        """The reply, once the harness may have it. Raises ``HungUp`` if the harness does not wait."""
        hung_up = True
        async with anyio.create_task_group() as waiting:

            async def watch() -> None:
                await connection.until_hung_up()
                waiting.cancel_scope.cancel()

            waiting.start_soon(watch)
            await flight.settled.wait()
            await self._ready.wait()
            hung_up = False
            waiting.cancel_scope.cancel()
        if hung_up or flight.reply is None:
            raise HungUp
        return flight.reply

    async def _release(self, call: str, request: int) -> str:
        """Let the calls of a response go that the harness will run without asking. Empty if it may have the
        response, else why not.

        A worker that was stopped, superseded and woken up meanwhile is refused here by the log. A response
        without such calls needs no fence: its words change nothing, and each of its calls is still to pass
        the exact barrier, which is an append of ours."""
        state = self._journal.state
        names = {tool: state.tool_calls[tool].name for tool in state.model_calls[call].tool_calls}
        unasked = [tool for tool, name in names.items() if not self._classify(name).exact]
        if not unasked:
            return ""
        verdict = await self._journal.tools_released(unasked, self._life, request)
        if verdict.action == "deny" and verdict.already:
            await self.drained()
            raise HarnessStuck(
                "the harness asked again for a response whose calls it may be running; its life is given up, "
                "and the turn goes on from the log"
            )
        return verdict.text

    async def _forward(self, connection: Connection, reply: Reply, *, stream: bool) -> None:
        body, content_type = reply.body, reply.content_type
        if reply.recorded and stream != reply.streamed:
            body = self._wire.to_sse(body) if stream else self._wire.to_json(body)
            content_type = SSE if stream else JSON
        await connection.send(reply.status, [("content-type", content_type), *reply.headers], body)

    def _clear(self, name: tuple[str, str | None], flight: _Flight) -> None:
        """Forget a call that nobody waits for. If nobody got its response, it stays there for replay."""
        if flight.reply is None or flight.waiting or self._flights.get(name) is not flight:
            return
        del self._flights[name]
        if flight.delivered and flight.reply.recorded:
            self._spent.add(flight.call)

    # -------------------------------------------------------------------------------- all others

    async def _pass_on(self, connection: Connection, incoming: Incoming, asker: Asker) -> None:
        """What costs nothing and changes nothing goes upstream, and is not recorded."""
        try:
            async with asker.send(asker.shown(incoming)) as answer:
                body = self._upstream.scrub(await provider.collect(answer))
        except ProviderError as error:
            await self._error(connection, 502, str(error))
            return
        await connection.send(answer.status, answer.headers, body)

    async def _let_out(self, connection: Connection, proxied: Proxied) -> None:
        if self._way_out is None:
            said = "the request's target must be a path that begins with /: there is no proxy here"
            await self._error(connection, 400, said)
        else:
            await self._way_out.serve(connection.stream, proxied)

    async def _routed(self, connection: Connection, routes: Routes, incoming: Incoming) -> None:
        answer = await routes.answer(incoming.path, incoming.body)
        if answer is None:
            await self._error(
                connection, 404, f"no route {incoming.path}; the harness's adapter opened others"
            )
        else:
            await connection.send(200, [_JSON], answer)

    async def _error(self, connection: Connection, status: int, message: str) -> None:
        await connection.send(status, [_JSON], self._wire.error(status, message))


def _cause(group: BaseExceptionGroup[BaseException]) -> BaseException:
    """The one error that the others follow from: the log's, if it is among them."""
    leaves = list(_leaves(group))
    return next((error for error in leaves if isinstance(error, StorageError)), leaves[0])


def _leaves(group: BaseExceptionGroup[BaseException]) -> Iterator[BaseException]:
    for error in group.exceptions:
        if isinstance(error, BaseExceptionGroup):
            yield from _leaves(error)  # pyright: ignore[reportUnknownArgumentType]  (isinstance erases it)
        else:
            yield error
