"""The policy for random-kill campaigns: one effect per token, whatever the results say."""

from __future__ import annotations

import pytest

from harness_durable.testing.provider.policies import Steps
from harness_durable.testing.provider.policies.verdict import PHRASES
from tests.unit.provider_kit import BASH, Json, Talk, request

UNKNOWN = "This call was cut off; it may or may not have happened. Check before you repeat it."
NOT_STARTED = "not_started: nothing happened, call it again if it is needed"
EFFECT: Json = {"name": "mcp__durable__effect", "input_schema": {}}


def one_step() -> Talk:
    talk = Talk(Steps(steps=1, pair_every=0))
    talk.model()
    return talk


def effect(token: str) -> str:
    return Steps().effect_command(token)


def check(token: str) -> str:
    return Steps().check_command(token)


def test_a_clean_run_does_each_token_once_and_ends() -> None:
    policy = Steps(steps=4)
    talk = Talk(policy)
    seen: list[object] = []
    talk.model()
    while talk.calls:
        seen += talk.commands()
        talk.result(*["did it"] * len(talk.calls))
    assert talk.text == "ALL-DONE"
    assert seen == [effect(token) for token in ("s0a", "s1a", "s1b", "s2a", "s3a", "s3b")]
    assert policy.all_tokens() == ["s0a", "s1a", "s1b", "s2a", "s3a", "s3b"]


def test_the_second_step_is_two_parallel_calls_in_one_message() -> None:
    talk = Talk(Steps(steps=2))
    talk.model()
    talk.result("did it")
    assert talk.commands() == [effect("s1a"), effect("s1b")]


@pytest.mark.parametrize("phrase", PHRASES["unknown"])
def test_every_phrase_for_unknown_makes_the_model_look_first(phrase: str) -> None:
    talk = one_step()
    talk.result(f"Cut off. {phrase.upper()} have happened", errors=True)
    assert talk.commands() == [check("s0a")]


@pytest.mark.parametrize("phrase", PHRASES["not_started"])
def test_every_phrase_for_not_started_makes_the_model_call_again(phrase: str) -> None:
    talk = one_step()
    first = talk.calls[0].id
    talk.result(phrase, errors=True)
    assert talk.commands() == [effect("s0a")]
    assert talk.calls[0].id != first


def test_an_effect_that_is_there_is_not_repeated() -> None:
    talk = one_step()
    talk.result(UNKNOWN, errors=True)
    talk.result("1\n")
    assert (talk.calls, talk.text) == ([], "ALL-DONE")


def test_an_effect_that_is_absent_is_done_again() -> None:
    talk = one_step()
    talk.result(UNKNOWN, errors=True)
    talk.result("grep: effects.txt: No such file\n0")
    assert talk.commands() == [effect("s0a")]
    talk.result("did s0a")
    assert talk.text == "ALL-DONE"


@pytest.mark.parametrize("told", [UNKNOWN, NOT_STARTED, "grep: effects.txt: No such file", ""])
def test_a_look_that_tells_nothing_is_repeated(told: str) -> None:
    talk = one_step()
    talk.result(UNKNOWN, errors=True)
    talk.result(told)
    assert talk.commands() == [check("s0a")]
    talk.result("2")
    assert talk.text == "ALL-DONE"


def test_a_refused_repeat_is_looked_up_again_and_then_repeated() -> None:
    talk = one_step()
    talk.result(UNKNOWN, errors=True)
    talk.result("0")
    talk.result(UNKNOWN, errors=True)  # the first identical repeat is refused with the same words
    assert talk.commands() == [check("s0a")], "an old look must not count for a new call"
    talk.result("0")
    assert talk.commands() == [effect("s0a")]


def test_a_failed_call_is_looked_up_because_it_may_have_got_that_far() -> None:
    talk = one_step()
    talk.result("Exit code 137", errors=True)
    assert talk.commands() == [check("s0a")]


def test_only_the_open_half_of_a_pair_is_done_again() -> None:
    talk = Talk(Steps(steps=1, pair_every=1))
    talk.model()
    talk.result("did s0a", NOT_STARTED)
    assert talk.commands() == [effect("s0b")]


def test_both_halves_of_a_pair_are_settled_side_by_side() -> None:
    talk = Talk(Steps(steps=1, pair_every=1))
    talk.model()
    talk.result(UNKNOWN, NOT_STARTED)
    assert talk.commands() == [check("s0a"), effect("s0b")]
    talk.result("1", "did s0b")
    assert talk.text == "ALL-DONE"


def test_a_custom_tool_does_the_effect_where_asked() -> None:
    talk = Talk(Steps(steps=2, pair_every=0, custom_every=2), tools=[BASH, EFFECT])
    talk.model()
    talk.result("did it")
    assert [(c.name, c.input) for c in talk.calls] == [("mcp__durable__effect", {"token": "s1a"})]
    talk.result(UNKNOWN, errors=True)
    assert talk.commands() == [check("s1a")]
    talk.result("0")
    assert talk.calls[0].name == "mcp__durable__effect"


def test_tools_are_found_under_the_names_of_other_harnesses() -> None:
    tools: list[Json] = [
        {"name": "bash", "input_schema": {"properties": {"command": {}}}},
        {"name": "durable_effect", "input_schema": {}},
    ]
    talk = Talk(Steps(steps=2, pair_every=0, custom_every=2), tools=tools)
    talk.model()
    assert (talk.calls[0].name, set(talk.calls[0].input)) == ("bash", {"command"})
    talk.result("did it")
    assert talk.calls[0].name == "durable_effect"
    talk.result("ok")
    assert talk.text == "ALL-DONE"


def test_the_model_gives_up_in_words_when_nothing_helps() -> None:
    talk = Talk(Steps(steps=1, pair_every=0, patience=4))
    talk.model()
    for _ in range(4):
        assert talk.calls
        talk.result("permission denied", errors=True)
    assert talk.calls == []
    assert talk.text.startswith("GAVE-UP s0a")


def test_a_request_without_tools_gets_no_tool_call() -> None:
    reply = Steps()(request("a title, please", tools=[]))
    assert [type(block).__name__ for block in reply.blocks] == ["Text"]
