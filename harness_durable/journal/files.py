"""The files of a session in its log: looked at before an outcome is written, and in one append with it.

Only one look at a time, and none while an append is being decided: a scan may take long, and whoever must
write something else does not wait for it. What was seen counts as known once it is in the log, so a look
whose append failed is simply repeated."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Protocol, TypeVar

import anyio

from harness_durable import clock, events
from harness_durable.crashpoints import reach
from harness_durable.events.workspace import Cause
from harness_durable.journal.writer import Decision, Writer
from harness_durable.state import Session

if TYPE_CHECKING:  # who only reads a log does not need the scanner
    from harness_durable.workspace import Scanned

T = TypeVar("T")

REST, LEAST_REST = 10, 60.0
"""After a look that took too long there is none at outcomes for so many times as long, and for so many
seconds at least: whatever the size of the workspace, less than a tenth of the time is lost."""


class Tracks(Protocol):
    """Looks at the files of one session: see ``workspace.Tracker``."""

    async def scan(self, parent: str) -> Scanned | None:
        """``parent`` is the last root in the log. What keeps the files from being saved is told in
        ``skipped``; None if there is nothing to look at. Raises ``StorageUnavailable``."""
        ...

    async def landed(self, scanned: Scanned) -> None:
        """It is in the log. Also called when we are cancelled, so that it shields what it waits for."""
        ...


class Look:
    """What is to be written of one look."""

    def __init__(self, cause: Cause, calls: Sequence[str], scanned: Scanned | None) -> None:
        self._cause: Cause = cause
        self._calls, self.scanned = calls, scanned
        self.written = False

    @property
    def skipped(self) -> str:
        """Why the files could not be saved, or nothing."""
        seen = self.scanned
        return f"{seen.skipped}: {seen.why}".rstrip(": ") if seen is not None and seen.skipped else ""

    def beside(self, decision: Callable[[Session, Decision], T]) -> Callable[[Session, Decision], T]:
        """The decision, and before its events what was seen; nothing if it has no events."""

        def decide(state: Session, wanted: Decision) -> T:
            answer = decision(state, wanted)
            if wanted.events:
                self.put(state, wanted)
            return answer

        return decide

    def put(self, state: Session, wanted: Decision) -> None:
        """Nothing changed is no event; but that files were made anew is said in any case."""
        seen, parent = self.scanned, state.files.root
        if seen is None:
            return
        left_out = seen.left_out
        if (left_out, seen.left_out_more) == (state.files.left_out, state.files.left_out_more):
            left_out = None  # a new host knows no better, and has found the same
        self.written = (
            seen.root != parent
            or bool(self.skipped or state.files.uncovered_seq)
            or self._cause in ("restored", "fork")
            or left_out is not None
        )
        if not self.written:
            return
        call = self._calls[0] if self._calls else ""
        event = events.WorkspaceCommitted(
            root=parent if seen.skipped else seen.root,
            parent=parent,
            cause=self._cause,
            call=call,
            beside=tuple(name for name in _running(state) if name != call),
            counts=seen.counts,
            changes=seen.changes,
            more=seen.more,
            new_bytes=seen.new_bytes,
            stored_bytes=seen.stored_bytes,
            left_out=left_out,
            left_out_more=seen.left_out_more,
            torn=seen.torn,
            skipped=self.skipped,
            ms=seen.ms,
        )
        wanted.events.insert(0, event)
        wanted.blobs.update({} if seen.skipped else seen.blobs)


class Committer:
    """Of one session, as its driver has it. Without a tracker the files are nobody's business."""

    def __init__(self, writer: Writer, tracker: Tracks | None) -> None:
        self._writer, self._tracker = writer, tracker
        self._one = anyio.Lock()
        self._rests_until = 0.0

    @asynccontextmanager
    async def look(self, cause: Cause, calls: Sequence[str] | None = None) -> AsyncGenerator[Look]:
        """Look at the files, to be written in the body. With ``calls``: only if one of them, which are about
        to get their outcomes, may have changed something, and not while looks take too long: then the log
        says since when the files are not covered. Raises ``StorageUnavailable``."""
        agent = self._writer.state.agent
        durable = agent is not None and agent.files == "durable"
        if self._tracker is None or not durable or (calls is not None and not self._changing(calls)):
            yield Look(cause, (), None)
            return
        async with self._one:
            changing = self._changing(calls) if calls is not None else ()
            if calls is not None and not changing:  # somebody else was told of their outcomes first
                yield Look(cause, (), None)
                return
            scanned = await self._tracker.scan(self._writer.state.files.root)
            self._rest_after(scanned)
            look = Look(cause, changing, scanned)
            try:
                yield look
            finally:
                if scanned is not None and self._is_there(scanned):
                    await self._tracker.landed(scanned)
            if look.written:
                reach("workspace.committed")

    def _is_there(self, scanned: Scanned) -> bool:
        """Does the log have what was seen? Asked also if the append was cut off: it may have happened."""
        return not scanned.skipped and self._writer.state.files.root == scanned.root

    def _rest_after(self, scanned: Scanned | None) -> None:
        if scanned is not None:
            rest = max(LEAST_REST, REST * scanned.ms / 1000) if scanned.skipped == "timeout" else 0.0
            self._rests_until = clock.monotonic() + rest

    def _changing(self, calls: Sequence[str]) -> tuple[str, ...]:
        """Those that have run, have no outcome yet, and do more than look; none while looks rest, and the log
        says so: the append that was to say it may have failed."""
        if clock.monotonic() < self._rests_until and self._writer.state.files.uncovered_seq:
            return ()
        known = [self._writer.state.tool_calls.get(call) for call in calls]
        return tuple(
            call.id
            for call in known
            if call is not None and call.open and call.released_in is not None and call.policy != "safe"
        )


def _running(state: Session) -> tuple[str, ...]:
    turn = state.turn
    calls = state.calls(turn) if turn is not None else []
    return tuple(call.id for call in calls if call.open and call.released_in is not None)
