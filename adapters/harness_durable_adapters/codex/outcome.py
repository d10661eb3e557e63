"""How a turn ended, from what the harness says at its end. Pure."""

from __future__ import annotations

from harness_durable.adapter import TurnEnd
from harness_durable.state import Session

from ..common.shapes import Json, mapping, objects, word

_FINAL = (400, 401, 402, 403, 404, 405, 413, 422)
"""Answers of a provider that stay the same however often one asks."""
_PASSING = 408
"""An answer that another attempt may not get; so are all of 500 and more. A rate limit is not one: it has
been waited for."""
_WORDS = {
    "serverOverloaded": 503,
    "internalServerError": 500,
    "rateLimitExceeded": 429,
    "usageLimitExceeded": 402,
    "unauthorized": 401,
    "badRequest": 400,
    "modelNotFound": 404,
    "contextWindowExceeded": 413,
}
_TOO_OFTEN = 429
PAUSES = (2.0, 5.0, 15.0, 30.0, 60.0, 60.0, 60.0)
"""Seconds before each further attempt after the provider said that it was asked too often."""
LOST = "connection_failed"
"""The code of a turn whose connection broke."""


def turn_end(turn: Json, state: Session, stopped_by: str | None) -> TurnEnd:
    """From the ``turn`` of a ``turn/completed``. ``stopped_by``: who asked for a stop, if anybody did."""
    status = turn.get("status")
    if status == "completed":
        said = [word(item.get("text")) for item in objects(turn.get("items"))]
        return TurnEnd("completed", text=next((text for text in reversed(said) if text), ""))
    if stopped_by is not None:
        return TurnEnd("cancelled", reason=f"{stopped_by} asked for a stop")
    if status == "interrupted":
        return TurnEnd("failed", code="interrupted", reason="Codex broke the turn off by itself")
    return _failed(mapping(turn.get("error")), state)


def hopeless(error: Json, state: Session) -> TurnEnd | None:
    """The harness is about to try again what cannot get better: end the turn now."""
    return _failed(error, state) if status_of(error) in _FINAL else None


def waiting(error: Json) -> str:
    """What people are told while the harness tries again."""
    why = word(error.get("additionalDetails")) or word(error.get("message"))
    return f"the model provider was not reached, Codex tries again: {why}"


def pause(turn: Json, failures: int) -> float:
    """How long to wait before a turn that failed is gone on with, in seconds; 0: it is not. The harness gives
    a turn up as soon as its provider says that it comes too often. ``failures``: in a row, this one too."""
    if turn.get("status") != "failed" or failures > len(PAUSES):
        return 0.0
    return PAUSES[failures - 1] if status_of(mapping(turn.get("error"))) == _TOO_OFTEN else 0.0


def status_of(error: Json) -> int:
    """The provider's status; 0 if there was none."""
    told = error.get("codexErrorInfo")
    if isinstance(told, str):
        return _WORDS.get(told, 0)
    for about in mapping(told).values():
        status = mapping(about).get("httpStatusCode")
        if isinstance(status, int):
            return status
    return 0


def _failed(error: Json, state: Session) -> TurnEnd:
    status = status_of(error)
    reasons = [call.reason for call in state.model_calls.values() if call.http_status == status and status]
    reason = (reasons[-1] if reasons else "") or word(error.get("message")) or "Codex gave no reason"
    code = f"api_{status}" if status else _word_of(error)
    return TurnEnd("failed", code=code, reason=reason, transient=_passes(status, code))


def _passes(status: int, code: str) -> bool:
    return status >= 500 or status == _PASSING or code == LOST


def _word_of(error: Json) -> str:
    told = error.get("codexErrorInfo")
    if isinstance(told, str) and told != "other":
        return told
    return LOST if mapping(told) else "failed"
