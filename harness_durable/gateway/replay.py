"""Which recorded response answers a request. Pure.

Equal requests are answered in order: the k-th of them gets the k-th record. A record is spent once the
harness of this life has it. After an attach that is known of a response of which a call was released when
the harness asked, or has its outcome; any other may be given to the same life once more. That is harmless:
without a call it is only words, and a harness that went on from it asks something else. To keep it back might
cost it: whether the harness read what the dead worker sent, nobody knows. (Calls that the harness runs
without asking have a barrier of their own: ``policy.gate_unasked``.)"""

from __future__ import annotations

from collections.abc import Set as AbstractSet

from harness_durable.state import ModelCall, Session


def recorded(state: Session, key: str, life: str, spent: AbstractSet[str]) -> ModelCall | None:
    """The first completed call with this match key that the harness of ``life`` does not have yet.

    ``spent`` are model calls whose response this worker has given to it (or is giving). Only the current turn
    counts: a later turn may ask the same, a subagent with a fixed prompt for instance, and wants an answer
    about the world as it is then.
    """
    turn = state.last_turn
    for name in turn.model_calls if turn is not None else state.model_calls:
        call = state.model_calls[name]
        fits = call.key == key and call.status == "completed" and call.body is not None
        if fits and name not in spent and not _held(state, call, life) and not _over(state, call):
            return call
    return None


def _over(state: Session, call: ModelCall) -> bool:
    """Is it of a subagent that has finished? Another one may get the very same prompt later, and must see the
    world as it is then. One that goes on has a call that is open since before its first request."""
    calls = (state.tool_calls[name] for name in state.turns[call.turn].tool_calls) if call.turn else ()
    return call.agent is not None and not any(
        tool.open and tool.requested_seq < call.requested_seq for tool in calls
    )


def _held(state: Session, call: ModelCall, life: str) -> bool:
    """Has the harness of this life got it from an earlier worker? It has if it asked to run a call of it, or
    has run one. A call that was released with its response says nothing: see ``policy.gate_unasked``."""
    tools = (state.tool_calls.get(tool) for tool in call.tool_calls)
    return any(
        tool is not None and tool.released_in == life and (tool.request is None or not tool.open)
        for tool in tools
    )
