"""How a turn ended, from the last thing that the model, or the harness in its place, said. Pure."""

from __future__ import annotations

import re

from harness_durable.adapter import TurnEnd

from ..common.shapes import Json, word
from .entries import Entry

LOST = "connection_failed"
"""The code of a turn whose connection broke."""

_STATUS = re.compile(r"(\d{3})\b")
_CONNECTION = re.compile(
    r"connection|fetch failed|network|socket|timed? ?out|terminated|ECONN", re.IGNORECASE
)
_PASSING = (LOST, "api_408", "api_5", "overloaded")


def turn_end(last: Entry | None, stopped_by: str | None) -> TurnEnd:
    """``last``: the newest message of the model. ``stopped_by``: who asked for a stop, if anybody did."""
    if last is not None and not last.is_dropped and not (last.calls and stopped_by is not None):
        return TurnEnd("completed", text=last.text)
    if stopped_by is not None:
        return TurnEnd("cancelled", reason=f"{stopped_by} asked for a stop")
    if last is None:
        return TurnEnd("failed", code="no_answer", reason="the harness settled without asking its model")
    code = _code(last)
    reason = last.error or f"the harness gave up ({last.stop})"
    return TurnEnd("failed", code=code, reason=reason, transient=code.startswith(_PASSING))


def _code(last: Entry) -> str:
    status = _STATUS.match(last.error)
    if status is not None:
        return f"api_{status[1]}"
    if "overloaded_error" in last.error:
        return "overloaded"
    return LOST if _CONNECTION.search(last.error) else last.stop


def waiting(frame: Json) -> str:
    """What people are told while the harness waits before it asks again; empty if it does not say so."""
    attempt, most = frame.get("attempt"), frame.get("maxAttempts")
    if frame.get("type") != "auto_retry_start" or not isinstance(attempt, int) or not isinstance(most, int):
        return ""
    why = word(frame.get("errorMessage")).partition("\n")[0][:200]
    return f"waiting {wait_seconds(frame):.0f} s before attempt {attempt + 1} of {most + 1}: {why}"


def wait_seconds(frame: Json) -> float:
    """How long the harness will be silent before it asks the provider again."""
    delay = frame.get("delayMs") if frame.get("type") == "auto_retry_start" else 0
    return delay / 1000 if isinstance(delay, int | float) else 0.0
