"""What anyone may write into a session, whoever drives it: messages, steers, stops, answers.

Each is decided on the state and retried on conflict, so that two senders and the driver never trip each
other. Each sets the session due in the same commit, so that what was accepted is also going to be worked
on."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from typing import Literal, TypeVar

from harness_durable import clock, codec, events
from harness_durable.crashpoints import reach
from harness_durable.errors import BadInput, NotFound
from harness_durable.events import AgentSpec
from harness_durable.journal.known import Known
from harness_durable.journal.writer import Decision, Writer
from harness_durable.payload import pack_text
from harness_durable.policy import told_of_fork
from harness_durable.state import Session
from harness_durable.world import Record, RowUpdate, World, check_session_id

MAX_MESSAGE = 32 << 20
"""Bytes of a message. Above any model's context; refused before anything is stored."""

MAX_ID = 256
"""Characters of a message id. It stands in every line about the message's turn."""

LATEST = 253_402_300_799_999
"""The last ms of the year 9999: what people's calendars, and Python's, can show."""

WhenBusy = Literal["queue", "steer", "reject"]

T = TypeVar("T")


class Inbox:
    """One session, seen from outside."""

    def __init__(self, writer: Writer) -> None:
        self._writer = writer
        self.reader = writer.reader

    @classmethod
    async def open(cls, world: World, session: str, known: Known | None = None) -> Inbox:
        """Raises ``NotFound``."""
        return cls(await Writer.open(world, session, patience=5.0, known=known))

    @classmethod
    async def create(
        cls, world: World, session: str, agent: AgentSpec, title: str = "", known: Known | None = None
    ) -> Inbox:
        """Create the session, or find it if it is there already (its agent stays what it was)."""
        event = events.SessionCreated(events.FORMAT, str(uuid.uuid4()), agent, title)
        record = Record(uuid.uuid4().hex, codec.kind_of(event), clock.now_ms(), codec.encode(event))
        await world.create(check_session_id(session), [record], RowUpdate("idle", None))
        return await cls.open(world, session, known)

    @property
    def state(self) -> Session:
        return self._writer.state

    async def refresh(self) -> Session:
        """The state, with what others wrote since."""
        await self._writer.refresh()
        return self._writer.state

    async def accept(
        self, message: str, text: str, when_busy: WhenBusy = "queue", *, not_before: int = 0
    ) -> bool:
        """Accept a message; durable on return. False if this ``message`` id is known already: then nothing
        is written, and the first one counts. Its turn starts no earlier than ``not_before`` (ms, wall clock).

        Raises ``BadInput`` for an empty or over-long text or id, a busy session under ``reject``, or a time
        that is none.
        """
        _check_id(message)
        packed = pack_text(_checked(text))
        _check_time(not_before, when_busy)

        def decide(state: Session, wanted: Decision) -> bool:
            if message in state.messages:
                return False
            if state.closed:
                raise BadInput("the session is closed; begin a new one")
            if state.turn is not None and when_busy == "reject":
                raise BadInput(f"the session works on {state.turn.id!r}; wait, or queue or steer instead")
            payload = wanted.keep(pack_text(text + told_of_fork(state)) if state.untold else packed)
            if state.turn is not None and when_busy == "steer":
                wanted.events.append(events.SteerAccepted(message, state.turn.id, payload))
            else:
                wanted.events.append(events.MessageAccepted(message, payload, not_before))
            wanted.listed = True
            return True

        accepted = await self._decide(decide)
        reach("steer.accepted" if self.state.messages[message].kind == "steer" else "message.accepted")
        return accepted

    async def withdraw(self, message: str, by: str) -> bool:
        """Take back a message that has not started its turn; False if it has, or was taken back before.
        Raises ``NotFound``."""

        def decide(state: Session, wanted: Decision) -> bool:
            known = state.messages.get(message)
            if known is None:
                raise NotFound(f"no message {message!r} in this session; see `trace`")
            if known not in state.queued:
                return False
            wanted.events.append(events.MessageWithdrawn(message, by))
            wanted.listed = True
            return True

        return await self._decide(decide)

    async def request_stop(self, by: str) -> bool:
        """Ask for the open turn to be stopped, or one that waits for a person to be given up. False if there
        is none."""

        def decide(state: Session, wanted: Decision) -> bool:
            turn = state.last_turn
            if turn is None or (turn.settled and turn.status != "needs_input"):
                return False
            if turn.stop_by is None:
                wanted.events.append(events.StopRequested(turn.id, by))
                wanted.listed = True
            return True

        return await self._decide(decide)

    async def resume(self, by: str) -> bool:
        """Let a turn that waits for a person go on. False if none does."""

        def decide(state: Session, wanted: Decision) -> bool:
            turn = state.last_turn
            if turn is None or turn.status != "needs_input":
                return False
            wanted.events.append(events.TurnResumed(turn.id, "", "continue", (f"{by} asked",), True))
            wanted.listed = True
            return True

        return await self._decide(decide)

    async def answer(self, request: str, *, allow: bool, by: str, reason: str = "") -> None:
        """Answer a permission request. The first answer counts. Raises ``NotFound``."""

        def decide(state: Session, wanted: Decision) -> None:
            asked = state.permissions.get(request)
            if asked is None:
                raise NotFound(f"no permission request {request!r} in this session; see `trace`")
            if asked.allow is None:
                wanted.events.append(events.PermissionResolved(request, allow, by, reason))
                wanted.listed = True

        await self._decide(decide)

    async def _decide(self, decision: Callable[[Session, Decision], T]) -> T:
        """On the log as it is now: an answer that writes nothing ("it is idle") meets no conflict."""

        def unless_moved(state: Session, wanted: Decision) -> T:
            if state.moved is not None:
                raise BadInput(
                    f"the session was moved to {state.moved.to}; go on with it there (if it has not arrived, "
                    "`harness-durable worlds copy --move` once more brings it there)"
                )
            return decision(state, wanted)

        await self._writer.refresh()
        return await self._writer.decide(unless_moved)


def _check_id(message: str) -> None:
    if not 0 < len(message) <= MAX_ID or not message.isprintable():
        raise BadInput(
            f"{message[:40]!r} cannot be a message id: use 1 to {MAX_ID} characters that can be printed"
        )


def _check_time(not_before: int, when_busy: WhenBusy) -> None:
    if not_before and when_busy == "steer":
        raise BadInput("a steer is for the running turn; send a message for later without it")
    if not 0 <= not_before <= LATEST:
        raise BadInput(f"{not_before} is no time in milliseconds before the year 10000; correct it")


def _checked(text: str) -> str:
    if not text.strip():
        raise BadInput("the message is empty; say what the agent should do")
    size = len(text.encode("utf-8", "surrogatepass"))
    if size > MAX_MESSAGE:
        raise BadInput(f"the message has {size} bytes, more than {MAX_MESSAGE}; put it into a file instead")
    return text
