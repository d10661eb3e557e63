"""The small policies, and how a policy is found by name."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from harness_durable.errors import BadSetting, UnknownName
from harness_durable.policy import AGAIN, CANCELLED, NOT_STARTED, STOPPED, UNKNOWN
from harness_durable.testing.provider import Cut, HttpError, Reply, Style, Text, ToolUse, say
from harness_durable.testing.provider.messages import Request, ToolResult
from harness_durable.testing.provider.policies import (
    DeployDemo,
    Echo,
    FromPrompt,
    Script,
    Steps,
    policy_named,
    read_script,
)
from harness_durable.testing.provider.policies.toolbox import same_tool
from harness_durable.testing.provider.policies.verdict import verdict
from tests.unit.provider_kit import Json, Talk, request


def shout(asked: Request) -> Reply:
    """A policy of a user's own, found by ``module:attribute``."""
    return say(asked.model.upper())


NOT_A_POLICY = 3


def test_echo_says_its_text_always() -> None:
    assert Echo("hello")(request("anything")) == say("hello")


def test_a_script_is_read_by_place_in_the_conversation_not_by_count_of_requests() -> None:
    script = Script((Reply((ToolUse("Bash", {"command": "a"}),)), say("two")), after="over")
    talk = Talk(script)
    assert talk.model()[0].input == {"command": "a"}
    first = [request(talk.messages[:1]) for _ in range(3)]
    assert {script(asked) == script.replies[0] for asked in first} == {True}
    talk.result("done")
    assert talk.text == "two"
    talk.messages.append({"role": "user", "content": "more"})
    talk.model()
    assert talk.text == "over"


def test_a_script_file_holds_blocks_styles_and_faults(tmp_path: Path) -> None:
    path = tmp_path / "script.json"
    path.write_text(
        """[{"blocks": [{"type": "text", "text": "half \\ud83d"},
             {"type": "tool_use", "name": "A", "input": {"n": 36893488147419103233}}],
             "style": {"pretty": true}, "faults": [{"type": "cut", "event": 2, "how": "reset"}]},
            {"faults": [{"type": "http_error", "status": 529}]}]"""
    )
    blocks = (Text("half \ud83d"), ToolUse("A", {"n": 2**65 + 1}))
    expected = (
        Reply(blocks, style=Style(pretty=True), faults=(Cut(2, "reset"),)),
        Reply(faults=(HttpError(529),)),
    )
    assert read_script(path).replies == expected
    assert policy_named(f"script:{path}") == Script(expected)


@pytest.mark.parametrize("content", ["{", "{}", '[{"blocks": [{"type": "song"}]}]', None])
def test_a_script_that_cannot_be_used_is_refused_with_its_name(content: str | None, tmp_path: Path) -> None:
    path = tmp_path / "script.json"
    if content is not None:
        path.write_text(content)
    with pytest.raises(BadSetting, match=r"script\.json"):
        policy_named(f"script:{path}")


def test_policies_are_found_by_name_with_options() -> None:
    assert policy_named("echo") == Echo()
    assert policy_named("echo", '{"text": "x"}') == Echo("x")
    assert policy_named("steps", '{"steps": 2, "nap": 0}') == Steps(steps=2, nap=0)
    assert policy_named("deploy_demo", '{"version": "2"}') == DeployDemo(version="2")
    assert policy_named("script", '{"replies": [{}]}') == Script((Reply(),))


def test_a_policy_of_ones_own_is_found_by_module_and_attribute() -> None:
    assert policy_named("tests.unit.test_provider_policies:shout")(request()) == say("M")


@pytest.mark.parametrize(
    ("name", "options", "says"),
    [
        ("echo", '{"txt": "x"}', "no option txt"),
        ("echo", '{"text": 3}', "echo"),
        ("echo", "[]", "JSON object"),
        ("steps", "{", "JSON object"),
        ("no.such.module:x", "", "no.such"),
        ("tests.unit.test_provider_policies:nothing", "", "nothing"),
        ("tests.unit.test_provider_policies:NOT_A_POLICY", "", "not callable"),
    ],
)
def test_what_is_no_policy_is_refused(name: str, options: str, says: str) -> None:
    with pytest.raises(BadSetting, match=says):
        policy_named(name, options)


def test_an_unknown_name_lists_the_known_ones() -> None:
    with pytest.raises(UnknownName, match="deploy_demo"):
        policy_named("nope")


def test_the_prompt_can_choose_the_policy() -> None:
    talk = Talk(FromPrompt(), 'policy: steps {"steps": 1, "pair_every": 0, "tag": "z"}\nplease')
    talk.model()
    assert "echo z0a" in str(talk.commands()[0])
    talk.result("did it")
    assert talk.text == "ALL-DONE"
    assert FromPrompt("plain")(request("hello")) == say("plain")


@pytest.mark.parametrize(
    ("result", "expected"),
    [
        (None, "unknown"),
        (ToolResult("fine", False), "done"),
        (ToolResult("Exit code 1", True), "failed"),
        (ToolResult("OUTCOME_UNKNOWN", True), "unknown"),
        (ToolResult("its outcome is unknown", False), "unknown"),
        (ToolResult("It may or may not have happened", True), "unknown"),
        (ToolResult("not_started: nothing happened", True), "not_started"),
        (ToolResult("this call was never started", False), "not_started"),
        (ToolResult("bash: unknown option -z", True), "failed"),
        *[(ToolResult(text, False), "unknown") for text in (UNKNOWN, AGAIN, CANCELLED)],
        *[(ToolResult(text, False), "not_started") for text in (NOT_STARTED, STOPPED)],
    ],
)
def test_results_are_read_by_their_words(result: ToolResult | None, expected: str) -> None:
    assert verdict(result) == expected


@pytest.mark.parametrize(
    ("name", "wanted", "same"),
    [
        ("Bash", "Bash", True),
        ("bash", "Bash", True),
        ("mcp__durable__deploy", "mcp__durable__deploy", True),
        ("durable_deploy", "mcp__durable__deploy", True),
        ("deploy", "mcp__durable__deploy", True),
        ("redeploy", "mcp__durable__deploy", False),
        ("BashOutput", "Bash", False),
    ],
)
def test_tools_are_the_same_under_other_names(name: str, wanted: str, same: bool) -> None:
    assert same_tool(name, wanted) is same


def test_the_testing_package_loads_nothing_by_itself() -> None:
    code = (
        "import sys, json; before = set(sys.modules); import harness_durable.testing; "
        "print(json.dumps(sorted(set(sys.modules) - before)))"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True)
    loaded: list[str] = json.loads(run.stdout)
    assert not {"h11", "httpx", "asyncio", "anyio", "msgspec"}.intersection(loaded)


def test_effects_and_looks_really_count(tmp_path: Path) -> None:
    policy = Steps(nap=0)

    def shell(command: str) -> str:
        done = subprocess.run(["sh", "-c", command], cwd=tmp_path, capture_output=True, check=True)
        return done.stdout.decode()

    assert shell(policy.check_command("s1a")).strip() in ("", "0")
    shell(policy.effect_command("s1a"))
    shell(policy.effect_command("s11a"))
    assert shell(policy.check_command("s1a")).strip() == "1"
    first: Json = {"role": "user", "content": "go"}
    assert policy(request([first])).blocks[1:] != ()
