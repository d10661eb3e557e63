"""What a log amounts to: the state that ``fold`` builds.

The command line, the viewer, exports and recovery all read this and nothing else. It is plain data, so that
it can be stored as a snapshot. Times are in ms, as in the log.
"""

from __future__ import annotations

from typing import Literal

import msgspec

from harness_durable.calls import Calls
from harness_durable.events import AgentSpec, LeftOut, ReplayPolicy, Rung, Source, ToolOrigin, Usage
from harness_durable.payload import Media, Payload

Outcome = Literal["completed", "failed", "cancelled", "not_started", "unknown"]
TurnStatus = Literal["running", "interrupted", "completed", "failed", "cancelled", "needs_input"]
MessageStatus = Literal["queued", "started", "delivered", "withdrawn"]
SessionStatus = Literal["idle", "queued", "running", "waiting", "needs_input", "closed"]


class Message(msgspec.Struct):
    """``kind``: a message starts a turn, a steer goes into a running one. ``due``: its place in the queue, by
    time (ms); ``not_before``: its turn starts no earlier, 0 for at once."""

    id: str
    kind: Literal["message", "steer"]
    text: Payload
    seq: int
    time: int
    status: MessageStatus = "queued"
    turn: str | None = None
    delivered_in: str | None = None
    not_before: int = 0
    due: int = 0
    remark: bool = False


class ToolCall(msgspec.Struct, array_like=True, gc=False):
    """One action that the model asked for. ``outcome`` is written once. ``request``: that of the last
    ``events.ToolReleased``."""

    id: str
    name: str
    input: Payload
    model_call: str
    turn: str
    policy: ReplayPolicy
    origin: ToolOrigin
    requested_seq: int
    requested: int
    agent: str | None = None
    released_in: str | None = None
    released: int | None = None
    released_seq: int = 0
    releases: int = 0
    request: int | None = None
    key: str = ""
    outcome: Outcome | None = None
    outcome_seq: int = 0
    finished: int | None = None
    result: Payload | None = None
    detail: Payload | None = None
    source: Source | None = None
    repeats: str | None = None

    @property
    def open(self) -> bool:
        """No outcome yet."""
        return self.outcome is None


class ModelCall(msgspec.Struct, array_like=True, gc=False):
    """One request to the provider. Its request's parts stay in the log, at ``requested_seq``."""

    id: str
    key: str
    life: str
    turn: str
    wire: str
    model: str
    path: str
    requested_seq: int
    requested: int
    agent: str | None = None
    base: str | None = None
    status: Literal["requested", "completed", "failed", "lost"] = "requested"
    completed_seq: int = 0
    finished: int | None = None
    http_status: int | None = None
    content_type: str = ""
    body: Payload | None = None
    response_id: str = ""
    stop_reason: str = ""
    usage: Usage = Usage()
    tool_calls: tuple[str, ...] = ()
    reason: str = ""
    replays: list[str] = []


class Withheld(msgspec.Struct, frozen=True):
    """Media that the provider refused in ``call``, whose request has the original."""

    media: Media
    call: str
    reason: str


class Move(msgspec.Struct, frozen=True):
    """Where the session went, with all records before ``seq``, and what its row says there."""

    to: str
    seq: int
    status: str
    due: int | None


class Fork(msgspec.Struct, frozen=True):
    """Where the session comes from: ``parent`` as of its event ``at``, which worked in ``workspace``. The
    record that says so is at ``seq``."""

    parent: str
    at: int
    seq: int
    workspace: str


class Life(msgspec.Struct):
    """One run of a harness process. ``why`` and ``oom_kills``: as in ``events.LifeEnded``."""

    id: str
    number: int
    turn: str
    sandbox: str
    run_dir: str
    host: str
    harness_version: str
    started: int
    workers: list[str] = []
    rung: Rung = "start"
    ended: int | None = None
    reason: str = ""
    code: int | None = None
    progress: int = 0
    started_seq: int = 0
    ended_seq: int = 0
    why: str = ""
    oom_kills: int = 0


class Turn(msgspec.Struct):
    """The work that a message started. ``fruitless`` counts its lives in a row that made no progress;
    ``rescued`` how often, since the last progress, it went on by itself after the harness had given it up."""

    id: str
    started_seq: int
    started: int
    status: TurnStatus = "running"
    finished: int | None = None
    ended_seq: int = 0
    lives: list[str] = []
    model_calls: list[str] = []
    tool_calls: list[str] = []
    told: list[str] = []
    stop_by: str | None = None
    text: Payload | None = None
    code: str = ""
    reason: str = ""
    fruitless: int = 0
    rescued: int = 0

    @property
    def settled(self) -> bool:
        """Nothing more will happen in it unless a person asks."""
        return self.status not in ("running", "interrupted")


class Segment(msgspec.Struct, frozen=True):
    """``keep`` lines of a transcript, from line ``skip`` on of those in the event at ``seq``."""

    seq: int
    keep: int
    skip: int = 0


class Transcript(msgspec.Struct):
    """A file of the harness's own transcript: where its lines are in the log. ``summed_seq`` is the last
    event that left out what a later line sums up, ``shown`` what that showed to be delivered."""

    file: str
    segments: list[Segment] = []
    summed_seq: int = 0
    shown: tuple[str, ...] = ()

    @property
    def lines(self) -> int:
        return sum(segment.keep for segment in self.segments)

    def part(self, start: int, end: int | None = None) -> list[Segment]:
        """Where the lines from ``start`` up to ``end`` (None: to the last) are."""
        found: list[Segment] = []
        place = 0
        for segment in self.segments:
            first = max(start - place, 0)
            last = segment.keep if end is None else min(end - place, segment.keep)
            if first < last:
                found.append(Segment(segment.seq, last - first, segment.skip + first))
            place += segment.keep
        return found


class Permission(msgspec.Struct):
    request: str
    call: str
    name: str
    life: str
    asked: int
    allow: bool | None = None
    by: str = ""
    reason: str = ""
    asked_seq: int = 0


class Files(msgspec.Struct):
    """The workspace as the log has it: ``root`` since the event at ``seq`` (empty: it has none), after so
    many ``steps``; ``base`` is the last root that was not merely found.
    ``uncovered_seq``: since then changes could not be saved, for the reason in ``skipped``; 0 if they are.
    ``found``: paths that were changed by nobody knows what, as far as they are named, and since no call has
    finished; there are ``found_more`` besides."""

    root: str = ""
    seq: int = 0
    steps: int = 0
    base: str = ""
    uncovered_seq: int = 0
    skipped: str = ""
    left_out: tuple[LeftOut, ...] = ()
    left_out_more: int = 0
    found: tuple[str, ...] = ()
    found_more: int = 0


class Session(msgspec.Struct):
    """The whole of a session, as of ``seq``. ``displaced_seq`` is the last claim after which the worker
    before may have been alive still. ``withheld``: by digest. ``cut_off`` are
    the calls whose outcome is unknown or cancelled, ``refused`` those that would have repeated one.
    ``queue_time``: the latest place in the queue of a message that may start at once."""

    seq: int = 0
    epoch: int = 0
    created: int = 0
    updated: int = 0
    native_id: str = ""
    title: str = ""
    agent: AgentSpec | None = None
    worker: str = ""
    closed: bool = False
    messages: dict[str, Message] = {}
    turns: dict[str, Turn] = {}
    lives: dict[str, Life] = {}
    model_calls: Calls[ModelCall] = msgspec.field(default_factory=lambda: Calls(ModelCall))
    tool_calls: Calls[ToolCall] = msgspec.field(default_factory=lambda: Calls(ToolCall))
    transcripts: dict[str, Transcript] = {}
    permissions: dict[str, Permission] = {}
    offsets: dict[str, int] = {}
    displaced_seq: int = 0
    withheld: dict[str, Withheld] = {}
    cut_off: list[str] = []
    refused: list[str] = []
    queue_time: int = 0
    moved: Move | None = None
    files: Files = msgspec.field(default_factory=Files)
    forked: Fork | None = None

    @property
    def unmade(self) -> bool:
        """Is it a fork whose own files were not made yet?"""
        return self.forked is not None and bool(self.files.root) and self.files.seq < self.forked.seq

    @property
    def untold(self) -> Fork | None:
        """Where it comes from, as long as its model was not told so: until a harness has a message of its
        own. A turn may end before that."""
        fork = self.forked
        if fork is None:
            return None
        own = (one for one in self.messages.values() if one.seq > fork.seq and not one.remark)
        completed = {turn.id for turn in self.turns.values() if turn.status == "completed"}
        return None if any(one.delivered_in or one.id in completed for one in own) else fork

    @property
    def turn(self) -> Turn | None:
        """The turn that is not settled, if there is one; at most one is open at a time."""
        last = next(reversed(self.turns.values()), None)
        return last if last is not None and not last.settled else None

    @property
    def last_turn(self) -> Turn | None:
        return next(reversed(self.turns.values()), None)

    @property
    def life(self) -> Life | None:
        """The life that has not ended, if there is one."""
        last = next(reversed(self.lives.values()), None)
        return last if last is not None and last.ended is None else None

    @property
    def queued(self) -> list[Message]:
        """Messages that have not started a turn, in the order in which they will."""
        waiting = [m for m in self.messages.values() if m.kind == "message" and m.status == "queued"]
        return sorted(waiting, key=lambda message: (message.due, message.seq))

    @property
    def due(self) -> int | None:
        """When somebody has to look at it (ms): 0 if a turn is open, a message can start or a life was left
        behind; a time if a message waits for it; None if there is nothing to do but for a person."""
        if self.moved is not None or self.parked:
            return None
        if self.turn is not None or self.life is not None:
            return 0
        return min((message.not_before for message in self._startable), default=None)

    def next_message(self, now: int) -> Message | None:
        """The message that starts the next turn, if one may do so ``now`` (ms)."""
        if self.turn is not None:
            return None
        return next((message for message in self._startable if message.not_before <= now), None)

    @property
    def _startable(self) -> list[Message]:
        """Those that were waiting when a turn came to need a person go on waiting for that person; what is
        sent afterwards is their answer."""
        last = self.last_turn
        after = last.ended_seq if last is not None and last.status == "needs_input" else 0
        return [] if self.closed else [message for message in self.queued if message.seq > after]

    @property
    def status(self) -> SessionStatus:
        """One word for lists. ``waiting``: a turn is running, and a person is asked if a call may run."""
        if self.closed:
            return "closed"
        if self.turn is not None:
            return "waiting" if self.unanswered else "running"
        waiting, last = self._startable, self.last_turn
        if last is not None and last.status == "needs_input" and all(m.not_before for m in waiting):
            return "needs_input"
        return "queued" if waiting else "idle"

    @property
    def unanswered(self) -> frozenset[str]:
        """Permission requests that wait for a person, about calls that could still run."""
        asked = [one for one in self.permissions.values() if one.allow is None]
        calls = {one.request: self.tool_calls.get(one.call) for one in asked}
        return frozenset(request for request, call in calls.items() if call is not None and call.open)

    @property
    def parked(self) -> bool:
        """Whether a turn is open that nobody can get further before a person has answered."""
        turn = self.turn
        return turn is not None and turn.stop_by is None and self.life is None and bool(self.unanswered)

    def steers(self, turn: str) -> list[Message]:
        """Steers of a turn that the harness has not acknowledged."""
        return [
            m
            for m in self.messages.values()
            if m.kind == "steer" and m.turn == turn and m.status not in ("delivered", "withdrawn")
        ]

    def calls(self, turn: Turn) -> list[ToolCall]:
        return [self.tool_calls[call] for call in turn.tool_calls]
