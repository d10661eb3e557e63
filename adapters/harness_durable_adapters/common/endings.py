"""What became of the turn before the one that is to run, in words for the model. Pure."""

from __future__ import annotations

import textwrap

from harness_durable.state import Session

_REASON = 500
"""Characters of a reason that the model is told: reasons can hold whole answers of a provider."""


def ending(state: Session) -> str:
    """Why the last settled turn was not finished, as a clause; empty if it was, or if there is none."""
    turn = next((turn for turn in reversed(state.turns.values()) if turn.settled), None)
    if turn is None or turn.status == "completed":
        return ""
    reason = textwrap.shorten(turn.reason, _REASON, placeholder=" ...").rstrip(".")
    match turn.status:
        case "cancelled":
            return f"it was stopped before its end, because {reason or 'somebody asked for a stop'}"
        case "needs_input":
            return f"it was given up before its end ({reason}), and the next message was sent instead"
        case _:
            return f"it ended with an error ({reason})"
