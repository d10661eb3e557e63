"""The demo's policy: its decision table, and that its last words are true."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from harness_durable.testing.provider.policies import DeployDemo
from tests.unit.provider_kit import BASH, DEPLOY, TOOLS, Talk, request

STORY = DeployDemo()
TEST = "pwd; python3 -m unittest -q"
FAILING = "Exit code 1\n/w/shop\nFAILED (failures=1)"
PASSING = "/w/shop\n----\nRan 2 tests in 0.001s\n\nOK"
BROKEN = "1\tdef discount(price, percent):\n2\t    return price * percent\n"
FIXED = BROKEN.replace("percent\n", "percent / 100\n")
UNKNOWN = "outcome_unknown: the call may or may not have happened; check before you repeat it"
NOT_STARTED = "not_started: nothing happened"


def at_deploy() -> Talk:
    """A talk whose open call is the deployment."""
    talk = Talk(STORY)
    talk.model()
    talk.result(FAILING, errors=True)
    talk.result(BROKEN)
    talk.result("The file has been updated.")
    talk.result(PASSING)
    return talk


def at_look() -> Talk:
    talk = at_deploy()
    talk.result(UNKNOWN, errors=True)
    return talk


def names(talk: Talk) -> list[str]:
    return [call.name for call in talk.calls]


def test_the_story_goes_test_read_edit_test_deploy_end() -> None:
    talk = Talk(STORY)
    talk.model()
    assert talk.commands() == [TEST]
    talk.result(FAILING, errors=True)
    assert [(c.name, c.input) for c in talk.calls] == [("Read", {"file_path": "/w/shop/pricing.py"})]
    talk.result(BROKEN)
    assert names(talk) == ["Edit"]
    assert talk.calls[0].input == {
        "file_path": "/w/shop/pricing.py",
        "old_string": STORY.broken,
        "new_string": STORY.fixed,
    }
    talk.result("The file has been updated.")
    assert talk.commands() == [TEST]
    talk.result(PASSING)
    assert [(c.name, c.input) for c in talk.calls] == [("mcp__durable__deploy", {"version": "1.4.2"})]
    talk.result("deployed 1.4.2 as #7")
    assert talk.calls == []
    assert talk.text == "1.4.2 is deployed; the tool says: deployed 1.4.2 as #7"


def test_an_unknown_deployment_is_looked_up_and_not_repeated() -> None:
    talk = at_look()
    assert talk.commands() == [STORY.look]
    assert "not known" in talk.text


def test_a_deployment_that_is_on_record_is_reported_and_not_repeated() -> None:
    talk = at_look()
    talk.result("2026-01-01 deployed 1.4.2")
    assert talk.calls == []
    assert "is deployed" in talk.text
    assert "on record" in talk.text
    assert "did not deploy it again" in talk.text


@pytest.mark.parametrize("record", ["there is no deployments.log", "1.4.1", "1.4.20", "11.4.2"])
def test_a_deployment_that_is_not_on_record_is_done(record: str) -> None:
    talk = at_look()
    talk.result(record)
    assert names(talk) == ["mcp__durable__deploy"]
    assert "did not happen" in talk.text


def test_a_refused_repeat_is_looked_up_again() -> None:
    talk = at_look()
    talk.result("there is no deployments.log")
    talk.result(UNKNOWN, errors=True)
    assert talk.commands() == [STORY.look]
    talk.result("1.4.2 deployed")
    assert "did not deploy it again" in talk.text


@pytest.mark.parametrize("told", [UNKNOWN, NOT_STARTED, "permission denied"])
def test_when_the_record_cannot_be_read_the_model_says_that_it_does_not_know(told: str) -> None:
    talk = at_look()
    for _ in range(2):
        talk.result(told, errors=True)
        assert talk.commands() == [STORY.look]
    talk.result(told, errors=True)
    assert talk.calls == []
    assert "may or may not have happened" in talk.text


def test_a_deployment_that_never_started_is_started() -> None:
    talk = at_deploy()
    first = talk.calls[0].id
    talk.result(NOT_STARTED, errors=True)
    assert names(talk) == ["mcp__durable__deploy"]
    assert talk.calls[0].id != first


def test_a_failed_deployment_is_reported_as_failed() -> None:
    talk = at_deploy()
    talk.result("no such cluster", errors=True)
    assert talk.calls == []
    assert "failed: no such cluster" in talk.text


@pytest.mark.parametrize("told", [UNKNOWN, NOT_STARTED])
def test_tests_that_were_cut_off_run_again(told: str) -> None:
    talk = Talk(STORY)
    talk.model()
    talk.result(told, errors=True)
    assert talk.commands() == [TEST]


@pytest.mark.parametrize("told", [UNKNOWN, NOT_STARTED, "File has not been read yet"])
def test_after_a_doubtful_edit_the_file_decides(told: str) -> None:
    talk = Talk(STORY)
    talk.model()
    talk.result(FAILING, errors=True)
    talk.result(BROKEN)
    talk.result(told, errors=True)
    assert names(talk) == ["Read"]
    talk.result(FIXED)
    assert talk.commands() == [TEST]


def test_after_a_doubtful_edit_that_is_not_there_it_is_done_again() -> None:
    talk = Talk(STORY)
    talk.model()
    talk.result(FAILING, errors=True)
    talk.result(BROKEN)
    talk.result(UNKNOWN, errors=True)
    talk.result(BROKEN)
    assert names(talk) == ["Edit"]


def test_tests_that_fail_in_spite_of_the_fix_end_without_a_deployment() -> None:
    talk = Talk(STORY)
    talk.model()
    talk.result(FAILING, errors=True)
    talk.result(BROKEN)
    talk.result("updated")
    talk.result(FAILING, errors=True)
    talk.result(FIXED)
    assert talk.calls == []
    assert "still fail" in talk.text
    assert "Nothing was deployed" in talk.text


@pytest.mark.parametrize("told", ["def something_else(): ...", "x"])
def test_a_file_without_the_mistake_ends_without_a_deployment(told: str) -> None:
    talk = Talk(STORY)
    talk.model()
    talk.result(FAILING, errors=True)
    talk.result(told)
    assert talk.calls == []
    assert "Nothing was deployed" in talk.text


def test_no_conversation_goes_on_for_ever() -> None:
    talk = Talk(STORY)
    talk.model()
    for _ in range(STORY.most_calls):
        assert talk.calls
        talk.result(NOT_STARTED, errors=True)
    assert talk.calls == []
    assert "Nothing was deployed" in talk.text


def test_a_title_request_gets_no_tool_call() -> None:
    assert [type(b).__name__ for b in STORY(request("title?", tools=[])).blocks] == ["Text"]


def test_without_file_tools_the_shell_reads_and_repairs(tmp_path: Path) -> None:
    talk = Talk(STORY, tools=[BASH, DEPLOY])
    talk.model()
    talk.result(FAILING, errors=True)
    assert talk.commands() == ["cat pricing.py"]
    talk.result(BROKEN)
    (tmp_path / "pricing.py").write_text("    return price * percent\n")
    command = str(talk.commands()[0]).replace("python3", sys.executable, 1)
    subprocess.run(["sh", "-c", command], cwd=tmp_path, check=True)
    assert (tmp_path / "pricing.py").read_text() == "    return price * percent / 100\n"
    talk.result("")
    assert talk.commands() == [TEST]


def test_options_change_the_names_of_the_story() -> None:
    story = DeployDemo(test="make test", version="2.0", look="cat log")
    talk = Talk(story, tools=TOOLS)
    talk.model()
    talk.result("3 passed")
    assert talk.calls[0].input == {"version": "2.0"}
    talk.result(UNKNOWN)
    assert talk.commands() == ["cat log"]
