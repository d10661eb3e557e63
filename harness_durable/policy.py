"""What may be done with a tool call, decided from the state alone.

A call is *requested* by the model, *released* when it may run, and gets one *outcome*. The questions here are
asked at the barrier (may this call run now?) and after a crash (what becomes of a call that was cut off?).
The words that a model reads are here, too, so that they are the same everywhere.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Literal

import msgspec

from harness_durable.events import ReplayPolicy
from harness_durable.state import Permission, Session, ToolCall

UNKNOWN = (
    "outcome_unknown: this call was cut off after it had been released. It may or may not have happened, "
    "wholly or in part. Do not repeat it blindly: look at the current state first, then decide."
)
REFUSED = (
    "outcome_unknown: refused once. An identical call was cut off earlier; it may or may not have happened. "
    "This one did not run. Look at the current state first; if you then still want it, call again."
)
NOT_STARTED = (
    "not_started: this call never ran, because the process that should have run it was lost first. "
    "Nothing happened. Make the call again if it is still needed."
)
AGAIN = (
    "outcome_unknown: this call was cut off, and its result is lost. It is safe to repeat: make the call "
    "again if you still need the result."
)
CANCELLED = (
    "cancelled: this call was stopped on request while it ran. It may have had part of its effect; "
    "look before you repeat it."
)

DONE = "this call has run already, and its harness cannot be kept from running it again"

STOPPED = "not_started: this call did not run, because the turn is being stopped. Nothing happened."

_STRICTNESS: dict[ReplayPolicy, int] = {"never": 0, "idempotent": 1, "safe": 2}


class Verdict(msgspec.Struct, frozen=True):
    """The barrier's answer for one call.

    ``release``: it may run; ``already`` means that it was released before within this very life.
    ``supply``: it has finished; give ``call``'s recorded result instead of running it.
    ``deny``: it must not run; tell the model ``text``; ``already``: it may run already. ``refuse``: as deny,
    and record that ``repeats`` was refused its first identical repeat.
    """

    action: Literal["release", "supply", "deny", "refuse"]
    text: str = ""
    repeats: str = ""
    already: bool = False


def strictest(*policies: ReplayPolicy) -> ReplayPolicy:
    """A call runs again only if the policy stored with it and today's both allow it."""
    return min(policies, key=_STRICTNESS.__getitem__)


def identity(name: str, arguments: bytes) -> tuple[str, str]:
    """Equal for two calls that ask for the same thing: key order and white space do not matter."""
    try:
        value = json.loads(arguments)
        return name, json.dumps(value, sort_keys=True, ensure_ascii=True)
    except (ValueError, RecursionError):
        return name, arguments.decode("utf-8", "backslashreplace")


def gate(state: Session, call: ToolCall, life: str) -> Verdict:
    """May this call run now, in this life? Asked by the barrier, within the journal's decide step."""
    if call.outcome in ("completed", "failed"):
        return Verdict("supply")
    if call.outcome is not None:
        return Verdict("deny", told(call))
    if call.released_in == life:
        return Verdict("release", already=True)
    turn = state.turns.get(call.turn)
    if call.released_in is None and turn is not None and turn.stop_by is not None:
        return Verdict("deny", STOPPED)
    if call.released_in is not None and call.policy != "safe":
        return Verdict("deny", UNKNOWN)
    unknown = unsettled_twin(state, call)
    if unknown is not None:
        return Verdict("refuse", REFUSED, repeats=unknown.id)
    return Verdict("release")


def gate_unasked(state: Session, calls: Sequence[ToolCall], life: str, request: int) -> Verdict:
    """May the harness have the response with these calls, which it runs without asking? Asked before the
    answer to ``request`` goes out. All may run, or none.

    A request that the keeper held got no byte yet, so the same one may be answered again. Another one of the
    same life may come from a harness that lost the response, or from one that runs its calls just now:
    ``deny`` with ``already``. That a call repeats one whose outcome is unknown cannot be refused here: no
    harness could tell its model so."""
    for call in calls:
        turn = state.turns.get(call.turn)
        if turn is not None and turn.stop_by is not None:
            return Verdict("deny", STOPPED)
        if call.released_in == life and call.request != request:
            return Verdict("deny", UNKNOWN, already=True)
        elsewhere = call.released_in is not None and call.released_in != life
        if not call.open or (elsewhere and call.policy != "safe"):
            return Verdict("deny", told(call) if call.outcome not in ("completed", "failed") else DONE)
    return Verdict("release", already=all(call.released_in == life for call in calls))


def unsettled_twin(state: Session, call: ToolCall) -> ToolCall | None:
    """An earlier identical call that was cut off (unknown, or cancelled while it ran) and whose repeat has
    not been refused yet. A refusal within the same response does not count: the model had not read it."""
    others = (state.tool_calls[name] for name in state.refused)
    refused = {other.repeats for other in others if other.model_call != call.model_call}
    mine: tuple[str, str] | None = None
    for other in sorted(
        (state.tool_calls[name] for name in state.cut_off), key=lambda one: one.requested_seq
    ):
        if other.name != call.name or other.id in refused:
            continue
        if other.policy == "safe":
            continue
        mine = mine or identity(call.name, call.input.inline or (call.input.blob or "").encode())
        theirs = identity(other.name, other.input.inline or (other.input.blob or "").encode())
        if mine == theirs:
            return other
    return None


def denied(asked: Permission) -> str:
    """What a model is told about a call that a person did not allow."""
    return f"{asked.by} did not allow this call: {asked.reason or 'no reason given'}"


def told_of_fork(state: Session) -> str:
    """What the model is told with each message to a fork until its harness has one: else it would go on in
    the folder of its parent, by the paths that it has read there. Nothing if there is nothing to tell."""
    fork, agent = state.untold, state.agent
    if fork is None or agent is None:
        return ""
    files = "with the files as they were at this point" if agent.files == "durable" else "with its own files"
    return (
        "\n\n[harness-durable] This conversation was forked here; the other one goes on by itself, in "
        f"{fork.workspace}. From now on you work in {agent.workspace}, {files}: use this folder wherever the "
        "conversation names the former one, and leave that one alone."
    )


def told(call: ToolCall) -> str:
    """What a model is told about a call that did not finish."""
    if call.result is not None and call.result.text is not None:
        return call.result.text
    return {"unknown": UNKNOWN, "cancelled": CANCELLED}.get(call.outcome or "", NOT_STARTED)
