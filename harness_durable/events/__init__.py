"""The event kinds of a session's log. One struct each; its tag is the kind's name everywhere.

An event says what happened, in the past tense. Everything else (turns, lives, calls, cost) is derived by
``fold``. What surprises: ids of lives and calls are part of the events, so that a fold never has to invent
one; and whatever a harness, a model or a tool said is a ``Payload``, never parsed here. To add a kind: a
struct in its module, its name in ``AnyEvent``, a transition in ``journal`` and a case in ``fold``.
"""

from __future__ import annotations

import msgspec

from harness_durable.events.base import (
    FORMAT,
    Event,
    ReplayPolicy,
    Rung,
    Source,
    ToolOrigin,
    Usage,
)
from harness_durable.events.lives import (
    LifeAttached,
    LifeEnded,
    LifeStarted,
    TranscriptAppended,
    TranscriptReplaced,
)
from harness_durable.events.model import (
    ModelCompleted,
    ModelFailed,
    ModelReplayed,
    ModelRequested,
    ModelWithheld,
)
from harness_durable.events.session import (
    ASK,
    AgentSpec,
    Keeping,
    SessionClaimed,
    SessionClosed,
    SessionCreated,
    SessionForked,
    SessionMoved,
    SessionReleased,
)
from harness_durable.events.tools import (
    PermissionRequested,
    PermissionResolved,
    ToolCancelled,
    ToolCompleted,
    ToolFailed,
    ToolNotStarted,
    ToolRefused,
    ToolReleased,
    ToolRequested,
    ToolUnknown,
)
from harness_durable.events.turns import (
    MessageAccepted,
    MessageDelivered,
    MessageWithdrawn,
    SteerAccepted,
    SteerDelivered,
    StopRequested,
    TurnCancelled,
    TurnCompleted,
    TurnFailed,
    TurnInterrupted,
    TurnNeedsInput,
    TurnResumed,
    TurnStarted,
)
from harness_durable.events.workspace import Change, Counts, LeftOut, WorkspaceCommitted

# fmt: off
AnyEvent = (
    SessionCreated | SessionClaimed | SessionReleased | SessionClosed | SessionForked | SessionMoved
    | MessageAccepted | MessageWithdrawn | TurnStarted | MessageDelivered | TurnInterrupted | TurnResumed
    | StopRequested | TurnCompleted | TurnFailed | TurnCancelled | TurnNeedsInput | SteerAccepted
    | SteerDelivered
    | LifeStarted | LifeAttached | LifeEnded | ModelRequested | ModelCompleted | ModelFailed
    | ModelWithheld | ModelReplayed | ToolRequested | ToolReleased | ToolCompleted | ToolFailed
    | ToolCancelled | ToolNotStarted | ToolUnknown | ToolRefused | TranscriptAppended | TranscriptReplaced
    | PermissionRequested | PermissionResolved | WorkspaceCommitted
)
# fmt: on


class Entry(msgspec.Struct, frozen=True):
    """An event with its place in the log. ``time`` in ms; ``epoch`` of 0 means: not by the driver."""

    seq: int
    time: int
    epoch: int
    event: AnyEvent


__all__ = (
    "ASK",
    "FORMAT",
    "AgentSpec",
    "AnyEvent",
    "Change",
    "Counts",
    "Entry",
    "Event",
    "Keeping",
    "LeftOut",
    "LifeAttached",
    "LifeEnded",
    "LifeStarted",
    "MessageAccepted",
    "MessageDelivered",
    "MessageWithdrawn",
    "ModelCompleted",
    "ModelFailed",
    "ModelReplayed",
    "ModelRequested",
    "ModelWithheld",
    "PermissionRequested",
    "PermissionResolved",
    "ReplayPolicy",
    "Rung",
    "SessionClaimed",
    "SessionClosed",
    "SessionCreated",
    "SessionForked",
    "SessionMoved",
    "SessionReleased",
    "Source",
    "SteerAccepted",
    "SteerDelivered",
    "StopRequested",
    "ToolCancelled",
    "ToolCompleted",
    "ToolFailed",
    "ToolNotStarted",
    "ToolOrigin",
    "ToolRefused",
    "ToolReleased",
    "ToolRequested",
    "ToolUnknown",
    "TranscriptAppended",
    "TranscriptReplaced",
    "TurnCancelled",
    "TurnCompleted",
    "TurnFailed",
    "TurnInterrupted",
    "TurnNeedsInput",
    "TurnResumed",
    "TurnStarted",
    "Usage",
    "WorkspaceCommitted",
)
