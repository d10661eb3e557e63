"""How a turn ended, from what the harness says at its end. Pure.

An exit code or the word "success" is not asked: a failed model call can come with both."""

from __future__ import annotations

import re
from typing import cast

from harness_durable.adapter import TurnEnd
from harness_durable.state import Session

from ..common.shapes import Json, word

_FINAL = (400, 401, 402, 403, 404, 405, 413, 422)
"""Answers of a provider that stay the same however often one asks."""
_PASSING = ("api_408", "api_5")
"""Troubles of the provider that may pass. A rate limit is not one: it has been waited for, or is used up."""
_REFUSED = 401
_LOGIN_ATTEMPTS = 3
"""With a login of the harness's own, a refusal of this attempt is for good: a fresh one was refused, too."""
_STATUS = re.compile(r"API Error: (\d{3})")
_LOST = re.compile(r"API Error: .*(connect|ECONN|socket|network|timed out|mid-response)", re.IGNORECASE)
LOST = "connection_failed"
"""The code of a turn whose connection broke: the word that the newest tested version has for it."""


def turn_end(result: Json, stopped_by: str | None, *, tried: bool = False) -> TurnEnd:
    """From a ``result`` frame. ``stopped_by``: who asked for a stop, if anybody did. ``tried``: the harness
    asked again before it gave up. If it did not, the provider has said that there is no use in it."""
    text, kind = word(result.get("result")), word(result.get("subtype"))
    failed = result.get("is_error") is True or kind not in ("", "success")
    if not failed:
        return TurnEnd("completed", text=text)
    if stopped_by is not None:
        return TurnEnd("cancelled", reason=f"{stopped_by} asked for a stop")
    said = result.get("errors")
    errors = [word(error) for error in cast(list[object], said)] if isinstance(said, list) else []
    reason = text or "; ".join(error for error in errors if error) or kind
    code = _code(result, text, kind)
    passing = code == LOST or (tried and code.startswith(_PASSING))
    return TurnEnd("failed", code=code, reason=reason, transient=passing)


def hopeless(frame: Json, state: Session, *, login: bool) -> TurnEnd | None:
    """The harness is about to try again what cannot get better, up to a hundred times: end the turn now.
    With ``login`` it first gets itself another access token when the old one is refused."""
    status, attempt = frame.get("error_status"), frame.get("attempt")
    if frame.get("subtype") != "api_retry" or status not in _FINAL:
        return None
    if login and status == _REFUSED and isinstance(attempt, int) and attempt < _LOGIN_ATTEMPTS:
        return None
    failed = [call.reason for call in state.model_calls.values() if call.http_status == status]
    return TurnEnd("failed", code=f"api_{status}", reason=failed[-1] if failed else word(frame.get("error")))


def waiting(frame: Json) -> str:
    """What people are told while the harness waits; empty if it does not say that it waits."""
    attempt, most = frame.get("attempt"), frame.get("max_retries")
    if frame.get("subtype") != "api_retry" or not isinstance(attempt, int) or not isinstance(most, int):
        return ""
    status = frame.get("error_status")
    why = f"{status} {word(frame.get('error'))}" if isinstance(status, int) else "the connection broke"
    return f"waiting {wait_seconds(frame):.0f} s before attempt {attempt + 1} of {most + 1}: {why}"


def wait_seconds(frame: Json) -> float:
    """How long the harness will be silent before it asks the provider again; 0 if it says no such thing."""
    delay = frame.get("retry_delay_ms") if frame.get("subtype") == "api_retry" else 0
    return delay / 1000 if isinstance(delay, int | float) else 0.0


def _code(result: Json, text: str, kind: str) -> str:
    status = result.get("api_error_status")
    if isinstance(status, int):
        return f"api_{status}"
    found = _STATUS.search(text)
    if found is not None:
        return f"api_{found[1]}"
    if _LOST.match(text) is not None:
        return LOST
    return word(result.get("terminal_reason")) or kind
