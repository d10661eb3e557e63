"""What a provider's error means, as one sentence with the next step. Pure. For the log and for people; the
harness gets the answer as it was."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import cast

_KEY = "set another key with ANTHROPIC_API_KEY, OPENAI_API_KEY or HARNESS_DURABLE_UPSTREAM_KEY"
_LONGEST = 400
_AGAIN = "the harness tries again by itself"
_NEXT = {
    400: "the provider cannot use this request; see what it says",
    401: f"the provider does not know the key; {_KEY}",
    402: "the account behind the key has no credit; top it up",
    403: f"the key may not do this; {_KEY}",
    404: "the provider has no such model or address; check the model and HARNESS_DURABLE_UPSTREAM_URL",
    413: "the conversation is too large for the provider; begin a new session",
    429: f"too many requests; {_AGAIN}",
    529: f"the provider is overloaded; {_AGAIN}",
}

PATIENCE = 60
"""Seconds that harnesses are known to wait; when the provider asks for more, they give up at once."""
_LIMITS = (429, 503, 529)
_USED_UP = ("billing_error", "budget_exceeded", "insufficient_quota", "quota_exceeded")
"""Types and codes of errors that say: no wait of a minute will help. Some come from gateways of others."""
_LATER = "3600"


def refusal(status: int, body: str, retry_after: str = "") -> str:
    """``body`` is what the provider said with this error status, already free of secrets; ``retry_after`` its
    header. Begins with the status."""
    then = _NEXT.get(status, _AGAIN if status >= 500 else "see what the provider says")
    if _used_up(status, body):
        then = "what the account may use is used up; wait until it comes back, or top it up"
    elif retry_after.isdigit() and int(retry_after) > PATIENCE and status in _LIMITS:
        then = "nobody waits that long; send the message again later"
    wait = f" (it asks to wait {retry_after} s)" if retry_after.isdigit() else ""
    return f"{status} {message(body)[:_LONGEST]}; {then}{wait}"


def told_to_wait(status: int, body: str, headers: Sequence[tuple[str, str]]) -> list[tuple[str, str]]:
    """The headers of an error for the harness: as they are, except that a limit that is used up comes with a
    wait that no harness waits for. Or the turn would hang in tries that cannot help."""
    wait = next((value for name, value in headers if name == "retry-after"), "")
    if not _used_up(status, body) or (wait.isdigit() and int(wait) > PATIENCE):
        return list(headers)
    return [(name, value) for name, value in headers if name != "retry-after"] + [("retry-after", _LATER)]


def _used_up(status: int, body: str) -> bool:
    error = _error(body)
    return status in _LIMITS and any(error.get(name) in _USED_UP for name in ("type", "code"))


def message(body: str) -> str:
    """The message within an error of this API, or the text as it is."""
    said = _error(body).get("message")
    if isinstance(said, str) and said:
        return said
    return " ".join(body.split()) or "without a word"


def _error(body: str) -> Mapping[str, object]:
    """The error object; empty if there is none."""
    try:
        found = cast(object, json.loads(body))
    except (ValueError, RecursionError):
        return {}
    error = cast(Mapping[str, object], found).get("error") if isinstance(found, dict) else None
    return cast(Mapping[str, object], error) if isinstance(error, dict) else {}
