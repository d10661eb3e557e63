"""The event kinds of a session's log. One struct each; its tag is the kind's name everywhere.

An event says what happened, in the past tense. Everything else (turns, lives, calls, cost) is derived by
``fold``. What surprises: ids of lives and calls are part of the events, so that a fold never has to invent
one; and whatever a harness, a model or a tool said is a ``Payload``, never parsed here. To add a kind: a
struct here, a transition in ``journal``, a case in ``fold``.
"""

from __future__ import annotations

from typing import Literal

import msgspec

from harness_durable.payload import Media, Payload

FORMAT = 1
"""Version of the log's format. A reader refuses a larger one; every older one must fold for ever. A new kind
needs no new number, as who does not know it refuses the log; a new field that changes what an old kind means
does, as readers skip the fields that they do not know."""

ReplayPolicy = Literal["safe", "idempotent", "never"]
"""What may be done with a released call that has no outcome: see ``policy``."""

Rung = Literal["start", "attach", "continue", "retell"]
"""How a life came into a turn: see ``recovery``."""

ToolOrigin = Literal["builtin", "custom"]
Source = Literal["hook", "transcript", "host", "probe", "recovery", "stop"]
"""Who knew an outcome first."""


class Event(msgspec.Struct, frozen=True, omit_defaults=True, tag_field="kind"):
    """Base of all kinds."""


class Usage(msgspec.Struct, frozen=True, omit_defaults=True):
    """Tokens of one response, as the provider counted them."""

    input: int = 0
    output: int = 0
    cache_read: int = 0
    cache_write: int = 0


# ---------------------------------------------------------------------------------------- session

ASK = "ask"
"""The permission mode in which a person is asked before a call that is not safe."""


class AgentSpec(msgspec.Struct, frozen=True, omit_defaults=True):
    """What must be the same after every recovery (I12). ``tools`` are built-in ones, None: the adapter's
    default; ``custom_tools`` the names of ours."""

    adapter: str
    harness_version: str
    model: str
    sandbox: str
    workspace: str
    permission_mode: str = "default"
    effort: str | None = None
    tools: tuple[str, ...] | None = None
    custom_tools: tuple[str, ...] = ()
    system_prompt: str | None = None
    policies: dict[str, ReplayPolicy] = {}


class SessionCreated(Event, frozen=True, tag="session.created"):
    format: int
    native_id: str
    agent: AgentSpec
    title: str = ""


class SessionClaimed(Event, frozen=True, tag="session.claimed"):
    """``displaced``: the worker before may be alive, and a tool that it runs may have its effect yet."""

    epoch: int
    worker: str
    host: str
    pid: int
    displaced: bool = False


class SessionReleased(Event, frozen=True, tag="session.released"):
    """A planned stop: it uses up no attempt."""

    reason: str


class SessionClosed(Event, frozen=True, tag="session.closed"):
    reason: str


class SessionMoved(Event, frozen=True, tag="session.moved"):
    """It goes on in another store, with all that is before this record: nobody drives it here any more,
    nobody writes into it. ``status`` and ``due`` are what its row said, and says there."""

    to: str
    status: str
    due: int | None = None


# ------------------------------------------------------------------------------- messages, turns


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
    """A life ended before the turn was settled. ``planned``: by us, as in a deploy. ``transient``: the harness
    gave the turn up for a trouble that may pass, and we go on with it."""

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
    message: str
    turn: str
    text: Payload


class SteerDelivered(Event, frozen=True, tag="steer.delivered"):
    message: str
    life: str


# ------------------------------------------------------------------------------------------ lives


class LifeStarted(Event, frozen=True, tag="life.started"):
    life: str
    turn: str
    sandbox: str
    run_dir: str
    host: str
    harness_version: str


class LifeAttached(Event, frozen=True, tag="life.attached"):
    life: str
    worker: str


class LifeEnded(Event, frozen=True, tag="life.ended"):
    life: str
    reason: str
    code: int | None = None


# ------------------------------------------------------------------------------------ model calls


class ModelRequested(Event, frozen=True, tag="model.requested"):
    """One request is about to go upstream. Its body is kept as parts: those of call ``base`` up to ``keep``,
    then ``parts``. So a turn whose requests each repeat the whole conversation costs only what is new."""

    call: str
    key: str
    life: str
    wire: str
    model: str
    path: str
    parts: tuple[Payload, ...]
    base: str | None = None
    keep: int = 0
    agent: str | None = None


class ModelCompleted(Event, frozen=True, tag="model.completed"):
    """The whole response, as it goes to the harness. ``tool_calls`` are those that it asks for."""

    call: str
    status: int
    content_type: str
    body: Payload
    response_id: str = ""
    stop_reason: str = ""
    usage: Usage = Usage()
    tool_calls: tuple[str, ...] = ()


class ModelFailed(Event, frozen=True, tag="model.failed"):
    """No usable response. ``status`` of None: the connection broke, or this worker died."""

    call: str
    status: int | None
    reason: str


class ModelWithheld(Event, frozen=True, tag="model.withheld"):
    """The provider refused ``call`` because of these; no later request of the session shows them to it."""

    call: str
    media: tuple[Media, ...]
    reason: str


class ModelReplayed(Event, frozen=True, tag="model.replayed"):
    """A request was answered from the log: nothing was paid."""

    call: str
    life: str


# ------------------------------------------------------------------------------------- tool calls


class ToolRequested(Event, frozen=True, tag="tool.requested"):
    """The model asked for it. Nothing has happened yet."""

    call: str
    name: str
    input: Payload
    model_call: str
    policy: ReplayPolicy
    origin: ToolOrigin
    agent: str | None = None


class ToolReleased(Event, frozen=True, tag="tool.released"):
    """It may run from now on. ``key`` is the idempotency key of a custom tool. ``request``: the harness does
    not ask before it runs the tool, so that it may run from the answer to this ``sandbox.Request`` on."""

    call: str
    life: str
    key: str = ""
    request: int | None = None


class ToolCompleted(Event, frozen=True, tag="tool.completed"):
    """``result`` is what the model gets; ``detail`` the harness's own structured form, if it has one."""

    call: str
    result: Payload
    source: Source
    detail: Payload | None = None


class ToolFailed(Event, frozen=True, tag="tool.failed"):
    call: str
    result: Payload
    source: Source
    detail: Payload | None = None


class ToolCancelled(Event, frozen=True, tag="tool.cancelled"):
    """We stopped it while it ran; it may have had part of its effect."""

    call: str
    result: Payload


class ToolNotStarted(Event, frozen=True, tag="tool.not_started"):
    """It never ran, and never will under this id."""

    call: str
    result: Payload


class ToolUnknown(Event, frozen=True, tag="tool.unknown"):
    """It was released, and whether it happened cannot be known."""

    call: str
    result: Payload


class ToolRefused(Event, frozen=True, tag="tool.refused"):
    """The first identical repeat of a call whose outcome is unknown. It did not run."""

    call: str
    repeats: str
    result: Payload


# ------------------------------------------------------------------------- transcript, permission


class TranscriptAppended(Event, frozen=True, tag="transcript.appended"):
    """Lines of the harness's own transcript, joined by newlines. ``offset`` is where the life's standard
    output stood after them, so that the next worker reads on from there."""

    file: str
    life: str
    lines: Payload
    count: int
    offset: int = 0


class TranscriptReplaced(Event, frozen=True, tag="transcript.replaced"):
    """The first ``keep`` lines stay, ``drop`` lines behind them (None: all the rest) are replaced by
    ``lines``: what recovery wrote. ``shown`` is set where a later line sums up those that were dropped: what
    they showed to be delivered, in the adapter's words."""

    file: str
    keep: int
    lines: Payload
    count: int
    reason: str
    drop: int | None = None
    shown: tuple[str, ...] | None = None


class PermissionRequested(Event, frozen=True, tag="permission.requested"):
    request: str
    call: str
    name: str
    life: str


class PermissionResolved(Event, frozen=True, tag="permission.resolved"):
    request: str
    allow: bool
    by: str
    reason: str = ""


# fmt: off
AnyEvent = (
    SessionCreated | SessionClaimed | SessionReleased | SessionClosed | SessionMoved | MessageAccepted
    | MessageWithdrawn | TurnStarted | MessageDelivered | TurnInterrupted | TurnResumed | StopRequested
    | TurnCompleted | TurnFailed | TurnCancelled | TurnNeedsInput | SteerAccepted | SteerDelivered
    | LifeStarted | LifeAttached | LifeEnded | ModelRequested | ModelCompleted | ModelFailed
    | ModelWithheld | ModelReplayed | ToolRequested | ToolReleased | ToolCompleted | ToolFailed
    | ToolCancelled | ToolNotStarted | ToolUnknown | ToolRefused | TranscriptAppended | TranscriptReplaced
    | PermissionRequested | PermissionResolved
)
# fmt: on


class Entry(msgspec.Struct, frozen=True):
    """An event with its place in the log. ``time`` in ms; ``epoch`` of 0 means: not by the driver."""

    seq: int
    time: int
    epoch: int
    event: AnyEvent
