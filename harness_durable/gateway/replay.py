"""Which recorded response answers a request. Pure.

Equal requests are answered in order: the k-th of them gets the k-th record. A record is spent once the
harness of this life has it."""

from __future__ import annotations

from collections.abc import Set as AbstractSet

from harness_durable.state import ModelCall, Session


def recorded(
    state: Session, key: str, life: str, spent: AbstractSet[str], seen: AbstractSet[str]
) -> ModelCall | None:
    """The first completed call with this match key that the harness of ``life`` does not have yet.

    ``spent`` are model calls whose response this worker has given to it (or is giving); ``seen`` are ids of
    responses that it has shown to hold. Only the current turn counts: a later turn may ask the same, a
    subagent with a fixed prompt for instance, and wants an answer about the world as it is then.
    """
    turn = state.last_turn
    for name in turn.model_calls if turn is not None else state.model_calls:
        call = state.model_calls[name]
        fits = call.key == key and call.status == "completed" and call.body is not None
        if fits and name not in spent and not _held(state, call, life, seen) and not _over(state, call):
            return call
    return None


def _over(state: Session, call: ModelCall) -> bool:
    """Is it of a subagent that has finished? Another one may get the very same prompt later, and must see the
    world as it is then. One that goes on has a call that is open since before its first request."""
    calls = (state.tool_calls[name] for name in state.turns[call.turn].tool_calls) if call.turn else ()
    return call.agent is not None and not any(
        tool.open and tool.requested_seq < call.requested_seq for tool in calls
    )


def _held(state: Session, call: ModelCall, life: str, seen: AbstractSet[str]) -> bool:
    """Has the harness of this life got it from an earlier worker? It has if it ran a call of it."""
    if call.response_id and call.response_id in seen:
        return True
    tools = (state.tool_calls.get(tool) for tool in call.tool_calls)
    return any(tool is not None and tool.released_in == life for tool in tools)
