"""A session as spans of time, for the formats that are about time. Pure.

Every run of a call is a span of its own, also the lost ones, and knows the run that came after it. What
surprises: a lost run ends when its life did, not when recovery found out, which may be days later."""

from __future__ import annotations

from itertools import pairwise
from typing import Literal

import msgspec

from harness_durable import events as ev
from harness_durable.exports.fields import SETTLED
from harness_durable.exports.material import Material
from harness_durable.state import Life, ModelCall, ToolCall

Kind = Literal["session", "turn", "life", "model", "tool"]
Status = Literal["done", "failed", "lost", "open"]
_FAILED = frozenset({"failed", "cancelled", "not_started", "needs_input", "interrupted"})


class Span(msgspec.Struct):
    """``seq`` is the event that begins it, and with ``kind`` its identity. Times in ms. ``word`` is what
    became of it in our vocabulary. ``parent`` and ``successor`` are other spans; ``lane`` is the number of
    its life, 0 for none. ``id`` is that of the turn, life or call."""

    kind: Kind
    seq: int
    id: str
    name: str
    start: int
    end: int
    status: Status = "done"
    word: str = ""
    reason: str = ""
    lane: int = 0
    run: int = 1
    parent: Span | None = None
    successor: Span | None = None


class Spans:
    """All spans of a session, parents before children; and which one an event belongs to."""

    def __init__(self, material: Material) -> None:
        self._material, self._state, self._now = material, material.state, material.state.updated
        self._lives: dict[str, Span] = {}
        self._turns: dict[str, Span] = {}
        self._models: dict[str, Span] = {}
        self._tools: dict[str, list[Span]] = {}
        first = material.entries[0] if material.entries else None
        begun = first.time if first is not None else 0
        self.session = Span("session", 1, material.session, f"session {material.session}", begun, self._now)
        if not self._state.closed:
            self.session.status, self.session.word = "open", self._state.status
        for turn in self._state.turns.values():
            self._turn(turn.id)
        self._all_lives(material)
        for call in self._state.model_calls.values():
            self._models[call.id] = self._model(call)
        releases: dict[str, list[tuple[ev.Entry, str]]] = {}
        for entry in material.entries:
            if isinstance(entry.event, ev.ToolReleased):
                releases.setdefault(entry.event.call, []).append((entry, entry.event.life))
        for tool in self._state.tool_calls.values():
            self._tools[tool.id] = list(self._runs(tool, releases.get(tool.id, [])))
        self._succeed()

    def all(self) -> list[Span]:
        tools = [run for runs in self._tools.values() for run in runs]
        return [self.session, *self._turns.values(), *self._lives.values(), *self._models.values(), *tools]

    def of(self, event: ev.AnyEvent) -> Span:
        """The innermost span that an event is about."""
        call: object = getattr(event, "call", None)
        if isinstance(call, str):
            if call in self._models:
                return self._models[call]
            if self._tools.get(call):
                return next(
                    (run for run in self._tools[call] if run.lane == self._lane(getattr(event, "life", ""))),
                    self._tools[call][-1],
                )
        life: object = getattr(event, "life", None)
        if isinstance(life, str) and life in self._lives:
            return self._lives[life]
        turn: object = getattr(event, "turn", None)
        return self._turns.get(turn, self.session) if isinstance(turn, str) else self.session

    def _turn(self, name: str) -> None:
        turn = self._state.turns[name]
        span = Span("turn", turn.started_seq, name, f"turn {name}", turn.started, turn.finished or self._now)
        span.word, span.reason, span.parent = turn.status, turn.reason, self.session
        span.status = "open" if turn.finished is None else "done"
        if turn.finished is not None and turn.status in _FAILED:
            span.status = "failed"
        self._turns[name] = span

    def _all_lives(self, material: Material) -> None:
        last: dict[str, Span] = {}
        for entry in material.entries:
            match entry.event:
                case ev.LifeStarted(life=name) if name not in self._lives:
                    span = self._life(self._state.lives[name], entry.seq)
                    before = last.get(span.parent.id) if span.parent is not None else None
                    if before is not None and before.status == "lost":
                        before.successor = span
                    self._lives[name] = last[entry.event.turn] = span
                case ev.TurnInterrupted(turn=turn, planned=True) if turn in last:
                    last[turn].status, last[turn].word = "done", "stopped"
                case _:
                    pass

    def _life(self, life: Life, seq: int) -> Span:
        span = Span("life", seq, life.id, f"life {life.number}", life.started, life.ended or self._now)
        span.lane, span.reason = life.number, life.reason
        span.parent = self._turns.get(life.turn, self.session)
        if life.ended is None:
            span.status, span.word = "open", "running"
        elif life.reason == SETTLED:
            span.word = "ended"
        else:
            span.status, span.word = "lost", "process_lost"
        return span

    def _model(self, call: ModelCall) -> Span:
        life = self._lives.get(call.life)
        span = Span("model", call.requested_seq, call.id, f"chat {call.model}", call.requested, self._now)
        span.parent, span.lane = self._above(life, call.turn), life.lane if life is not None else 0
        span.word, span.reason, span.end = call.status, call.reason, call.finished or self._now
        match call.status:
            case "requested" if life is None or life.status == "open":
                span.status = "open"
            case "requested" | "lost":
                span.status, span.word = "lost", "process_lost"
                span.end = _within(span, life)
            case "failed":
                span.status = "failed"
            case "completed":
                pass
        return span

    def _runs(self, call: ToolCall, releases: list[tuple[ev.Entry, str]]) -> list[Span]:
        """A span for each time that the call was let run; one for a call that never was."""
        begun = [(entry.seq, entry.time, self._lives.get(life)) for entry, life in releases]
        asked = self._state.model_calls.get(call.model_call)
        never = (
            call.requested_seq,
            call.requested,
            self._lives.get(asked.life) if asked is not None else None,
        )
        runs: list[Span] = []
        for number, (seq, time, life) in enumerate(begun or [never], 1):
            span = Span("tool", seq, call.id, f"execute_tool {call.name}", time, call.finished or self._now)
            span.parent, span.lane = self._above(life, call.turn), life.lane if life is not None else 0
            span.run, span.word = number, call.outcome or "open"
            if number < len(begun):
                span.status, span.word, span.end = "lost", "process_lost", begun[number][1]
                span.end = _within(span, life)
            elif call.outcome is None:
                span.status = "open"
            elif call.outcome == "unknown":
                span.status, span.end = "lost", _within(span, life)
            elif call.outcome in _FAILED:
                span.status = "failed"
            runs.append(span)
        for one, other in pairwise(runs):
            one.successor = other
        return runs

    def _above(self, life: Span | None, turn: str) -> Span:
        return life if life is not None else self._turns.get(turn, self.session)

    def _lane(self, life: object) -> int:
        found = self._lives.get(life) if isinstance(life, str) else None
        return found.lane if found is not None else -1

    def _succeed(self) -> None:
        """Which later call took the place of a lost one: the same request again, the model's repeat."""
        models = list(self._state.model_calls.values())
        for place, call in enumerate(models):
            if self._models[call.id].status == "lost":
                later = [
                    one for one in models[place + 1 :] if (one.agent, one.turn) == (call.agent, call.turn)
                ]
                same = [one for one in later if one.key == call.key] or later
                self._models[call.id].successor = self._models[same[0].id] if same else None
        tools = list(self._state.tool_calls.values())
        for place, tool in enumerate(tools):
            last = self._tools[tool.id][-1]
            if last.status == "lost":
                repeat = next((one for one in tools[place + 1 :] if self._repeats(one, tool)), None)
                last.successor = self._tools[repeat.id][0] if repeat is not None else None

    def _repeats(self, later: ToolCall, tool: ToolCall) -> bool:
        if later.repeats is not None:
            return later.repeats == tool.id
        wanted, given = self._input(tool), self._input(later)
        return later.name == tool.name and wanted is not None and given == wanted

    def _input(self, call: ToolCall) -> bytes | None:
        """As the log has it: a state may have shortened it."""
        event = self._material.event(call.requested_seq)
        return event.input.inline if isinstance(event, ev.ToolRequested) else None


def _within(span: Span, life: Span | None) -> int:
    """When a run that nobody saw the end of ended: with its life, at the latest."""
    if life is None or life.status == "open":
        return span.end
    return max(span.start, min(span.end, life.end))
