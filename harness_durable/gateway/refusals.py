"""What a provider's error means, as one sentence with the next step. Pure. For the log and for people; the
harness gets the answer as it was."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import cast

_KEY = "set another key with ANTHROPIC_API_KEY or HARNESS_DURABLE_UPSTREAM_KEY"
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


def refusal(status: int, body: str, retry_after: str = "") -> str:
    """``body`` is what the provider said with this error status, already free of secrets; ``retry_after`` its
    header. Begins with the status."""
    then = _NEXT.get(status, _AGAIN if status >= 500 else "see what the provider says")
    wait = f" (it asks to wait {retry_after} s)" if retry_after.isdigit() else ""
    return f"{status} {_said(body)[:_LONGEST]}; {then}{wait}"


def _said(body: str) -> str:
    """The message within an error of this API, or the text as it is."""
    try:
        found = cast(object, json.loads(body))
    except (ValueError, RecursionError):
        return " ".join(body.split()) or "without a word"
    error = cast(Mapping[str, object], found).get("error") if isinstance(found, dict) else None
    message = cast(Mapping[str, object], error).get("message") if isinstance(error, dict) else None
    return message if isinstance(message, str) and message else " ".join(body.split())
