"""What to do with a session that a worker has just claimed. Pure: a plan can be printed before it is done.

The ladder: *attach* to a harness that is still there; else *continue* the same turn in a new life, built
from the log; stop and ask a person after ``MAX_FRUITLESS`` lives in a row that made no progress. A stop
that somebody asked for wins over all of it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

import msgspec

from harness_durable.events import ReplayPolicy
from harness_durable.policy import strictest
from harness_durable.state import Session, ToolCall, Turn

MAX_FRUITLESS = 4
"""Lives without a finished model or tool call. Four, since one may be lost to the crash itself, one to the
machine around it, and the third that dies in the same place is a pattern."""

Step = Literal["idle", "start", "attach", "continue", "cancel", "needs_input"]
Action = Literal["keep", "wait", "replay", "run", "again", "probe", "unknown", "not_started"]


class CallPlan(msgspec.Struct, frozen=True):
    """One call and what becomes of it.

    ``keep``: its recorded outcome is used. ``wait``: it goes on in the living harness. ``replay``: its
    response is given to the harness again from the log, and it passes the barrier as usual. ``run``: a
    custom tool runs (again) now, in the worker. ``again``: the model is told that it may repeat it.
    ``probe``: the tool is asked whether it happened. ``unknown`` and ``not_started``: that outcome is
    written, and the model told so."""

    call: str
    name: str
    action: Action
    why: str


class Plan(msgspec.Struct, frozen=True):
    """``turn`` is the turn to work on; ``message`` the one to start it with; ``life`` the one to attach to or
    to end; ``lost`` are model calls whose answer died with a worker."""

    rung: Step
    reason: str
    turn: str = ""
    message: str = ""
    life: str = ""
    calls: tuple[CallPlan, ...] = ()
    lost: tuple[str, ...] = ()


class Facts(msgspec.Struct, frozen=True):
    """What the log cannot know. ``policies`` are today's, by tool name; ``probes`` the tools that have one;
    ``containers`` the harness's tools that hold a loop of their own (subagents); ``asks`` whether a person is
    asked before a call that is not safe; ``rival`` that the last worker may still be alive, so that a tool
    which it runs may have its effect later than any probe can tell; ``now`` the time (ms, wall clock), before
    which no delayed message starts; ``supplies`` is the adapter's: see ``Capabilities``."""

    keeper_alive: bool
    policies: Mapping[str, ReplayPolicy] = {}
    probes: frozenset[str] = frozenset()
    containers: frozenset[str] = frozenset()
    asks: bool = False
    rival: bool = False
    now: int = 0
    supplies: bool = False


def plan(state: Session, facts: Facts) -> Plan:
    """The next thing to do with this session."""
    if state.moved is not None:
        return Plan("idle", f"it was moved to {state.moved.to}")
    turn = state.turn
    if turn is None:
        return _next_message(state, facts)
    life = state.life.id if state.life is not None else ""
    lost = tuple(call for call in turn.model_calls if state.model_calls[call].status == "requested")
    if turn.stop_by is not None:
        calls = tuple(_cut_off(state, call, facts) for call in state.calls(turn) if call.open)
        return Plan("cancel", f"{turn.stop_by} asked for a stop", turn.id, life=life, calls=calls, lost=lost)
    if facts.keeper_alive and life:
        calls = tuple(_attached(state, call, facts) for call in state.calls(turn) if call.open)
        return Plan("attach", "the harness is still running", turn.id, life=life, calls=calls, lost=lost)
    if state.unanswered:
        return Plan("idle", "a person is asked whether a call may run", turn.id, life=life, lost=lost)
    if turn.fruitless >= MAX_FRUITLESS:
        reason = f"{turn.fruitless} lives in a row ended without a finished model or tool call"
        last = state.lives[turn.lives[-1]].reason if turn.lives else ""
        reason = f"{reason}; the last one: {last}" if last else reason
        return Plan("needs_input", reason, turn.id, life=life, lost=lost)
    calls = tuple(_continued(state, turn, facts))
    return Plan(
        "continue", "the harness is gone; the turn goes on from the log", turn.id, "", life, calls, lost
    )


def orphaned(state: Session, life: str) -> str:
    """Why nobody will come back for this life, in words; empty if somebody may. Asked of a life that was seen
    before the log was read. Lives are never begun twice nor end twice, so the answer, if there is one, stays
    true however late it is acted upon."""
    known = state.lives.get(life)
    if known is None:
        return "the log does not know it"
    if known.ended is not None:
        return f"the log says that it is over: {known.reason}"
    return "" if next(reversed(state.lives)) == life else "a newer life has taken its place"


def at_rest(state: Session, containers: frozenset[str]) -> bool:
    """Is nothing under way that would be cut off: no model call, no call that was released and has no
    outcome? A subagent is not cut off by its own life's end, only its calls are."""
    turn = state.turn
    return turn is not None and not (
        any(state.model_calls[call].status == "requested" for call in turn.model_calls)
        or any(
            call.open and call.released_in is not None and call.name not in containers
            for call in state.calls(turn)
        )
    )


def may_leave(state: Session, containers: frozenset[str]) -> bool:
    """Could the life be ended now, and the next one go on from the log as if nothing had been? At rest,
    between calls: no response half done, nor one that will settle the turn anyway."""
    turn = state.turn
    if turn is None or not turn.model_calls or not at_rest(state, containers):
        return False
    calls = [call for call in state.calls(turn) if call.name not in containers]
    half = {call.model_call for call in calls if call.open}
    begun = {call.model_call for call in calls if not call.open}
    return bool(state.model_calls[turn.model_calls[-1]].tool_calls) and not half & begun


def _next_message(state: Session, facts: Facts) -> Plan:
    life = state.life.id if state.life is not None else ""
    message = state.next_message(facts.now)
    if message is None:
        reason = "a message waits for its time" if state.status == "queued" else "nothing to do"
        return Plan("idle", reason, life=life)
    return Plan("start", "a message is waiting", turn=message.id, message=message.id, life=life)


def _effective(call: ToolCall, facts: Facts) -> ReplayPolicy:
    return strictest(call.policy, facts.policies.get(call.name, call.policy))


def _attached(state: Session, call: ToolCall, facts: Facts) -> CallPlan:
    """The harness lives. Only a custom tool that ran inside the dead worker was cut off."""
    if call.origin == "custom" and call.released_in is not None:
        return _by_policy(state, call, facts)
    return CallPlan(call.id, call.name, "wait", "it belongs to the living harness")


def _continued(state: Session, turn: Turn, facts: Facts) -> list[CallPlan]:
    """Decide response by response, since a response is replayed whole or not at all."""
    responses: dict[str, list[ToolCall]] = {}
    for call in state.calls(turn):
        responses.setdefault(call.model_call, []).append(call)
    plans: list[CallPlan] = []
    for calls in responses.values():
        for call in calls:
            if call.open:
                plans.append(_within(state, call, calls, facts))
    return plans


def _within(state: Session, call: ToolCall, siblings: list[ToolCall], facts: Facts) -> CallPlan:
    began = [c for c in siblings if c.released_in is not None or not c.open]
    unasked = any(c.request is not None for c in siblings)  # the harness would run it again, unasked
    if call.name in facts.containers and not unasked:
        return CallPlan(call.id, call.name, "replay", "a subagent: its own calls are answered from the log")
    if not began:
        return CallPlan(call.id, call.name, "replay", "no call of its response was released")
    if call.released_in is not None:
        return _by_policy(state, call, facts)
    held = facts.supplies or any(c.name in facts.containers and c.open for c in siblings)
    given = held and not unasked
    if call.agent is not None or given:
        return CallPlan(call.id, call.name, "replay", "never released; its response is given again")
    allowed = any(asked.call == call.id and asked.allow for asked in state.permissions.values())
    if facts.asks and not allowed:
        return CallPlan(call.id, call.name, "not_started", "nobody has allowed it, and its siblings began")
    if call.origin == "custom":
        return CallPlan(call.id, call.name, "run", "never released, so it runs now")
    return CallPlan(call.id, call.name, "not_started", "never released, and its siblings were")


def _cut_off(state: Session, call: ToolCall, facts: Facts) -> CallPlan:
    """Before a cancelled turn: nothing runs again, only the truth is written."""
    if call.released_in is None:
        return CallPlan(call.id, call.name, "not_started", "never released, and the turn is stopped")
    if call.origin == "custom" and call.name in facts.probes and not _rival(state, call, facts):
        return CallPlan(call.id, call.name, "probe", "released without outcome; the tool can be asked")
    return CallPlan(call.id, call.name, "unknown", "released without outcome, and the turn is stopped")


def _rival(state: Session, call: ToolCall, facts: Facts) -> bool:
    """Could the worker that released this call still be running it? Then "not happened" proves nothing."""
    return facts.rival or state.displaced_seq > call.released_seq


def _by_policy(state: Session, call: ToolCall, facts: Facts) -> CallPlan:
    """Released, no outcome."""
    policy = _effective(call, facts)
    ours = call.origin == "custom"
    if call.releases >= MAX_FRUITLESS:
        return CallPlan(call.id, call.name, "unknown", f"cut off {call.releases} times; it may be the cause")
    if policy == "safe":
        given = call.agent is not None or facts.supplies
        action: Action = "run" if ours else ("replay" if given else "again")
        return CallPlan(call.id, call.name, action, "released without outcome; repeating it is safe")
    if policy == "idempotent" and ours:
        return CallPlan(call.id, call.name, "run", "released without outcome; same idempotency key")
    if ours and call.name in facts.probes and not _rival(state, call, facts):
        return CallPlan(call.id, call.name, "probe", "released without outcome; the tool can be asked")
    return CallPlan(call.id, call.name, "unknown", "released without outcome, and it must not be repeated")
