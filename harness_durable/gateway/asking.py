"""One model call, from the intent in the log to the response in the log. Nothing here talks to the harness.

A call is asked once. Whatever goes wrong is the harness's to try again: two layers that repeat would
multiply. The one exception is a request that was refused because of its media, which is asked once more
without them, as a model call of its own."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import anyio
import msgspec

from harness_durable import _http
from harness_durable.crashpoints import reach
from harness_durable.errors import ProviderError
from harness_durable.events import ReplayPolicy, ToolOrigin
from harness_durable.gateway import upstream as provider
from harness_durable.gateway import withholding
from harness_durable.gateway.connection import Incoming
from harness_durable.gateway.progress import Progress, Reporter
from harness_durable.gateway.refusals import message, refusal, told_to_wait
from harness_durable.gateway.upstream import Answer, Headers, Upstream
from harness_durable.gateway.wire import JSON, Fault, Parsed, ToolUse, Wire
from harness_durable.journal import Journal
from harness_durable.journal.calls import Asked, Response
from harness_durable.payload import Packing, clean
from harness_durable.state import Session


class Kind(msgspec.Struct, frozen=True):
    """What the gateway must know of a tool. ``exact``: the harness asks us before it runs one of its calls;
    all others may run from the moment on in which it has their response."""

    policy: ReplayPolicy
    origin: ToolOrigin
    exact: bool


Classify = Callable[[str], Kind]
"""By the name that the model uses."""

_OUTCOME_SECONDS = 10.0
"""How long a request waits for outcomes that it shows already, before it goes on without them."""
_ERROR = 64 << 10
"""Bytes of an error that are looked at."""
_REASON = 500
"""Characters of a provider's words that the log keeps."""


class Reply(msgspec.Struct, frozen=True):
    """What the harness gets. ``recorded``: it is a complete response and stands in the log."""

    status: int
    content_type: str
    body: bytes
    headers: Headers = ()
    recorded: bool = False

    @property
    def streamed(self) -> bool:
        return is_stream(self.content_type)


class _AskAgain(Exception):
    """Media were withheld: the request that goes upstream is another one now."""


class _Attempt(msgspec.Struct, frozen=True):
    """One model call. ``sent`` is what goes upstream; ``last``: it is not asked again without its media."""

    call: str
    sent: Incoming
    agent: str | None
    reporter: Reporter
    last: bool


def is_stream(content_type: str) -> bool:
    return content_type.partition(";")[0].strip().lower() == "text/event-stream"


@dataclass
class Asker:
    """Asks for one life."""

    journal: Journal
    wire: Wire
    upstream: Upstream
    life: str
    classify: Classify
    on_progress: Callable[[Progress], None] | None
    client: _http.AsyncClient
    _tool_ids: set[str] = field(default_factory=set[str])
    _in_vain: set[str] = field(default_factory=set[str])
    """Calls whose outcome a request has waited for, and that did not come: the next ones do not wait."""

    async def ask(
        self,
        incoming: Incoming,
        *,
        key: str,
        agent: str | None,
        began: Callable[[str], None],
        patience: anyio.CancelScope,
    ) -> Reply:
        """The whole of it; ``began`` hears the call's id once the intent is durable, and that of the second
        call if there is one. ``patience`` is cancelled when no outcome comes any more.

        Raises only what the journal raises: then nothing may go to the harness."""
        await self._outcomes_first(incoming.body, agent, patience)
        try:
            return await self._once(incoming, key, agent, began, last=False)
        except _AskAgain:
            return await self._once(incoming, key, agent, began, last=True)

    async def _outcomes_first(self, body: bytes, agent: str | None, patience: anyio.CancelScope) -> None:
        """What a harness shows its model of a call has to be in the log. One that tells us of outcomes by
        another way may be read there a moment later: a death in between would make the call unknown."""

        def untold(state: Session) -> list[str]:
            calls = state.calls(state.turn) if state.turn is not None else []
            running = (call for call in calls if call.open and call.agent == agent and call.released_in)
            return [call.id for call in running if call.id not in self._in_vain and call.id.encode() in body]

        patience.deadline = anyio.current_time() + _OUTCOME_SECONDS
        with patience:
            await self.journal.until(lambda state: not untold(state))
        if patience.cancelled_caught:
            self._in_vain.update(untold(self.journal.state))

    def shown(self, incoming: Incoming) -> Incoming:
        """The request as the provider may see it. One that is packed stays as it is."""
        if "content-encoding" in incoming.named:
            return incoming
        body = self.wire.in_session(self.wire.prepare(incoming.body), self.journal.state.native_id)
        notes = withholding.notes(self.journal.state)
        return msgspec.structs.replace(incoming, body=self.wire.withhold(body, notes) if notes else body)

    def send(self, incoming: Incoming) -> provider.Asking:
        """The request to the provider, as it is."""
        key = self.upstream.key
        return provider.ask(
            self.client,
            self.upstream,
            self.wire.credentials(key) if key is not None else {},
            method=incoming.method,
            target=incoming.target,
            headers=incoming.headers,
            body=incoming.body,
        )

    async def _once(
        self, incoming: Incoming, key: str, agent: str | None, began: Callable[[str], None], *, last: bool
    ) -> Reply:
        sent = self.shown(incoming)
        call = await self.journal.model_requested(
            key=key,
            life=self.life,
            wire=self.wire.name,
            model=self.wire.model_of(sent.body),
            path=sent.target,
            body=sent.body,
            field=self.wire.list_field,
            agent=agent,
        )
        began(call)
        reporter = Reporter(call, agent, self.on_progress)
        try:
            return await self._answered(_Attempt(call, sent, agent, reporter, last))
        finally:
            reporter.end()

    async def _answered(self, attempt: _Attempt) -> Reply:
        call = attempt.call
        try:
            async with self.send(attempt.sent) as answer:
                if not 200 <= answer.status < 300:
                    return await self._refused(attempt, answer)
                packing = Packing()
                parsed = await self._received(answer, attempt.reporter, packing)
        except ProviderError as error:
            return await self._failed(call, None, Fault(502, str(error)))
        if parsed.fault is not None:
            if not parsed.id:  # nothing of a message had come
                said = self.upstream.scrub_text(clean(parsed.fault.message))
                await self._withhold(attempt, parsed.fault.status, said)
            cut = parsed.fault.status == 502
            return await self._failed(call, None if cut else parsed.fault.status, parsed.fault)
        return await self._completed(call, answer, parsed, packing)

    async def _received(self, answer: Answer, reporter: Reporter, packing: Packing) -> Parsed:
        """The whole body, parsed and packed while it arrives."""
        collector = self.wire.collector() if is_stream(answer.content_type) else None
        chunks: list[bytes] = []
        first = True
        async for chunk in answer.chunks:
            packing.add(chunk)
            if collector is not None:
                collector.feed(chunk)
                reporter.add(collector.text_delta())
            else:
                chunks.append(chunk)
            if first:
                reach("model.streaming")
                first = False
        reach("model.upstream_done")
        return collector.finish() if collector is not None else self.wire.parse_json(b"".join(chunks))

    async def _completed(self, call: str, answer: Answer, parsed: Parsed, packing: Packing) -> Reply:
        ids, packed = self._unique([tool.id for tool in parsed.tools]), None
        if ids != [tool.id for tool in parsed.tools]:
            parsed = self.wire.with_tool_ids(parsed, ids, streamed=is_stream(answer.content_type))
        else:
            packed = packing.packed(parsed.body)
        response = Response(
            answer.status,
            answer.content_type,
            parsed.body,
            clean(parsed.id),
            clean(parsed.stop_reason),
            parsed.usage,
            tuple(self._asked(tool) for tool in parsed.tools),
            packed,
        )
        await self.journal.model_completed(call, response)
        return Reply(answer.status, answer.content_type, parsed.body, _others(answer.headers), recorded=True)

    async def _refused(self, attempt: _Attempt, answer: Answer) -> Reply:
        """An error status goes to the harness as it is, with what it says about trying again."""
        call = attempt.call
        body = self.upstream.scrub(await provider.collect(answer))
        if answer.status < 400:
            said = f"the provider answered {answer.status}, a redirect, which a key does not follow"
            return await self._failed(call, answer.status, Fault(502, f"{said}; set its base URL anew"))
        wait = next((value for name, value in answer.headers if name == "retry-after"), "")
        said = clean(body[:_ERROR].decode("utf-8", "replace"))
        await self._withhold(attempt, answer.status, message(said))
        await self.journal.model_failed(call, answer.status, refusal(answer.status, said, wait))
        headers = told_to_wait(answer.status, said, _others(answer.headers))
        return Reply(answer.status, answer.content_type or JSON, body, headers)

    async def _withhold(self, attempt: _Attempt, status: int, said: str) -> None:
        """If the call was refused because of its media: record that, and raise ``_AskAgain``."""
        if attempt.last or status not in withholding.STATUSES:
            return
        media = await withholding.refused_media(
            self.journal, self.wire, status=status, said=said, body=attempt.sent.body, agent=attempt.agent
        )
        said = said[:_REASON]
        reason = f"{status} {said}; it is asked once more, without what is withheld"
        if media and await self.journal.model_withheld(attempt.call, status, reason, media, said):
            raise _AskAgain

    async def _failed(self, call: str, status: int | None, fault: Fault) -> Reply:
        """No usable response. The harness gets an error status, never a part of a body, and tries again."""
        said = self.upstream.scrub_text(clean(fault.message))[:_REASON]
        await self.journal.model_failed(call, status, said)
        return Reply(fault.status, JSON, self.wire.error(fault.status, said))

    def _unique(self, ids: Sequence[str]) -> list[str]:
        """The ids, with a fresh one for each that is empty, unusable or taken within this session. What is
        given out counts at once, as another call may be recorded at the same time."""
        unique: list[str] = []
        for name in ids:
            taken = name in self._tool_ids or name in self.journal.state.tool_calls
            unique.append(self.wire.fresh_tool_id() if taken or not name or clean(name) != name else name)
            self._tool_ids.add(unique[-1])
        return unique

    def _asked(self, tool: ToolUse) -> Asked:
        name = clean(tool.name)
        kind = self.classify(name)
        return Asked(tool.id, name, tool.input, kind.policy, kind.origin)


def _others(headers: Headers) -> Headers:
    return [(name, value) for name, value in headers if name != "content-type"]
