"""What an error of a provider says to a person."""

from __future__ import annotations

import json

import pytest

from harness_durable.gateway.refusals import refusal


def error(message: object) -> str:
    return json.dumps({"type": "error", "error": {"type": "x", "message": message}})


@pytest.mark.parametrize(
    ("status", "next_step"),
    [
        (400, "cannot use this request"),
        (401, "ANTHROPIC_API_KEY"),
        (403, "ANTHROPIC_API_KEY"),
        (404, "HARNESS_DURABLE_UPSTREAM_URL"),
        (418, "see what the provider says"),
        (429, "tries again"),
        (500, "tries again"),
        (529, "tries again"),
    ],
)
def test_it_begins_with_the_status_quotes_the_provider_and_ends_with_the_next_step(
    status: int, next_step: str
) -> None:
    said = refusal(status, error("because"))
    assert said.startswith(f"{status} because; ")
    assert next_step in said


def test_it_says_how_long_the_provider_wants_to_wait() -> None:
    assert refusal(429, error("slow down"), "30").endswith("(it asks to wait 30 s)")
    assert "wait" not in refusal(429, error("slow down"), "Wed, 21 Oct 2026 07:28:00 GMT")


ODD = ["", "{", "[]", "null", '{"error": 3}', error(None), error(""), "<html>\n<b>bad</b>", "[" * 100_000]


@pytest.mark.parametrize("body", ODD, ids=range(len(ODD)))
def test_what_is_no_error_of_this_api_is_quoted_as_it_is(body: str) -> None:
    said = refusal(502, body)
    assert said.startswith("502 ")
    assert "\n" not in said
    assert len(said) < 600
