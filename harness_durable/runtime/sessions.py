"""A session and its turns, as a program sees them: what it may say, and what came of it.

Everything here is read from the log, so that it is the same whoever drives the session.
"""

from __future__ import annotations

import logging
import math
import uuid
from collections.abc import AsyncGenerator, Awaitable, Callable
from datetime import datetime, timedelta
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import msgspec

from harness_durable import clock, fold
from harness_durable.errors import NotFound, StorageUnavailable
from harness_durable.events import Entry
from harness_durable.journal import Inbox, Known
from harness_durable.journal.inbox import WhenBusy
from harness_durable.runtime.equipment import Equipment
from harness_durable.runtime.forking import fork
from harness_durable.runtime.progress import shown
from harness_durable.state import Session as State
from harness_durable.state import TurnStatus

if TYPE_CHECKING:
    from harness_durable.runtime.api import Durable

log = logging.getLogger("harness_durable.api")

T = TypeVar("T")


def in_ms(wake_at: datetime | timedelta | None) -> int:
    """A time as the log has it, in ms by the wall clock; 0, at once, also for one that is over."""
    if wake_at is None:
        return 0
    now = clock.now_ms()
    if isinstance(wake_at, timedelta):
        due = now + int(wake_at.total_seconds() * 1000)
    else:
        due = int(wake_at.timestamp() * 1000)
    return due if due > now else 0


class TurnResult(msgspec.Struct, frozen=True):
    """How a turn was settled. ``unknown`` are the ids of calls whose outcome could not be known."""

    turn: str
    status: TurnStatus
    text: str
    reason: str
    lives: int
    unknown: tuple[str, ...]


class Session:
    """One durable conversation."""

    def __init__(
        self, durable: Durable, session: str, inbox: Inbox, equipment: Equipment, known: Known
    ) -> None:
        self.id = session
        self._durable, self._inbox, self._equipment, self._known = durable, inbox, equipment, known

    def copy(self) -> State:
        """What the log amounted to when this program last looked, for somebody who takes it on."""
        return fold.copy(self._inbox.state)

    async def state(self) -> State:
        """What the log amounts to now."""
        return await self._inbox.refresh()

    async def send(
        self,
        text: str,
        *,
        message_id: str | None = None,
        when_busy: WhenBusy = "queue",
        wake_at: datetime | timedelta | None = None,
    ) -> Turn:
        """Accept a message: durable on return, and worked on from then on; with ``wake_at`` not before that
        time (without a zone it is local), or that long from now. Others that are sent meanwhile come first.
        The same ``message_id`` again is the same message: nothing is written, and its turn is returned.
        Raises ``BadInput``."""
        message = f"m-{uuid.uuid4().hex[:10]}" if message_id is None else message_id
        await self._inbox.accept(message, text, when_busy, not_before=in_ms(wake_at))
        self._durable.keep_driving(self.id, self._equipment)
        accepted = self._inbox.state.messages[message]
        return Turn(
            self._durable, self.id, accepted.turn if accepted.kind == "steer" else message, self._known
        )

    async def steer(self, text: str, *, message_id: str | None = None) -> None:
        """Say something to the running turn; if there is none, it becomes a message."""
        await self.send(text, message_id=message_id, when_busy="steer")

    async def stop(self, by: str = "the caller") -> bool:
        """Ask for the running turn to be stopped; ``result`` of the turn tells when it is. False if idle."""
        return await self._inbox.request_stop(by)

    async def withdraw(self, message_id: str, by: str = "the caller") -> bool:
        """Take a waiting message back; False if its turn has started. Raises ``NotFound``."""
        return await self._inbox.withdraw(message_id, by)

    async def answer(self, request: str, *, allow: bool, by: str = "the caller", reason: str = "") -> None:
        """Answer a permission request by its id. Raises ``NotFound``."""
        await self._inbox.answer(request, allow=allow, by=by, reason=reason)
        self._durable.keep_driving(self.id, self._equipment)

    async def fork(
        self, *, at: int | None = None, session: str | None = None, files: str | Path | None = None
    ) -> Session:
        """Another session that has the same past, up to event ``at`` of the log (by default, up to where no
        turn was open last), and a workspace of its own with the files as they were then. This one is left as
        it is, and may be running.

        ``session`` names it; ``files`` is its folder, missing or empty, by default one beside this session's.
        Where the files are not durable, it must be named and has them already. Raises ``BadInput``, and
        ``DamagedLog`` if what is to be copied is not whole."""
        place = Path(files) if files is not None else None
        forked = await fork(self._durable.world, self._equipment, self.id, at=at, name=session, files=place)
        known = self._durable.known(forked.session, anew=True)
        inbox = await Inbox.open(self._durable.world, forked.session, known)
        return Session(self._durable, forked.session, inbox, self._equipment, known)

    def turn(self, turn: str) -> Turn:
        """A turn by the id of its message."""
        return Turn(self._durable, self.id, turn, self._known)


class Turn:
    """The work that a message started. Read from the log, whoever drives it."""

    def __init__(self, durable: Durable, session: str, turn: str | None, known: Known) -> None:
        self.id = turn or ""
        self.session = session
        self._durable = durable
        self._known, self._reader = known, known.reader

    async def events(self, after: int = 0) -> AsyncGenerator[Entry]:
        """Entries of the session's log with seq > ``after``, until this turn is settled. A turn that waits
        for a person is settled, too; called again after it was resumed, this goes on to its next end."""
        state = await self._patiently(self._known.copy)
        while True:
            try:
                async for entry in self._reader.entries(after):
                    if entry.seq > state.seq:
                        fold.apply(state, entry)
                    if entry.seq > self._end(state):
                        return
                    yield entry
                    after = entry.seq
            except StorageUnavailable as trouble:
                await self._pause(trouble)
                continue
            if self._end(state) < math.inf:
                return
            await self._await(state.seq)

    async def progress(self) -> str:
        """Text that is arriving just now, or what the harness waits for: state, not history."""
        return shown(await self._durable.world.progress(self.session)).text

    async def result(self) -> TurnResult:
        """Wait until the turn is settled; one that needs a person is settled, too.

        Raises ``NotFound`` for a turn that no message of the session starts, or no more, and what keeps the
        session from being driven here (``BadTool``, ``UnknownName``, ``DamagedLog``, ``LogTooNew``).
        """
        state = await self._patiently(self._known.now)
        if self.id not in state.messages:
            raise NotFound(f"session {self.session!r} has no message {self.id!r}; see `trace`")
        while self._end(state) == math.inf:
            await self._await(state.seq)
            state = await self._patiently(self._known.now)
        turn = state.turns.get(self.id)
        if turn is None:
            raise NotFound(
                f"message {self.id!r} was taken back before its turn; send it again if it is needed"
            )
        text = await self._patiently(partial(self._reader.text, turn.text)) if turn.text is not None else ""
        unknown = tuple(call.id for call in state.calls(turn) if call.outcome == "unknown")
        return TurnResult(turn.id, turn.status, text, turn.reason, len(turn.lives), unknown)

    def _end(self, state: State) -> float:
        """The seq at which the turn was settled, or was known not to come; infinite before."""
        turn, message = state.turns.get(self.id), state.messages.get(self.id)
        if message is not None and message.status == "withdrawn":
            return state.seq
        return turn.ended_seq if turn is not None and turn.settled else math.inf

    async def _await(self, head: int) -> None:
        """Wait for the log to grow, as long as somebody can be expected to drive the session."""
        while True:
            self._durable.raise_failure(self.session)
            grown = await self._patiently(partial(self._durable.world.wait, self.session, head, 1.0))
            if grown > head:
                return

    async def _patiently(self, read: Callable[[], Awaitable[T]]) -> T:
        """Whoever waits for a turn waits for the store, too."""
        while True:
            try:
                return await read()
            except StorageUnavailable as trouble:
                await self._pause(trouble)

    async def _pause(self, trouble: StorageUnavailable) -> None:
        log.warning("session %s cannot be followed just now: %s", self.session, trouble)
        await clock.sleep(1.0)
