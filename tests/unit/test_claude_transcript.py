"""The pure half of the Claude Code adapter: reading damaged transcripts, and making good ones of them.

Names that begin with a case number are the checks of that case."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import AsyncGenerator

import msgspec
import pytest

from harness_durable.events import AgentSpec
from harness_durable.policy import NOT_STARTED, UNKNOWN
from harness_durable.state import Session
from harness_durable_adapters.claude_code.case import Answer, Case, Response
from harness_durable_adapters.claude_code.frames import read_said
from harness_durable_adapters.claude_code.launch import Start, launch
from harness_durable_adapters.claude_code.naming import RESUME_SENTINEL, file_name
from harness_durable_adapters.claude_code.outcome import hopeless, turn_end
from harness_durable_adapters.claude_code.rebuild import Rebuilt, file_of, rebuild
from harness_durable_adapters.claude_code.response import Recorded, results_in
from harness_durable_adapters.claude_code.response import parse as parse_response
from harness_durable_adapters.claude_code.transcript import Line, made, parse, repair, tail
from harness_durable_adapters.common.lines import Lines
from harness_durable_adapters.common.shapes import Json, decode, encode, text_of
from tests.unit.claude_samples import EVERY

NATIVE = "11111111-1111-4111-8111-111111111111"


# ------------------------------------------------------------------------------- making transcripts


class Script:
    """Lines as the harness writes them."""

    def __init__(self) -> None:
        self.lines: list[Line] = []

    def _add(self, kind: str, message: Json, parent: str | None = None, **more: object) -> str:
        uuid = f"00000000-0000-4000-8000-{len(self.lines):012d}"
        before = self.lines[-1].uuid if self.lines else None
        self.lines.append(
            made(
                {
                    "parentUuid": before if parent is None else parent,
                    "isSidechain": False,
                    "type": kind,
                    "message": message,
                    "uuid": uuid,
                    "timestamp": "2026-01-01T00:00:00.000Z",
                    "sessionId": NATIVE,
                    **more,
                }
            )
        )
        return uuid

    def user(self, text: str, parent: str | None = None, **more: object) -> str:
        return self._add("user", {"role": "user", "content": text}, parent, **more)

    def says(self, response: str, *blocks: Json) -> list[str]:
        return [
            self._add(
                "assistant", {"id": response, "role": "assistant", "content": [block], "usage": {"n": 1}}
            )
            for block in blocks
        ]

    def interrupted(self, note: str) -> str:
        return self._add("user", {"role": "user", "content": [text(note)]})

    def result(self, call: str, text: str, parent: str, *, is_error: bool = False) -> str:
        block = {"tool_use_id": call, "type": "tool_result", "content": text, "is_error": is_error}
        return self._add("user", {"role": "user", "content": [block]}, parent)

    @property
    def raw(self) -> list[bytes]:
        return [line.raw for line in self.lines]


def text(said: str) -> Json:
    return {"type": "text", "text": said}


def use(call: str, command: str = "true") -> Json:
    return {"type": "tool_use", "id": call, "name": "Bash", "input": {"command": command}}


def case(
    *responses: Response, answers: dict[str, Answer] | None = None, running: bool = True, prompt: str = ""
) -> Case:
    first = prompt or "00000000-0000-4000-8000-000000000000"
    return Case(NATIVE, running, first, responses, answers or {}, "/workspace", "2.1.332")


def told(rebuilt: Rebuilt) -> list[tuple[str, str]]:
    """Every result in file order."""
    return [
        (str(result.get("tool_use_id")), str(result.get("content")))
        for line in rebuilt.lines
        for result in line.results
    ]


def done(content: str) -> Answer:
    return Answer(content, False, {"stdout": content})


def check_stable(rebuilt: Rebuilt, same: Case) -> None:
    """C037: a second rebuild of what a first one wrote changes nothing."""
    lines, _ = parse([line.raw for line in rebuilt.lines])
    assert [line.raw for line in rebuild(lines, same).lines] == [line.raw for line in rebuilt.lines]


# ------------------------------------------------------------------------------------------ reading


def test_c001_a_torn_last_line_is_reported_with_its_place_and_loses_nothing_else() -> None:
    script = Script()
    script.user("hello")
    script.says("msg_1", text("hi"))
    whole = script.raw
    torn = [*whole, whole[-1][:-20]]
    lines, findings = parse(torn)
    assert len(lines) == 2
    assert [(f.trouble, f.line, f.length) for f in findings] == [("torn", 2, len(torn[2]))]
    assert findings[0].offset == sum(len(raw) + 1 for raw in whole)


def test_c002_a_bad_line_in_the_middle_hides_no_other() -> None:
    script = Script()
    for number in range(4):
        script.user(f"message {number}")
    raw = script.raw
    raw[1:1] = [b'{"type":"attachment","att', b"\0\0\0", b"12", b'"text"', b"[]"]
    lines, findings = parse(raw)
    assert [line.uuid for line in lines] == [line.uuid for line in script.lines]
    assert Counter(finding.trouble for finding in findings)["unreadable"] == 5
    assert tail(lines) is lines[-1]


def test_nul_bytes_around_a_line_do_not_lose_it() -> None:
    script = Script()
    script.user("hello")
    lines, _ = parse([script.raw[0] + b"\0" * 64, b"\0" * 10])
    assert [line.uuid for line in lines] == [script.lines[0].uuid]


def test_c004_a_parent_that_was_never_written_falls_back_to_the_line_before() -> None:
    script = Script()
    first = script.user("one")
    script.user("two", parent="99999999-0000-4000-8000-000000000000")
    lines, findings = parse(script.raw)
    assert [finding.trouble for finding in findings] == ["dangling"]
    assert [line.parent for line in repair(lines)] == ["", first]


def test_c073_lines_of_another_session_are_reported() -> None:
    script = Script()
    script.user("mine")
    script.user("not mine", sessionId="22222222-2222-4222-8222-222222222222")
    _, findings = parse(script.raw, NATIVE)
    assert [(finding.trouble, finding.line) for finding in findings] == [("foreign", 1)]


def test_c106_half_a_surrogate_pair_and_c110_large_integers_survive() -> None:
    raw = rb'{"uuid":"u","n":9007199254740993000001,"text":"\ud83d"}'
    value = decode(raw)
    assert value is not None
    again = decode(encode(value))
    assert again is not None
    assert again == value
    assert again["n"] == 9007199254740993000001


@pytest.mark.parametrize(("size", "chunk"), [((64 << 10) + 1, 4096), (1 << 20, 65536), (50 << 20, 1 << 20)])
def test_c112_long_lines_are_cut_nowhere(size: int, chunk: int) -> None:
    line = b'"' + b"x" * size + b'"'
    stream = b"{}\n" + line + b"\n{}\n"
    lines = Lines()
    found = [
        part for start in range(0, len(stream), chunk) for part in lines.feed(stream[start : start + chunk])
    ]
    assert [(end, len(part)) for end, part in found] == [(3, 2), (3 + size + 3, size + 2), (len(stream), 2)]


def test_a_line_that_is_still_being_written_is_kept_back() -> None:
    lines = Lines()
    assert lines.feed(b'{"a"') == []
    assert lines.feed(b":1}\n{") == [(8, b'{"a":1}')]


# --------------------------------------------------------------------------------------- rebuilding


def asked(*calls: str) -> tuple[Script, list[str]]:
    script = Script()
    script.user("go")
    return script, script.says("msg_1", text("plan"), *(use(call) for call in calls))


def test_c038_every_interleaving_gives_each_call_its_one_result_in_order() -> None:
    calls = ("toolu_1", "toolu_2", "toolu_3")
    for finished in range(8):
        script, uuids = asked(*calls)
        there = [number for number in range(3) if finished >> number & 1]
        for number in there:
            script.result(calls[number], f"real {number}", uuids[number + 1])
        answers = {call: done(f"logged {call}") for call in calls}
        same = case(Response("msg_1", calls, open=False, began=True), answers=answers)
        rebuilt = rebuild(script.lines, same)
        results = told(rebuilt)
        assert sorted(call for call, _ in results) == sorted(calls)
        for number, call in enumerate(calls):
            assert dict(results)[call] == (f"real {number}" if number in there else f"logged {call}")
        assert [call for call, said in results if said.startswith("logged")] == [
            call for number, call in enumerate(calls) if number not in there
        ]
        assert rebuilt.mode == "continue"
        check_stable(rebuilt, same)


def test_a_result_hangs_on_the_line_that_asked() -> None:
    script, uuids = asked("toolu_1", "toolu_2")
    same = case(
        Response("msg_1", ("toolu_1", "toolu_2"), open=False, began=True),
        answers={"toolu_1": done("a"), "toolu_2": Answer(UNKNOWN, True, UNKNOWN)},
    )
    added = [line for line in rebuild(script.lines, same).lines if line.results]
    assert [line.parent for line in added] == uuids[1:]
    assert [line.value["sourceToolAssistantUUID"] for line in added] == uuids[1:]
    assert [line.results[0]["is_error"] for line in added] == [False, True]


def test_a_response_of_which_nothing_began_is_cut_and_given_again() -> None:
    script, _ = asked("toolu_1", "toolu_2")
    same = case(Response("msg_1", ("toolu_1", "toolu_2"), open=True, began=False))
    rebuilt = rebuild(script.lines, same)
    assert ([line.kind for line in rebuilt.lines], rebuilt.mode) == (["user"], "continue")
    assert rebuilt.cut == ("msg_1",)
    check_stable(rebuilt, same)


def test_results_of_an_earlier_response_survive_a_cut() -> None:
    script, uuids = asked("toolu_1")
    script.says("msg_2", use("toolu_2"))
    script.result("toolu_1", "late", uuids[1])
    first = Response("msg_1", ("toolu_1",), open=False, began=True)
    rebuilt = rebuild(script.lines, case(first, Response("msg_2", ("toolu_2",), open=True, began=False)))
    assert told(rebuilt) == [("toolu_1", "late")]


def test_lines_that_were_never_mirrored_are_written_from_the_recorded_response() -> None:
    """C016: with no help from the harness's file."""
    blocks = (text("plan"), use("toolu_1"), use("toolu_2"))
    recorded = Recorded("msg_1", "claude", blocks, "tool_use", {"input_tokens": 1})
    response = Response("msg_1", ("toolu_1", "toolu_2"), open=False, began=True, recorded=recorded)
    answers = {"toolu_1": done("a"), "toolu_2": Answer(NOT_STARTED, True, NOT_STARTED)}
    for mirrored in range(3):
        script = Script()
        script.user("go")
        script.says("msg_1", *blocks[:mirrored])
        same = case(response, answers=answers)
        rebuilt = rebuild(script.lines, same)
        said = [block for line in rebuilt.lines if line.kind == "assistant" for block in line.blocks]
        assert said == list(blocks)
        assert told(rebuilt) == [("toolu_1", "a"), ("toolu_2", NOT_STARTED)]
        check_stable(rebuilt, same)


def test_two_responses_behind_the_mirror_stay_in_order() -> None:
    def response(number: int) -> Response:
        recorded = Recorded(f"msg_{number}", "claude", (use(f"toolu_{number}"),), "tool_use", {})
        return Response(f"msg_{number}", (f"toolu_{number}",), open=False, began=True, recorded=recorded)

    script = Script()
    script.user("go")
    answers = {"toolu_1": done("a"), "toolu_2": done("b")}
    rebuilt = rebuild(script.lines, case(response(1), response(2), answers=answers))
    chain = [line.asks or told_of(line) for line in rebuilt.lines[1:]]
    assert chain == [["toolu_1"], ["a"], ["toolu_2"], ["b"]]
    assert rebuilt.lines[3].parent == rebuilt.lines[2].uuid


def told_of(line: Line) -> list[str]:
    return [str(result["content"]) for result in line.results]


def test_c056_a_prompt_that_ran_but_was_not_mirrored_is_written_and_not_sent_again() -> None:
    recorded = Recorded("msg_1", "claude", (use("toolu_1"),), "tool_use", {})
    prompt = "33333333-3333-4333-8333-333333333333"
    response = Response("msg_1", ("toolu_1",), False, True, recorded, (prompt, "the prompt"))
    rebuilt = rebuild([], case(response, answers={"toolu_1": done("a")}, prompt=prompt))
    assert rebuilt.mode == "continue"
    assert rebuilt.lines[0].delivered == prompt
    assert rebuilt.lines[0].message["content"] == "the prompt"


def test_a_prompt_of_an_earlier_turn_comes_before_what_ran_for_it() -> None:
    recorded = Recorded("msg_1", "claude", (use("toolu_1"),), "tool_use", {})
    earlier, now = "33333333-3333-4333-8333-333333333333", "44444444-4444-4444-8444-444444444444"
    response = Response("msg_1", ("toolu_1",), False, True, recorded, (earlier, "the earlier prompt"))
    rebuilt = rebuild([], case(response, answers={"toolu_1": done("a")}, prompt=now))
    assert rebuilt.mode == "resume", "the message of this turn is still to be sent"
    assert rebuilt.lines[0].message["content"] == "the earlier prompt"


def test_c056_a_prompt_that_is_nowhere_is_to_be_sent() -> None:
    script = Script()
    script.user("earlier")
    script.says("msg_0", text("earlier answer"))
    rebuilt = rebuild(script.lines, case(prompt="33333333-3333-4333-8333-333333333333"))
    assert rebuilt.mode == "resume"
    assert [line.raw for line in rebuilt.lines] == script.raw


def test_c028_a_file_without_a_message_counts_as_empty() -> None:
    lines = [made({"type": "summary", "summary": "s", "leafUuid": "x"}), made({"type": "queue-operation"})]
    assert rebuild(lines, case(running=False)).mode == "fresh"


def test_c005_a_last_word_in_an_open_turn_is_cut_so_that_the_turn_can_end() -> None:
    for stopped in (text("done"), text("")):
        script = Script()
        script.user("go")
        script.says("msg_1", stopped)
        same = case()
        rebuilt = rebuild(script.lines, same)
        assert ([line.kind for line in rebuilt.lines], rebuilt.mode) == (["user"], "continue")
        check_stable(rebuilt, same)


def test_c005_a_half_written_call_gets_a_result() -> None:
    script, _ = asked("toolu_1")
    rebuilt = rebuild(script.lines, case())
    assert told(rebuilt) == [("toolu_1", UNKNOWN)]


@pytest.mark.parametrize("written", [None, "text", 7, [], [{"command": "x"}]])
def test_c037_arguments_that_are_no_object_end_in_a_result_and_no_crash(written: object) -> None:
    script, _ = asked()
    block = {**use("toolu_1"), "input": written}
    script.says("msg_1", block)
    rebuilt = rebuild(script.lines, case())
    assert told(rebuilt) == [("toolu_1", UNKNOWN)]
    check_stable(rebuilt, case())
    recorded = Recorded("msg_1", "claude", (block,), "tool_use", {})
    same = case(Response("msg_1", ("toolu_1",), open=False, began=True, recorded=recorded))
    again = rebuild(script.lines[:1], same)
    assert told(again) == [("toolu_1", UNKNOWN)]
    check_stable(again, same)


def test_our_own_marks_are_taken_out_and_their_children_hang_on_what_was_before() -> None:
    script, uuids = asked("toolu_1")
    before = script.result("toolu_1", "a", uuids[1])
    script.user(RESUME_SENTINEL, isMeta=True)
    script.says("msg_2", use("toolu_2"))
    lines = repair(script.lines)
    assert all(RESUME_SENTINEL.encode() not in line.raw for line in lines)
    assert lines[-1].parent == before


def test_a_false_result_of_a_stopped_call_is_corrected() -> None:
    script, uuids = asked("toolu_1")
    lie = "The user doesn't want to proceed with this tool use. The tool use was rejected"
    script.result("toolu_1", lie, uuids[1], is_error=True)
    script.interrupted("[Request interrupted by user for tool use]")
    answers = {"toolu_1": Answer("cancelled: truly", True, "cancelled: truly")}
    known = case(Response("msg_1", ("toolu_1",), open=False, began=True), answers=answers, running=False)
    same = msgspec.structs.replace(known, ending="it was stopped")
    rebuilt = rebuild(script.lines, same)
    assert told(rebuilt) == [("toolu_1", "cancelled: truly")]
    assert b"interrupted by user" not in file_of(rebuilt.lines)
    check_stable(rebuilt, same)


@pytest.mark.parametrize("note", ["", "[Request interrupted by user]"])
def test_a_settled_turn_that_was_cut_off_ends_in_its_true_reason(note: str) -> None:
    script, uuids = asked("toolu_1")
    script.result("toolu_1", "a", uuids[1])
    if note:
        script.interrupted(note)
    same = msgspec.structs.replace(case(running=False), ending="Ann wanted it")
    rebuilt = rebuild(script.lines, same)
    assert rebuilt.mode == "resume"
    last = rebuilt.lines[-1]
    assert (last.kind, last.parent) == ("assistant", rebuilt.lines[-2].uuid)
    assert "Ann wanted it" in text_of(last.blocks)
    assert len(rebuilt.lines) == len(uuids) + 3
    check_stable(rebuilt, same)


def test_an_interruption_in_a_turn_that_goes_on_is_no_part_of_it() -> None:
    script, uuids = asked("toolu_1")
    script.result("toolu_1", "a", uuids[1])
    before = script.raw
    script.interrupted("[Request interrupted by user]")
    rebuilt = rebuild(script.lines, case())
    assert (rebuilt.mode, [line.raw for line in rebuilt.lines]) == ("continue", before)


def test_a_user_may_say_what_the_harness_says_when_it_is_interrupted() -> None:
    script = Script()
    script.user("[Request interrupted by user]")
    assert rebuild(script.lines, case()).lines == script.lines


def test_blocks_of_any_kind_are_told_apart() -> None:
    first: Json = {"type": "redacted_thinking", "data": "one"}
    second: Json = {"type": "redacted_thinking", "data": "two"}
    recorded = Recorded("msg_1", "claude", (first, second, use("toolu_1")), "tool_use", {})
    response = Response("msg_1", ("toolu_1",), open=False, began=True, recorded=recorded)
    script = Script()
    script.user("go")
    script.says("msg_1", {**first, "cache_control": {"type": "ephemeral"}, "citations": None})
    rebuilt = rebuild(script.lines, case(response, answers={"toolu_1": done("a")}))
    said = [block.get("data") for line in rebuilt.lines if line.kind == "assistant" for block in line.blocks]
    assert said == ["one", "two", None]


def test_a_response_that_the_harness_passed_over_is_not_written_behind_later_ones() -> None:
    stale = Recorded("msg_0", "claude", (use("toolu_0"),), "tool_use", {})
    old = Response("msg_0", ("toolu_0",), open=False, began=True, recorded=stale)
    script, uuids = asked("toolu_1")
    script.result("toolu_1", "a", uuids[1])
    rebuilt = rebuild(
        script.lines,
        case(old, Response("msg_1", ("toolu_1",), open=False, began=True), answers={"toolu_0": done("x")}),
    )
    assert [line.raw for line in rebuilt.lines] == script.raw


def test_c116_a_large_result_is_given_as_it_was() -> None:
    large = "x" * (12 << 20)
    script, _ = asked("toolu_1")
    answers = {"toolu_1": Answer(large, False, large)}
    rebuilt = rebuild(
        script.lines, case(Response("msg_1", ("toolu_1",), open=False, began=True), answers=answers)
    )
    assert told(rebuilt) == [("toolu_1", large)]


# ---------------------------------------------------------------------------------- real transcripts


@pytest.mark.parametrize("sample", EVERY)
def test_c122_transcripts_are_read_whole_and_rebuilt_once(sample: str) -> None:
    raw = EVERY[sample]
    lines, findings = parse(raw)
    bad = sum(finding.trouble in ("unreadable", "torn") for finding in findings)
    assert len(lines) == len(raw) - bad > 0
    same = case(running=False)
    rebuilt = rebuild(lines, same)
    asked_for = [call for line in rebuilt.lines for call in line.asks]
    answered = [call for call, _ in told(rebuilt)]
    assert set(asked_for) <= set(answered)
    check_stable(rebuilt, same)


@pytest.mark.parametrize("sample", EVERY)
def test_c031_nothing_that_was_mirrored_is_dropped_by_a_rebuild(sample: str) -> None:
    lines, _ = parse(EVERY[sample])
    kept = {line.uuid for line in rebuild(lines, case(running=False)).lines}
    assert kept >= {line.uuid for line in lines if line.uuid}


# -------------------------------------------------------------------------------- protocol, launch


def test_what_was_said_tells_what_is_still_to_be_answered() -> None:
    frames: list[Json] = [
        {"type": "control_request", "request_id": "ours", "request": {}},
        {"type": "control_response", "response": {"subtype": "success", "request_id": "theirs"}},
        {"type": "user", "uuid": "u-1", "message": {}},
    ]
    said = read_said(b"".join(json.dumps(frame).encode() + b"\n" for frame in frames) + b'{"type":"us')
    assert (said.asked, said.answered, said.messages) == ({"ours"}, {"theirs"}, {"u-1"})


@pytest.mark.parametrize(
    ("frame", "stopped", "expected"),
    [
        ({"subtype": "success", "is_error": False, "result": "hi"}, None, ("completed", "")),
        ({"subtype": "success", "is_error": True, "api_error_status": 400}, None, ("failed", "api_400")),
        ({"subtype": "success", "is_error": True, "result": "API Error: 529 x"}, None, ("failed", "api_529")),
        ({"subtype": "error_max_turns", "is_error": True}, None, ("failed", "error_max_turns")),
        ({"subtype": "error_during_execution", "is_error": True}, "Ann", ("cancelled", "")),
        ({"subtype": "success", "is_error": False, "result": "hi"}, "Ann", ("completed", "")),
    ],
)
def test_c041_the_error_mark_decides_and_not_the_word_success(
    frame: Json, stopped: str | None, expected: tuple[str, str]
) -> None:
    end = turn_end(frame, stopped)
    assert (end.kind, end.code) == expected


@pytest.mark.parametrize(
    ("status", "attempt", "login", "ends"),
    [
        (401, 1, False, True),
        (401, 1, True, False),
        (401, 3, True, True),
        (400, 1, True, True),
        (529, 9, False, False),
    ],
)
def test_a_turn_ends_at_once_only_for_what_the_harness_cannot_mend(
    status: int, attempt: int, login: bool, ends: bool
) -> None:
    frame: Json = {"subtype": "api_retry", "error_status": status, "attempt": attempt}
    assert (hopeless(frame, Session(), login=login) is not None) == ends


def test_c029_the_log_names_a_transcript_without_the_workspaces_path() -> None:
    for folder in ("-tmp-a-b", "-private-tmp-a-b", "-tmp-with-space"):
        path = f"/home/x/projects/{folder}/{NATIVE}.jsonl"
        assert file_name(path, NATIVE) == f"{NATIVE}.jsonl"
        inner = f"/home/x/projects/{folder}/{NATIVE}/subagents/agent-1.jsonl"
        assert file_name(inner, NATIVE) == f"{NATIVE}/subagents/agent-1.jsonl"


async def test_place_holders_within_a_conversation_are_not_filled_in() -> None:
    """A sandbox fills nothing into what comes in pieces."""

    async def conversation() -> AsyncGenerator[bytes]:
        yield b'{"text":"see @PORT@ and @HOME@"}\n'

    agent = AgentSpec("claude-code", "2.1.332", "m", "local", "/workspace")
    start = Start("/bin/claude", NATIVE, agent, "/home/a", "token", custom=False)
    plan = launch(start, "continue", conversation)
    content = next(content for name, content in plan.files.items() if name.endswith(".jsonl"))
    assert content is conversation


def test_a_recorded_stream_and_a_recorded_message_are_the_same_response() -> None:
    events: list[Json] = [
        {
            "type": "message_start",
            "message": {"id": "msg_1", "type": "message", "model": "m", "usage": {}},
        },
        {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}},
        {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "hi"}},
        {"type": "content_block_stop", "index": 0},
        {"type": "content_block_start", "index": 1, "content_block": {**use("toolu_1"), "input": {}}},
        {
            "type": "content_block_delta",
            "index": 1,
            "delta": {"type": "input_json_delta", "partial_json": '{"command": "true"}'},
        },
        {"type": "content_block_stop", "index": 1},
        {"type": "message_delta", "delta": {"stop_reason": "tool_use"}, "usage": {"output_tokens": 3}},
        {"type": "message_stop"},
    ]
    stream = b"".join(b"event: x\ndata: " + json.dumps(event).encode() + b"\n\n" for event in events)
    found = parse_response("text/event-stream; charset=utf-8", stream)
    assert found is not None
    assert (found.id, found.blocks, found.stop_reason) == ("msg_1", (text("hi"), use("toolu_1")), "tool_use")


def test_the_last_request_tells_exactly_what_the_model_was_shown() -> None:
    block = {"type": "tool_result", "tool_use_id": "toolu_1", "content": "exact", "is_error": False}
    body = json.dumps({"messages": [{"role": "user", "content": [block]}, {"role": "user", "content": "x"}]})
    assert results_in(body.encode()) == {"toolu_1": block}
