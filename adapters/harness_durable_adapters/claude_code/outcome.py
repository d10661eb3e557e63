"""How a turn ended, from what the harness says at its end. Pure.

An exit code or the word "success" is not asked: a failed model call can come with both."""

from __future__ import annotations

import re
from typing import cast

from harness_durable.adapter import TurnEnd

from .shapes import Json, word

_STATUS = re.compile(r"API Error: (\d{3})")


def turn_end(result: Json, stopped_by: str | None) -> TurnEnd:
    """From a ``result`` frame. ``stopped_by``: who asked for a stop, if anybody did."""
    text, kind = word(result.get("result")), word(result.get("subtype"))
    failed = result.get("is_error") is True or kind not in ("", "success")
    if not failed:
        return TurnEnd("completed", text=text)
    if stopped_by is not None:
        return TurnEnd("cancelled", reason=f"{stopped_by} asked for a stop")
    said = result.get("errors")
    errors = [word(error) for error in cast(list[object], said)] if isinstance(said, list) else []
    reason = text or "; ".join(error for error in errors if error) or kind
    return TurnEnd("failed", code=_code(result, text, kind), reason=reason)


def _code(result: Json, text: str, kind: str) -> str:
    status = result.get("api_error_status")
    if isinstance(status, int):
        return f"api_{status}"
    found = _STATUS.search(text)
    if found is not None:
        return f"api_{found[1]}"
    return word(result.get("terminal_reason")) or kind
