"""What an error of a provider says to a person."""

from __future__ import annotations

import json

import pytest

from harness_durable.gateway.refusals import refusal, told_to_wait


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


@pytest.mark.parametrize("status", [429, 503, 529])
def test_c145_a_wait_that_nobody_waits_is_no_promise_to_try_again(status: int) -> None:
    said = refusal(status, error("slow down"), "3600")
    assert said.endswith("send the message again later (it asks to wait 3600 s)")
    assert "tries again" in refusal(status, error("slow down"), "60")


def refused(kind: str, code: object = None) -> str:
    return json.dumps({"error": {"type": kind, "code": code, "message": "no more"}})


USED_UP = [refused("insufficient_quota"), refused("error", "insufficient_quota"), refused("billing_error")]


@pytest.mark.parametrize("body", USED_UP)
def test_c145_a_limit_that_is_used_up_makes_the_turn_fail_fast(body: str) -> None:
    sent = [("request-id", "r-1"), ("retry-after", "5")]
    assert told_to_wait(429, body, sent) == [("request-id", "r-1"), ("retry-after", "3600")]
    assert told_to_wait(429, body, []) == [("retry-after", "3600")]
    assert told_to_wait(429, body, [("retry-after", "7200")]) == [("retry-after", "7200")]
    assert "top it up" in refusal(429, body)


@pytest.mark.parametrize("body", [refused("rate_limit_error"), error("insufficient_quota"), "", "[]"])
def test_c145_any_other_word_about_waiting_is_passed_on_as_it_is(body: str) -> None:
    for sent in ([], [("retry-after", "5")], [("retry-after", "Wed, 21 Oct 2026 07:28:00 GMT")]):
        assert told_to_wait(429, body, sent) == sent


ODD = ["", "{", "[]", "null", '{"error": 3}', error(None), error(""), "<html>\n<b>bad</b>", "[" * 100_000]


@pytest.mark.parametrize("body", ODD, ids=range(len(ODD)))
def test_what_is_no_error_of_this_api_is_quoted_as_it_is(body: str) -> None:
    said = refusal(502, body)
    assert said.startswith("502 ")
    assert "\n" not in said
    assert len(said) < 600
