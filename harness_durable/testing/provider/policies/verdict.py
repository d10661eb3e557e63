"""How a scripted model reads the result of a tool call.

``PHRASES`` is the one place that knows the words; the product's texts and these must agree, and a
real model has to understand the same words.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, Literal

from harness_durable.testing.provider.messages import ToolResult

Verdict = Literal["done", "failed", "unknown", "not_started"]

PHRASES: Final[Mapping[Literal["unknown", "not_started"], tuple[str, ...]]] = {
    "not_started": ("not_started", "never started"),
    "unknown": ("outcome_unknown", "outcome is unknown", "may or may not", "may have had part of its effect"),
}


def verdict(result: ToolResult | None) -> Verdict:
    """What is known about a call. No result at all is ``unknown``; case does not matter."""
    if result is None:
        return "unknown"
    text = result.text.lower()
    for outcome, phrases in PHRASES.items():
        if any(phrase in text for phrase in phrases):
            return outcome
    return "failed" if result.is_error else "done"
