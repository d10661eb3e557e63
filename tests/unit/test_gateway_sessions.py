"""One name for a session in all of its lives, by which a provider finds what it has cached."""

from __future__ import annotations

import json

import pytest

from harness_durable.gateway import wire
from harness_durable.journal.requests import body_of
from harness_durable.testing.provider import say
from tests.unit.gateway_kit import scripted
from tests.unit.openai_kit import ask, asking

BOTH = pytest.mark.parametrize("speaks", ["openai-responses", "openai-chat"])


@BOTH
async def test_the_provider_hears_the_sessions_name_and_not_the_lifes(speaks: str) -> None:
    async with scripted(lambda _: say("hi"), speaks=speaks) as (provider, rig):
        await ask(rig, asking(speaks, "go", prompt_cache_key="a thread of this life", user="ann"))
        state = rig.journal.state
        (heard,), (call,) = provider.requests, state.model_calls
        assert heard.body["prompt_cache_key"] == state.native_id
        assert heard.body["user"] == "ann"
        sent = await body_of(rig.journal.reader, state, call, wire(speaks).list_field)
        assert json.loads(sent)["prompt_cache_key"] == state.native_id


@pytest.mark.parametrize("speaks", ["openai-responses", "openai-chat", "anthropic"])
@pytest.mark.parametrize("body", [b'{ "model":"m" , "a":1.0}', b"no JSON", b'{"a":1'])
def test_a_request_without_such_a_name_stays_as_it_is(speaks: str, body: bytes) -> None:
    assert wire(speaks).in_session(body, "native") == body


def test_claudes_requests_have_no_such_name() -> None:
    body = b'{"model":"m","prompt_cache_key":"x"}'
    assert wire("anthropic").in_session(body, "native") == body
