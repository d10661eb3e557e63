"""Transitions of model and tool calls, and of permissions: the two barriers and the outcomes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import msgspec

from harness_durable import events
from harness_durable.crashpoints import reach
from harness_durable.events import ReplayPolicy, Source, ToolOrigin, Usage
from harness_durable.journal.files import Committer, Tracks
from harness_durable.journal.requests import Bases, prints, split
from harness_durable.journal.writer import Decision, Writer
from harness_durable.payload import INLINE, Media, Packed, pack, pack_text
from harness_durable.policy import Verdict, gate, gate_unasked
from harness_durable.state import Session

REQUEST_INLINE = 256 << 10
"""Bytes of a request that its event holds itself: a whole conversation must fit into one record."""


class Asked(msgspec.Struct, frozen=True):
    """A tool call as found in a model's response."""

    id: str
    name: str
    input: bytes
    policy: ReplayPolicy
    origin: ToolOrigin


class Response(msgspec.Struct, frozen=True):
    """A whole model response, as it will go to the harness. ``packed``: its body, if that has been done."""

    status: int
    content_type: str
    body: bytes
    id: str = ""
    stop_reason: str = ""
    usage: Usage = Usage()
    tools: tuple[Asked, ...] = ()
    packed: Packed | None = None


class Told(msgspec.Struct, frozen=True):
    """The outcome of a call as a transcript tells it."""

    call: str
    outcome: Literal["completed", "failed", "not_started"]
    text: bytes
    detail: bytes | None = None


class CallTransitions:
    """The half of the ``Journal`` that is about calls."""

    def __init__(self, writer: Writer, tracker: Tracks | None = None) -> None:
        self._writer, self.reader = writer, writer.reader
        self.files = Committer(writer, tracker)
        self._bases = Bases()

    @property
    def state(self) -> Session:
        """The state now. Read it, never change it."""
        return self._writer.state

    # ------------------------------------------------------------------------------- model calls

    async def model_requested(
        self,
        *,
        key: str,
        life: str,
        wire: str,
        model: str,
        path: str,
        body: bytes,
        field: str,
        agent: str | None,
    ) -> str:
        """Before the request goes upstream. Returns the model call's id."""
        parts = split(body, field)
        seen = prints(parts)
        base, keep = self._bases.kept(agent or "", seen)
        inline = min(INLINE, REQUEST_INLINE // max(1, len(parts) - keep))
        packed = [pack(part, inline) for part in parts[keep:]]

        def decide(state: Session, wanted: Decision) -> str:
            call = f"m{len(state.model_calls) + 1}"
            payloads = tuple(wanted.keep(part) for part in packed)
            wanted.events.append(
                events.ModelRequested(call, key, life, wire, model, path, payloads, base, keep, agent)
            )
            return call

        call = await self._writer.decide(decide)
        self._bases.remember(agent or "", call, seen)
        reach("model.requested")
        return call

    async def model_completed(self, call: str, response: Response) -> None:
        """The response and the tool calls that it asks for, in one append, before the harness gets a byte."""
        body = response.packed or pack(response.body)

        def decide(state: Session, wanted: Decision) -> None:
            agent = state.model_calls[call].agent
            wanted.events.append(
                events.ModelCompleted(
                    call,
                    response.status,
                    response.content_type,
                    wanted.keep(body),
                    response.id,
                    response.stop_reason,
                    response.usage,
                    tuple(tool.id for tool in response.tools),
                )
            )
            for tool in response.tools:
                payload = wanted.keep(pack(tool.input))
                wanted.events.append(
                    events.ToolRequested(tool.id, tool.name, payload, call, tool.policy, tool.origin, agent)
                )

        await self._writer.decide(decide)
        reach("model.completed")
        if response.tools:
            reach("tool.requested")

    async def model_failed(self, call: str, status: int | None, reason: str) -> None:
        def decide(state: Session, wanted: Decision) -> None:
            if state.model_calls[call].status == "requested":
                wanted.events.append(events.ModelFailed(call, status, reason))

        await self._writer.decide(decide)

    async def model_withheld(
        self, call: str, status: int | None, reason: str, media: Sequence[Media], said: str
    ) -> bool:
        """The provider refused a call because of these media: the call's outcome, and that they are withheld
        from now on, in one append. ``said`` are the provider's words. False, and nothing written, if the call
        was settled meanwhile: then it must not be asked again."""

        def decide(state: Session, wanted: Decision) -> bool:
            if state.model_calls[call].status != "requested":
                return False
            wanted.events.append(events.ModelFailed(call, status, reason))
            wanted.events.append(events.ModelWithheld(call, tuple(media), said))
            return True

        return await self._writer.decide(decide)

    async def model_replayed(self, call: str, life: str) -> None:
        event = events.ModelReplayed(call, life)
        await self._writer.decide(lambda _, wanted: wanted.events.append(event))

    # -------------------------------------------------------------------------------- tool calls

    async def tool_gate(self, call: str, life: str, *, key: str = "") -> Verdict:
        """The barrier: may this call run now? Durable before it may. A call that the log does not know is
        denied, since nothing may run unrecorded."""

        def decide(state: Session, wanted: Decision) -> Verdict:
            known = state.tool_calls.get(call)
            if known is None:
                return Verdict("deny", "this call is not in the log, so it must not run; make it again")
            verdict = gate(state, known, life)
            if verdict.action == "release" and not verdict.already:
                wanted.events.append(events.ToolReleased(call, life, key))
            elif verdict.action == "refuse":
                payload = wanted.keep(pack_text(verdict.text))
                wanted.events.append(events.ToolRefused(call, verdict.repeats, payload))
            return verdict

        verdict = await self._writer.decide(decide)
        if verdict.action == "release":
            reach("tool.released")
        return verdict

    async def tools_released(self, calls: Sequence[str], life: str, request: int) -> Verdict:
        """The barrier of calls whose tool has no exact one: the harness runs them as soon as it has their
        response. Durable before it gets that, as the answer to ``request``; one append for all of them."""

        def decide(state: Session, wanted: Decision) -> Verdict:
            known = [state.tool_calls[call] for call in calls]
            verdict = gate_unasked(state, known, life, request)
            if verdict.action == "release":
                fresh = (call.id for call in known if call.released_in != life)
                wanted.events.extend(events.ToolReleased(call, life, request=request) for call in fresh)
            return verdict

        verdict = await self._writer.decide(decide)
        if verdict.action == "release":
            reach("tool.released")
        return verdict

    async def tool_released_again(self, call: str, life: str, *, key: str = "") -> bool:
        """A custom tool's call that was cut off is about to run once more, since recovery found that it may.
        False, and nothing written, if it has its outcome: then it must not run."""

        def decide(state: Session, wanted: Decision) -> bool:
            known = state.tool_calls.get(call)
            if known is None or not known.open:
                return False
            wanted.events.append(events.ToolReleased(call, life, key))
            return True

        released = await self._writer.decide(decide)
        if released:
            reach("tool.released")
        return released

    async def tool_finished(
        self,
        call: str,
        *,
        ok: bool,
        result: bytes,
        source: Source,
        detail: bytes | None = None,
    ) -> None:
        """The outcome of a call that ran to its end. The first outcome counts; a second writes nothing."""

        def decide(state: Session, wanted: Decision) -> None:
            finish(state, wanted, call, ok=ok, result=result, source=source, detail=detail)

        async with self.files.look("call", [call]) as look:
            await self._writer.decide(look.beside(decide))
        reach("tool.completed")

    async def tool_closed(
        self, call: str, outcome: Literal["cancelled", "not_started", "unknown"], text: str
    ) -> None:
        """The outcome of a call that did not run to its end."""

        def decide(state: Session, wanted: Decision) -> None:
            close(state, wanted, call, outcome, text)

        async with self.files.look("call", [call] if outcome != "not_started" else []) as look:
            await self._writer.decide(look.beside(decide))

    async def tools_closed(
        self, closed: Sequence[tuple[str, Literal["cancelled", "not_started", "unknown"], str]]
    ) -> None:
        """Several at once, as recovery does, after it has looked at the files."""

        def decide(state: Session, wanted: Decision) -> None:
            for call, outcome, text in closed:
                close(state, wanted, call, outcome, text)

        await self._writer.decide(decide)

    # ------------------------------------------------------------------------------- permissions

    async def permission_requested(self, request: str, call: str, name: str, life: str) -> None:
        """Before anybody is asked. The same request again writes nothing."""

        def decide(state: Session, wanted: Decision) -> None:
            if request not in state.permissions:
                wanted.events.append(events.PermissionRequested(request, call, name, life))
                wanted.listed = True

        await self._writer.decide(decide)
        reach("permission.asked")


def finish(
    state: Session,
    wanted: Decision,
    call: str,
    *,
    ok: bool,
    result: bytes,
    source: Source,
    detail: bytes | None = None,
) -> None:
    """Add the outcome of a call that ran to its end, unless it has one."""
    known = state.tool_calls.get(call)
    if known is None or not known.open:
        return
    kind = events.ToolCompleted if ok else events.ToolFailed
    kept = wanted.keep(pack(detail)) if detail is not None else None
    wanted.events.append(kind(call, wanted.keep(pack(result)), source, kept))


def close(
    state: Session,
    wanted: Decision,
    call: str,
    outcome: Literal["cancelled", "not_started", "unknown"],
    text: str,
) -> None:
    """Add the outcome of a call that did not, unless it has one."""
    known = state.tool_calls.get(call)
    if known is None or not known.open:
        return
    payload = wanted.keep(pack_text(text))
    match outcome:
        case "cancelled":
            wanted.events.append(events.ToolCancelled(call, payload))
        case "not_started":
            wanted.events.append(events.ToolNotStarted(call, payload))
        case "unknown":
            wanted.events.append(events.ToolUnknown(call, payload))


def tell(state: Session, wanted: Decision, told: Told) -> None:
    """Add an outcome that a transcript tells, unless the call has one."""
    if told.outcome == "not_started":
        close(state, wanted, told.call, "not_started", told.text.decode("utf-8", "replace"))
    else:
        ok = told.outcome == "completed"
        finish(state, wanted, told.call, ok=ok, result=told.text, source="transcript", detail=told.detail)
