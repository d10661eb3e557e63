"""What is said to Pi and heard from it, without Pi."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator

import pytest

from harness_durable.errors import BadSetting
from harness_durable.events import AgentSpec
from harness_durable_adapters.common.naming import custom_tool, is_custom, plain
from harness_durable_adapters.common.shapes import Json, decode, encode, objects
from harness_durable_adapters.pi import frames
from harness_durable_adapters.pi.entries import read
from harness_durable_adapters.pi.launch import SETTINGS, Start, extension, launch, sequential
from harness_durable_adapters.pi.naming import COMMAND, TITLE, message_number
from harness_durable_adapters.pi.outcome import turn_end, wait_seconds, waiting
from harness_durable_adapters.pi.results import outcome, recorded
from tests.unit.pi_samples import assistant, message


def asked(lines: list[str], **about: object) -> Json:
    placeholder = json.dumps({"kind": "call", "lines": lines, **about})
    return {"type": "extension_ui_request", "id": "q", "title": TITLE, "placeholder": placeholder}


def test_what_workers_said_is_read_back() -> None:
    number = message_number("native", "m-1")
    said = frames.read_said(
        frames.command(frames.COMMANDS, "get_commands")
        + frames.message("/hello\nworld", number)
        + frames.go_on()
        + frames.answer("q-1", {"run": True})
        + b'{"torn'
    )
    assert said.asked >= {frames.COMMANDS, COMMAND, number}
    assert (said.answered, said.messages) == (frozenset({"q-1"}), frozenset({number}))


def test_a_question_keeps_its_lines_as_they_were() -> None:
    lines = ['{"a":"\\ud800"}', '{"b":12345678901234567890}']
    question = frames.question(decode(encode(asked(lines, call="t1"))) or {})
    assert question is not None
    assert question.lines == tuple(line.encode() for line in lines)
    assert question.about["call"] == "t1"


@pytest.mark.parametrize("change", [{"title": "Name?"}, {"type": "response"}])
def test_other_dialogs_are_no_questions(change: Json) -> None:
    assert frames.question({**asked([]), **change}) is None


def test_a_question_that_cannot_be_read_is_answered_with_nothing() -> None:
    question = frames.question({**asked([]), "placeholder": "{torn"})
    assert question == frames.Question("q", "", (), {})


def test_an_extension_that_is_not_loaded_is_missed() -> None:
    ours = {"name": COMMAND, "source": "extension"}
    assert frames.is_in_place({"commands": [ours]})
    assert not frames.is_in_place({"commands": [{**ours, "source": "prompt"}]})
    assert not frames.is_in_place(None)


def test_custom_tools_have_names_of_their_own() -> None:
    assert is_custom(custom_tool("bash"))
    assert not is_custom("bash")
    assert plain(custom_tool("bash")) == "bash"


def test_a_result_comes_back_as_it_was() -> None:
    content = [{"type": "text", "text": "a"}, {"type": "image", "data": "aGk=", "mimeType": "image/png"}]
    found = outcome(content, json.dumps({"content": content, "details": {"n": 1}}))
    assert found.text == b"a"
    assert recorded("a", found.detail, ok=True) == {"content": content, "details": {"n": 1}, "isError": False}
    assert recorded("a", None, ok=False) == {"content": [{"type": "text", "text": "a"}], "isError": True}


# ------------------------------------------------------------------------------------ how a turn ends


def failed(error: str, stop: str = "error") -> bytes:
    body: Json = {"role": "assistant", "content": [], "stopReason": stop, "errorMessage": error}
    return message("b", "a", body)


def test_the_last_word_is_the_answer() -> None:
    end = turn_end(read(assistant("b", "a", text="done")), None)
    assert (end.kind, end.text) == ("completed", "done")


def test_a_turn_that_was_stopped_is_cancelled_unless_it_was_over() -> None:
    assert turn_end(read(assistant("b", "a", text="done")), "Ann").kind == "completed"
    assert turn_end(read(failed("aborted", "aborted")), "Ann").kind == "cancelled"
    assert turn_end(read(assistant("b", "a", "t1")), "Ann").kind == "cancelled"
    assert turn_end(None, "Ann").kind == "cancelled"


@pytest.mark.parametrize(
    ("error", "code", "transient"),
    [
        ('401 {"type":"error"}', "api_401", False),
        ('429 {"type":"error"}', "api_429", False),
        ('500 {"type":"error"}', "api_500", True),
        ('{"type":"error","error":{"type":"overloaded_error"}}', "overloaded", True),
        ("Connection error.", "connection_failed", True),
        ("something else", "error", False),
    ],
)
def test_a_failure_has_a_code(error: str, code: str, *, transient: bool) -> None:
    end = turn_end(read(failed(error)), None)
    assert (end.kind, end.code, end.transient, end.reason) == ("failed", code, transient, error)


def test_waiting_is_told() -> None:
    frame: Json = {"type": "auto_retry_start", "attempt": 1, "maxAttempts": 10, "delayMs": 2000}
    assert waiting({**frame, "errorMessage": "529 busy"}) == "waiting 2 s before attempt 2 of 11: 529 busy"
    assert wait_seconds(frame) == 2.0
    assert (waiting({}), wait_seconds({})) == ("", 0.0)


# -------------------------------------------------------------------------------------- how it starts


async def nothing() -> AsyncGenerator[bytes]:
    yield b""


def started(
    tools: tuple[str, ...] | None = None, effort: str | None = None, system_prompt: str | None = None
) -> tuple[tuple[str, ...], dict[str, Json]]:
    agent = AgentSpec("pi", "1", "m", "local", "/w", tools=tools, effort=effort, system_prompt=system_prompt)
    tool = {"name": "deploy", "description": "d", "inputSchema": {"type": "object"}}
    plan = launch(Start(("pi",), agent, "/home", "token", [tool], 3, {"write": "safe"}), nothing)
    files = {name: held for name, held in plan.files.items() if isinstance(held, bytes)}
    return plan.argv, {name: decode(held) or {} for name, held in files.items() if name.endswith(".json")}


def test_the_extension_is_told_what_it_must_know() -> None:
    _, files = started()
    told = files["pi/durable.json"]
    assert (told["entries"], told["sequential"]) == (3, ["bash", "edit"])
    assert [tool["name"] for tool in objects(told["tools"])] == ["durable_deploy"]
    for name in told:
        assert f"told.{name}" in extension().decode(), "what is told is used"


def test_an_agents_tools_do_not_shut_out_ours() -> None:
    argv, _ = started(tools=("read",), effort="high", system_prompt="be brief")
    assert argv[argv.index("--tools") + 1] == "read,durable_deploy"
    assert argv[argv.index("--thinking") + 1] == "high"
    assert argv[argv.index("--system-prompt") + 1] == "be brief"


def test_settings_are_passed_on_but_for_what_must_not_change(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(SETTINGS, '{"compaction": {"enabled": false}, "cacheWarming": "idle"}')
    settings = started()[1]["pi/settings.json"]
    assert (settings["compaction"], settings["cacheWarming"]) == ({"enabled": False}, "off")


@pytest.mark.parametrize("text", ["{", "[]"])
def test_settings_that_are_none_are_refused(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(SETTINGS, text)
    with pytest.raises(BadSetting, match=SETTINGS):
        started()


def test_only_safe_tools_run_side_by_side() -> None:
    assert sequential({}) == ["bash", "edit", "write"]
    assert sequential({"bash": "safe", "edit": "idempotent"}) == ["edit", "write"]
