"""What is pure of the Codex adapter: items, transcripts, results, endings, configuration, models."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path

import pytest

from harness_durable.events import AgentSpec
from harness_durable.runtime.equipment import Equipment
from harness_durable.settings import resolve
from harness_durable.state import Session
from harness_durable_adapters.codex import frames
from harness_durable_adapters.codex.catalog import direct
from harness_durable_adapters.codex.drive import pieces
from harness_durable_adapters.codex.history import request_kind
from harness_durable_adapters.codex.items import (
    conversation,
    is_made_up,
    note,
    output,
    same,
    terminals,
    text_in,
)
from harness_durable_adapters.codex.launch import Start, configuration, thread
from harness_durable_adapters.codex.outcome import PAUSES, pause, turn_end
from harness_durable_adapters.codex.prepare import changes
from harness_durable_adapters.codex.results import MOST, ended, succeeded
from harness_durable_adapters.codex.rollout import line_of, paired, parse
from harness_durable_adapters.common.frames import Said
from harness_durable_adapters.common.shapes import Json

FILES = sorted(Path(__file__).parents[3].glob("shared/cases/files/codex/*.jsonl"))
CALL: Json = {
    "type": "function_call",
    "id": "fc_1",
    "name": "exec_command",
    "call_id": "c1",
    "arguments": "{}",
}
PATCH: Json = {"type": "custom_tool_call", "name": "apply_patch", "call_id": "c2", "input": "*** Begin Patch"}
AGENT = AgentSpec("codex", "0.171.0", "gpt-5.5", "local", "/ws")


def said(text: str, role: str = "user") -> Json:
    kind = "output_text" if role == "assistant" else "input_text"
    return {"type": "message", "role": role, "content": [{"type": kind, "text": text}]}


# --------------------------------------------------------------------------------------- items


@pytest.mark.parametrize(
    "text", ["<environment_context>\n<cwd>", "# AGENTS.md instructions for /x", "<turn_aborted>"]
)
def test_what_the_harness_says_in_the_users_name_is_no_part_of_the_conversation(text: str) -> None:
    kept = conversation([said("base", "developer"), said(text), said("go"), CALL], frozenset())
    assert kept == [said("go"), CALL]


def test_what_a_person_said_is_kept_whatever_it_looks_like() -> None:
    text = "<environment_context> is what?"
    assert conversation([said(text)], frozenset([text])) == [said(text)]


def test_our_own_notes_stay() -> None:
    assert conversation([note("it was stopped")], frozenset()) == [note("it was stopped")]
    assert text_in(note("x")).startswith("[Note by harness-durable, not by the user: x")


def test_a_result_is_of_the_kind_of_its_call() -> None:
    assert output(CALL, "t") == {"type": "function_call_output", "call_id": "c1", "output": "t"}
    assert output(PATCH, "t")["type"] == "custom_tool_call_output"


def test_ids_and_remarks_make_no_difference() -> None:
    other: Json = {
        **CALL,
        "id": "fc_2",
        "status": "completed",
        "internal_chat_message_metadata_passthrough": {},
    }
    assert same(CALL, other)
    assert not same(CALL, {**CALL, "arguments": '{"cmd":"x"}'})


@pytest.mark.parametrize(
    ("text", "made_up"),
    [
        ("aborted", True),
        ("Wall time: 2.4 seconds\naborted by user", True),
        ("dynamic tool call was cancelled before receiving a response", True),
        ("Output:\naborted", False),
    ],
)
def test_a_result_that_only_says_that_its_call_was_broken_off(text: str, made_up: bool) -> None:
    assert is_made_up(output(CALL, text)) is made_up


def test_commands_that_were_left_running_are_told_of_once() -> None:
    ran = output(CALL, "Wall time: 1 seconds\nProcess running with session ID 41115\nOutput:\n")
    assert terminals([CALL, ran]) == ["41115"]
    assert terminals([CALL, ran, note("gone (session 41115)")]) == []


def test_pieces_hold_everything_in_order() -> None:
    items = [said(f"{number}" * 1_000_000) for number in range(9)]
    found = pieces(items)
    assert [item for piece in found for item in piece] == items
    assert len(found) > 1


# --------------------------------------------------------------------------------- transcripts


def test_a_transcript_of_ours_is_read_back() -> None:
    items = [said("go"), CALL, output(CALL, "done")]
    assert parse(map(line_of, items)) == (items, [])


def test_damaged_lines_are_reported_and_their_neighbours_read() -> None:
    lines = [line_of(said("go")), b'{"torn', b"", b'{"type":"sideways"}', line_of(CALL)]
    items, findings = parse(lines)
    assert items == [said("go"), CALL]
    assert [(finding.line, finding.trouble) for finding in findings] == [
        (2, "is no JSON object"),
        (4, "is of no kind that is known (sideways)"),
    ]


def test_an_object_that_is_printed_over_many_lines_is_one() -> None:
    pretty = json.dumps({"type": "response_item", "payload": said("go")}, indent=2).encode().split(b"\n")
    assert parse([*pretty, *pretty])[0] == [said("go"), said("go")]
    items, findings = parse(pretty[:-1])
    assert (items, len(findings)) == ([], 1)


def test_a_compaction_replaces_what_came_before() -> None:
    replaced = {"type": "compacted", "payload": {"replacement_history": [said("short")]}}
    assert parse([line_of(CALL), json.dumps(replaced).encode(), line_of(said("on"))])[0] == [
        said("short"),
        said("on"),
    ]


def test_what_only_an_event_tells_of_a_person_is_a_message() -> None:
    event = json.dumps({"type": "event_msg", "payload": {"type": "user_message", "message": "go"}}).encode()
    assert parse([event, line_of(CALL)])[0] == [said("go"), CALL]
    assert parse([event, line_of(said("go"))])[0] == [said("go")]


def test_results_without_a_call_and_second_results_are_left_out() -> None:
    strange: Json = {"type": "function_call_output", "call_id": "gone", "output": "x"}
    assert paired([strange, CALL, output(CALL, "a"), output(CALL, "b")]) == [CALL, output(CALL, "a")]


def test_real_transcripts_are_read_without_loss() -> None:
    for file in FILES:
        items, findings = parse(file.read_bytes().split(b"\n"))
        if file.name.startswith("rollout"):
            assert items, file.name
            assert (len(findings) == 2) == ("malformed" in file.name), (file.name, findings)
        else:
            assert findings, "what is no transcript is said to be none"


def test_a_transcript_is_rewritten_from_its_first_difference_only() -> None:
    items = [said("go"), CALL, output(CALL, "done")]
    assert changes(items, 3, items) is None
    splice = changes([*items, CALL], 4, [*items[:2], output(CALL, "other")])
    assert splice is not None
    assert (splice.at, splice.drop, list(splice.lines)) == (2, None, [line_of(output(CALL, "other"))])
    whole = changes(items, 9, items)
    assert whole is not None
    assert (whole.at, len(whole.lines)) == (0, 3)


# ------------------------------------------------------------------------------------- results


def test_a_command_that_ended_is_told_as_the_harness_would() -> None:
    item: Json = {
        "type": "commandExecution",
        "id": "c1",
        "status": "failed",
        "exitCode": 3,
        "durationMs": 1500,
    }
    done = ended({**item, "aggregatedOutput": "no\n"})
    assert done is not None
    assert (done.ok, done.text) == (
        False,
        "Wall time: 1.5000 seconds\nProcess exited with code 3\nOutput:\nno\n",
    )
    assert succeeded(done.text) is False
    long = ended({**item, "exitCode": 0, "aggregatedOutput": "x" * 2 * MOST})
    assert long is not None
    assert len(long.text) < MOST + 200


@pytest.mark.parametrize(
    "item",
    [
        {"type": "commandExecution", "id": "c1", "status": "declined", "exitCode": None},
        {"type": "commandExecution", "id": "c1", "status": "failed", "exitCode": None},
        {"type": "agentMessage", "id": "m", "status": "completed"},
    ],
)
def test_what_did_not_run_to_its_end_has_no_outcome(item: Json) -> None:
    assert ended(item) is None


def test_a_patch_names_its_files() -> None:
    change = {"path": "/ws/new.txt", "kind": {"type": "add"}}
    done = ended({"type": "fileChange", "id": "c2", "status": "completed", "changes": [change]})
    assert done is not None
    assert done.ok
    assert "A /ws/new.txt" in done.text


# ------------------------------------------------------------------------------------- endings


def test_a_turn_ends_as_the_harness_says() -> None:
    turn: Json = {"status": "completed", "items": [{"type": "agentMessage", "text": "done"}]}
    assert turn_end(turn, Session(), None).text == "done"
    assert turn_end({"status": "interrupted"}, Session(), "Ann").kind == "cancelled"
    broken = turn_end({"status": "interrupted"}, Session(), None)
    assert (broken.kind, broken.code) == ("failed", "interrupted")


@pytest.mark.parametrize(
    ("info", "code", "transient"),
    [
        ({"httpConnectionFailed": {"httpStatusCode": 401}}, "api_401", False),
        ({"responseStreamDisconnected": {"httpStatusCode": None}}, "connection_failed", True),
        ("serverOverloaded", "api_503", True),
        ("contextWindowExceeded", "api_413", False),
        ("cyberPolicy", "cyberPolicy", False),
        ("other", "failed", False),
    ],
)
def test_a_failure_has_a_code(info: object, code: str, transient: bool) -> None:
    end = turn_end({"status": "failed", "error": {"message": "m", "codexErrorInfo": info}}, Session(), None)
    assert (end.code, end.transient, end.reason) == (code, transient, "m")


def test_only_a_rate_limit_is_waited_for_and_not_for_ever() -> None:
    often: Json = {"status": "failed", "error": {"codexErrorInfo": "rateLimitExceeded"}}
    assert [pause(often, number) for number in range(1, len(PAUSES) + 2)] == [*PAUSES, 0.0]
    assert pause({"status": "failed", "error": {"codexErrorInfo": "unauthorized"}}, 1) == 0.0


# ------------------------------------------------------------------------ launch, models, frames


def test_the_configuration_is_quiet_and_has_no_approval_policy() -> None:
    found = tomllib.loads(configuration(Start("/codex", AGENT, "/home", "secret", b"{}")))
    assert found["model_providers"]["durable"]["base_url"] == "http://127.0.0.1:@PORT@/v1"
    assert "approval_policy" not in found
    assert found["agents"] == {"enabled": False}
    assert not any(
        found["features"][name] for name in ("plugins", "apps", "multi_agent", "instant_interrupt")
    )
    assert "secret" not in str(found)
    assert found["model_catalog_json"] == "/home/codex/models.json"


def test_custom_tools_have_names_of_their_own() -> None:
    specs: list[Json] = [{"name": "apply_patch", "description": "d", "inputSchema": {"type": "object"}}]
    begun = thread(AGENT, specs)
    assert begun["approvalPolicy"] == "untrusted"
    assert "cwd" not in begun, "Codex would trust the workspace"
    assert begun["dynamicTools"] == [
        {
            "type": "function",
            "name": "durable_apply_patch",
            "description": "d",
            "inputSchema": {"type": "object"},
        }
    ]


def test_sessions_of_codex_use_a_model_of_its_own_unless_one_is_named() -> None:
    usual, named = resolve({}, {}).settings, resolve({"model": "mine"}, {}).settings
    assert Equipment(usual).model("codex") == "gpt-5.5"
    assert Equipment(usual).model("claude-code") == usual.model
    assert Equipment(named).model("codex") == "mine"


def test_a_model_of_code_mode_is_given_the_ordinary_tools() -> None:
    entry: Json = {"slug": "gpt-6", "tool_mode": "code_mode_only", "use_responses_lite": True, "n": 1}
    assert direct({**entry, "multi_agent_version": "v2"}, patch=True) == {
        "slug": "gpt-6",
        "tool_mode": "direct",
        "use_responses_lite": False,
        "n": 1,
    }
    assert direct({"slug": "gpt-5.5"}, patch=True) == {"slug": "gpt-5.5"}
    aside: Json = {"slug": "gpt-6", "experimental_supported_tools": ["send_user_message_async", "clock"]}
    assert direct(aside, patch=True)["experimental_supported_tools"] == ["clock"]
    assert direct({"slug": "gpt-5.5"}, patch=False)["apply_patch_tool_type"] is None


def test_what_was_said_tells_requests_answers_and_messages() -> None:
    sent = (
        frames.request(frames.TURN, "turn/start", {"clientUserMessageId": "n1", "input": []})
        + frames.answer(0, {"decision": "accept"})
        + frames.notice("initialized")
    )
    said_before = frames.read_said(sent)
    assert said_before == Said(frozenset([frames.TURN]), frozenset(["0"]), frozenset(["n1"]))
    assert frames.number_of({"id": 0}) in said_before.answered


def test_what_a_request_is_for_stands_in_its_metadata() -> None:
    about = json.dumps({"request_kind": "compaction"})
    assert request_kind({"client_metadata": {"x-codex-turn-metadata": about}}) == "compaction"
    assert request_kind({}) == ""
