"""How a turn of Claude Code ended: what may pass, what not, and what people see while it waits.

The frames are as the tested versions wrote them."""

from __future__ import annotations

import pytest

from harness_durable_adapters.claude_code.outcome import turn_end, waiting
from harness_durable_adapters.common.shapes import Json

LOST = "API Error: Connection to the API was lost (ECONNRESET). This is usually temporary — try again."
CUT = "API Error: Connection closed mid-response. The response above may be incomplete."


def failed(text: str, status: int | None = None, **more: object) -> Json:
    return {"subtype": "success", "is_error": True, "api_error_status": status, "result": text, **more}


@pytest.mark.parametrize(
    ("frame", "tried", "code", "transient"),
    [
        (
            failed(LOST, terminal_reason="api_error", api_error="connection_failed"),
            True,
            "connection_failed",
            True,
        ),
        (failed(LOST, terminal_reason="completed"), False, "connection_failed", True),
        (failed(CUT, terminal_reason="completed"), False, "connection_failed", True),
        (failed("API Error: 529 overloaded error.", 529), True, "api_529", True),
        (failed("API Error: 529 overloaded error.", 529), False, "api_529", False),
        (failed("API Error: 500 api error.", 500), True, "api_500", True),
        (failed("API Error: Request rejected (429) · rate limit error", 429), False, "api_429", False),
        (failed("API Error: Request rejected (429) · rate limit error", 429), True, "api_429", False),
        (failed("API Error: 400 the connection of two blocks is wrong", 400), True, "api_400", False),
        (failed("", terminal_reason="max_turns"), True, "max_turns", False),
    ],
)
def test_c151_what_may_pass_is_told_from_what_will_not(
    frame: Json, tried: bool, code: str, transient: bool
) -> None:
    """A status that the harness did not even try again was sent with a word against trying."""
    end = turn_end(frame, None, tried=tried)
    assert (end.kind, end.code, end.transient) == ("failed", code, transient)


def test_c151_a_turn_that_was_stopped_is_cancelled_and_nothing_else() -> None:
    end = turn_end(failed(LOST), "anna", tried=True)
    assert (end.kind, end.transient) == ("cancelled", False)


def retry(status: int | None, error: str, delay: float) -> Json:
    return {
        "type": "system",
        "subtype": "api_retry",
        "attempt": 2,
        "max_retries": 10,
        "retry_delay_ms": delay,
        "error_status": status,
        "error": error,
    }


@pytest.mark.parametrize(
    ("frame", "said"),
    [
        (retry(429, "rate_limit", 12_000), "waiting 12 s before attempt 3 of 11: 429 rate_limit"),
        (retry(529, "overloaded", 591.4671), "waiting 1 s before attempt 3 of 11: 529 overloaded"),
        (retry(None, "unknown", 32_000), "waiting 32 s before attempt 3 of 11: the connection broke"),
        ({"type": "system", "subtype": "init"}, ""),
        ({"type": "system", "subtype": "api_retry", "attempt": "two", "max_retries": None}, ""),
    ],
)
def test_c145_people_are_told_what_the_harness_waits_for(frame: Json, said: str) -> None:
    assert waiting(frame) == said
