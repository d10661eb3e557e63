"""How a turn ended, from the conversation at its end. Pure."""

from __future__ import annotations

from harness_durable.adapter import TurnEnd

from ..common.shapes import Json, mapping, word
from .conversation import Conversation, Said

MOST_ATTEMPTS = 10
"""Of one model call. The harness itself would ask for ever."""

_GOES_ON = frozenset({"tool-calls", "unknown"})
_REASON = 500
"""Characters of a reason that the log keeps."""
_PASSING = (408, 500, 599)


def turn_end(conversation: Conversation, stopped_by: str | None) -> TurnEnd | None:
    """Of a harness that is idle. None: it has not settled what it was asked."""
    last, user = conversation.last, conversation.last_user
    if last is None or user is None or last.is_user or last.info.get("parentID") != user.id:
        return None
    error = mapping(last.info.get("error"))
    if error:
        return failed(error, stopped_by)
    if not last.finish or last.finish in _GOES_ON or last.info.get("summary") is True:
        return None
    return None if _open(last) else TurnEnd("completed", text=last.text)


def failed(error: Json, stopped_by: str | None) -> TurnEnd:
    """From the error of a message."""
    if stopped_by is not None:
        return TurnEnd("cancelled", reason=f"{stopped_by} asked for a stop")
    data = mapping(error.get("data"))
    name, status = word(error.get("name")), data.get("statusCode")
    said = word(data.get("message")).strip().splitlines()  # the first line, and perhaps a stack trace
    reason = said[0][:_REASON] if said else name or "the harness gave no reason"
    if not isinstance(status, int):
        return TurnEnd("failed", code=name or "error", reason=reason)
    return TurnEnd("failed", code=f"api_{status}", reason=reason, transient=_passes(status))


def gave_up(status: int | None, reason: str) -> TurnEnd:
    """After the last attempt. A rate limit has been waited for, so it is no trouble that passes soon."""
    code = f"api_{status}" if status is not None else "connection_failed"
    return TurnEnd("failed", code=code, reason=reason, transient=status is None or _passes(status))


def _passes(status: int) -> bool:
    timeout, first, last = _PASSING
    return status == timeout or first <= status <= last


def _open(said: Said) -> bool:
    return any(mapping(part.get("state")).get("status") in ("pending", "running") for part in said.tools)
