"""Messages and steers that come in, and the turns that they start."""

from __future__ import annotations

from harness_durable.events.base import Event, Rung
from harness_durable.payload import Payload


class MessageAccepted(Event, frozen=True, tag="message.accepted"):
    """``not_before``: it starts its turn no earlier than this (ms, wall clock); 0: at once."""

    message: str
    text: Payload
    not_before: int = 0


class MessageWithdrawn(Event, frozen=True, tag="message.withdrawn"):
    message: str
    by: str


class TurnStarted(Event, frozen=True, tag="turn.started"):
    """A turn's id is the id of the message that started it."""

    turn: str


class MessageDelivered(Event, frozen=True, tag="message.delivered"):
    """The harness has it in its own transcript."""

    message: str
    life: str


class TurnInterrupted(Event, frozen=True, tag="turn.interrupted"):
    """A life ended before the turn was settled. ``planned``: by us, as in a deploy. ``transient``: the
    harness gave the turn up for a trouble that may pass, and we go on with it."""

    turn: str
    reason: str
    planned: bool = False
    transient: bool = False


class TurnResumed(Event, frozen=True, tag="turn.resumed"):
    """``told`` are whole sentences: what the harness was told about calls that were cut off."""

    turn: str
    life: str
    rung: Rung
    told: tuple[str, ...] = ()
    by_person: bool = False


class StopRequested(Event, frozen=True, tag="turn.stop_requested"):
    turn: str
    by: str


class TurnCompleted(Event, frozen=True, tag="turn.completed"):
    turn: str
    text: Payload


class TurnFailed(Event, frozen=True, tag="turn.failed"):
    turn: str
    code: str
    reason: str


class TurnCancelled(Event, frozen=True, tag="turn.cancelled"):
    turn: str
    reason: str


class TurnNeedsInput(Event, frozen=True, tag="turn.needs_input"):
    turn: str
    reason: str


class SteerAccepted(Event, frozen=True, tag="steer.accepted"):
    """``remark``: of ours, about what the model cannot know; it never becomes a message of its own."""

    message: str
    turn: str
    text: Payload
    remark: bool = False


class SteerDelivered(Event, frozen=True, tag="steer.delivered"):
    message: str
    life: str
