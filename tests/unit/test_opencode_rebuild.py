"""From mirrored events and the log to a conversation that OpenCode goes on from, without any harness."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence

from harness_durable.policy import CANCELLED, NOT_STARTED, UNKNOWN
from harness_durable_adapters.common.shapes import Json, mapping
from harness_durable_adapters.opencode.conversation import Conversation, Newest
from harness_durable_adapters.opencode.events import (
    CREATED,
    MESSAGE,
    MESSAGE_GONE,
    PART,
    PART_GONE,
    Row,
    lasting,
    made,
    read,
)
from harness_durable_adapters.opencode.rebuild import Answer, Case, Rebuilt, Response, rebuild
from harness_durable_adapters.opencode.response import Called, Recorded, parse

SESSION, NOW = "ses_1", 5_000
USER, ASKING = "msg_1", "msg_2"


def message(number: str, role: str = "assistant", **more: object) -> Row:
    time: Json = {"created": 1_000}
    info: Json = {"id": number, "role": role, "sessionID": SESSION, "time": time, "parentID": USER, **more}
    return made(f"evt_{number}", MESSAGE, {"sessionID": SESSION, "info": info})


def part(number: str, of: str, kind: str, **more: object) -> Row:
    one: Json = {"id": number, "messageID": of, "sessionID": SESSION, "type": kind, **more}
    return made(f"evt_{number}", PART, {"sessionID": SESSION, "part": one})


def tool(call: str, status: str, **state: object) -> Row:
    return part(f"prt_{call}", ASKING, "tool", callID=call, tool="bash", state={"status": status, **state})


def conversation(rows: Iterable[Row]) -> Conversation:
    found = Conversation()
    for row in rows:
        found.take(row)
    return found


BEGUN = (message(USER, "user"), part("prt_0", USER, "text", text="go"), message(ASKING))
RECORDED = Recorded(
    "I look", "", (Called("c1", "bash", {"command": "a"}), Called("c2", "bash", {})), {"input": 3}
)


def case(
    responses: Sequence[Response] = (), answers: dict[str, Answer] | None = None, **more: object
) -> Case:
    fields: Json = {"running": True, "ending": "", **more}
    return Case(
        SESSION, bool(fields["running"]), "m", "/work", NOW, responses, answers or {}, str(fields["ending"])
    )


def response(*, opened: bool = False, began: bool = True) -> Response:
    return Response("m1", ("c1", "c2"), opened, began, RECORDED if began and not opened else None)


def said(rows: Sequence[Row], case: Case) -> tuple[Conversation, Rebuilt]:
    """What the events come to with those that the rebuild adds."""
    rebuilt = rebuild(conversation(rows), case)
    return conversation([*rows, *rebuilt.rows]), rebuilt


def test_an_answer_of_which_nothing_began_is_taken_back() -> None:
    after, rebuilt = said(BEGUN, case([response(opened=True, began=False)]))
    assert list(after.messages) == [USER]
    assert [row.kind for row in rebuilt.rows] == [MESSAGE_GONE]


def test_an_answer_that_began_is_written_to_its_end_with_one_result_for_each_call() -> None:
    done: Json = {"output": "A", "title": "t", "metadata": {"exit": 0}}
    answers = {
        "c1": Answer(ok=True, ran=True, text="A", form=done),
        "c2": Answer(ok=False, ran=False, text=UNKNOWN, form={}),
    }
    after, _ = said(BEGUN, case([response()], answers))
    last = after.messages[ASKING]
    assert (last.finish, last.text, last.info["tokens"]) == ("tool-calls", "I look", {"input": 3})
    kinds = [one["type"] for _, one in sorted(last.parts.items())]
    assert kinds == ["step-start", "text", "tool", "tool", "step-finish"]
    first, second = (mapping(one["state"]) for one in last.tools)
    assert (first["status"], first["output"], first["metadata"]) == ("completed", "A", {"exit": 0})
    assert first["input"] == {"command": "a"}
    assert (second["status"], second["error"]) == ("error", UNKNOWN)


def task(call: str, status: str, **state: object) -> Row:
    """A call of a subagent, whose session is ``ses_child``."""
    state = {"status": status, "metadata": {"sessionId": "ses_child"}, "input": {"prompt": "x"}, **state}
    return part(f"prt_{call}", ASKING, "tool", callID=call, tool="task", state=state)


def test_a_subagent_that_goes_on_keeps_its_call_open_and_its_siblings_get_their_results() -> None:
    answers = {"c1": Answer(ok=False, ran=False, text=NOT_STARTED, form={})}
    running = task("c2", "running")
    assert lasting(running)
    after, _ = said([*BEGUN, running], case([response()], answers))
    assert after.subagents() == {"c2": "ses_child"}
    last = after.messages[ASKING]
    assert last.finish == "tool-calls"
    first, second = (mapping(one["state"]) for one in last.tools)
    assert (first["error"], second["status"]) == (NOT_STARTED, "running")
    answers["c2"] = Answer(ok=True, ran=True, text="done", form={"output": "done"})
    rows = [*BEGUN, running]
    rows += rebuild(conversation(rows), case([response()], {"c1": answers["c1"]})).rows
    later, _ = said(rows, case([response()], answers))
    assert later.subagents() == {}
    assert mapping(later.messages[ASKING].tools[1]["state"])["output"] == "done"


def test_an_answer_whose_calls_have_all_ended_is_not_asked_for_again() -> None:
    """Killed between the last result and the end of the message."""
    rows = [*BEGUN, tool("c1", "completed", output="A", input={}), tool("c2", "completed", output="B")]
    after, _ = said(rows, case([response()]))
    last = after.messages[ASKING]
    assert (last.finish, [mapping(one["state"])["output"] for one in last.tools]) == (
        "tool-calls",
        ["A", "B"],
    )


def test_what_the_harness_wrote_itself_stays_as_it_is() -> None:
    state = tool("c1", "completed", output="its own", input={"command": "a"})
    answers = {"c2": Answer(ok=False, ran=False, text=NOT_STARTED, form={})}
    after, _ = said(
        [*BEGUN, part("prt_9", ASKING, "text", text="its text"), state], case([response()], answers)
    )
    last = after.messages[ASKING]
    assert last.text == "its text"
    assert mapping(last.tools[0]["state"])["output"] == "its own"
    assert mapping(last.tools[1]["state"])["error"] == NOT_STARTED


def test_a_message_that_was_never_written_is_made() -> None:
    answers = {name: Answer(ok=True, ran=True, text=name, form={}) for name in ("c1", "c2")}
    after, _ = said(BEGUN[:2], case([response()], answers))
    assert [one.is_user for one in after.messages.values()] == [True, False]
    assert after.last is not None
    assert (after.last.info["parentID"], len(after.last.tools)) == (USER, 2)


def test_a_rebuild_of_a_rebuild_changes_nothing() -> None:
    answers = {name: Answer(ok=False, ran=False, text=UNKNOWN, form={}) for name in ("c1", "c2")}
    known = case([response()], answers)
    first = rebuild(conversation(BEGUN), known)
    assert rebuild(conversation([*BEGUN, *first.rows]), known).rows == []


def test_a_stopped_command_that_looks_completed_is_said_to_be_cancelled() -> None:
    killed = tool("c1", "completed", output="half\nUser aborted the command", input={})
    rows = [*BEGUN, killed, message(ASKING, finish="tool-calls")]
    answers = {"c1": Answer(ok=False, ran=False, text=CANCELLED, form={})}
    after, _ = said(rows, case([], answers, running=False, ending="Ann asked for a stop"))
    assert mapping(after.messages[ASKING].tools[0]["state"])["error"] == CANCELLED
    assert after.last is not None
    assert "Ann asked for a stop" in after.last.text
    assert after.last.finish == "stop"


def test_a_result_that_the_harness_gave_up_is_the_logs() -> None:
    aborted = tool("c1", "error", error="Tool execution aborted", input={})
    answers = {"c1": Answer(ok=True, ran=True, text="A", form={})}
    after, _ = said([*BEGUN, aborted, message(ASKING, finish="tool-calls")], case([], answers))
    assert mapping(after.messages[ASKING].tools[0]["state"])["output"] == "A"


def test_an_error_or_a_summary_at_the_end_does_not_end_a_turn_that_goes_on() -> None:
    error = message(ASKING, error={"name": "APIError"})
    assert list(said([*BEGUN[:2], error], case())[0].messages) == [USER]
    summary = message(ASKING, summary=True, finish="stop")
    assert list(said([*BEGUN[:2], summary], case())[0].messages) == [USER]
    assert list(said([*BEGUN[:2], error], case(running=False))[0].messages) == [USER, ASKING]


def test_only_lasting_values_are_kept() -> None:
    assert not lasting(tool("c1", "running", input={}))
    assert not lasting(tool("c1", "pending", input={}))
    assert lasting(tool("c1", "error", input={}))
    assert not lasting(part("p", ASKING, "text", text="", time={"start": 1}))
    assert lasting(part("p", ASKING, "text", text="x", time={"start": 1, "end": 2}))
    assert lasting(part("p", USER, "text", text="x"))
    assert not lasting(made("evt_s", "session.updated.1", {}))


def test_the_newest_rows_come_to_the_same_conversation() -> None:
    answered = message(ASKING, finish="stop", time={"created": 1_000, "completed": 2})
    again = message(USER, "user", time={"created": 9_000})
    rows = [
        made("evt_0", CREATED, {"info": {"id": SESSION}}),
        *BEGUN,
        part("prt_s", ASKING, "step-start"),
        tool("c1", "error", input={}),
        part("prt_gone", ASKING, "text", text="x"),
        made("evt_g", PART_GONE, {"messageID": ASKING, "partID": "prt_gone"}),
        message("msg_3"),
        made("evt_h", MESSAGE_GONE, {"messageID": "msg_3"}),
        tool("c1", "completed", input={}, output="A"),
        answered,
        again,
    ]
    newest = Newest()
    for row in rows:
        newest.take(row)
    kept = list(newest.rows())
    assert [row.id for row, _ in kept] == ["evt_0", "evt_msg_1", "evt_prt_0", "evt_msg_2", "evt_prt_c1"]
    times = [mapping(mapping(json.loads(data).get("info")).get("time")) for _, data in kept]
    assert [time.get("created") for time in times if time] == [1_000, 1_000]
    after, before = conversation(row for row, _ in kept), conversation(rows)
    assert after.messages.keys() == before.messages.keys()
    assert after.messages[ASKING].tools == before.messages[ASKING].tools


def test_what_a_compaction_summed_up_is_not_given_back() -> None:
    summary = message("msg_5", parentID="msg_4", summary=True)
    rows = [
        *BEGUN,
        message("msg_3", "user"),
        message("msg_4", "user"),
        part("prt_c", "msg_4", "compaction", auto=True, tail_start_id="msg_3"),
        summary,
    ]

    def given(rows: Sequence[Row]) -> list[str]:
        newest = Newest()
        for row in rows:
            newest.take(row)
        return [str(row.info["id"]) for row, _ in newest.rows() if row.kind == MESSAGE]

    finished = message("msg_5", parentID="msg_4", summary=True, finish="stop")
    whole = part("prt_c", "msg_4", "compaction", auto=True)
    assert given(rows) == [USER, ASKING, "msg_3", "msg_4", "msg_5"]
    assert given([*rows, finished]) == ["msg_3", "msg_4", "msg_5"]
    assert given([*rows, finished, whole]) == ["msg_4", "msg_5"]


def test_a_line_comes_back_as_it_was_and_what_is_none_is_passed_over() -> None:
    row = part("p", USER, "text", text="\x00 é 🙂 9007199254740993")
    again = read(row.raw)
    assert again is not None
    assert (again.raw, again.part) == (row.raw, row.part)
    assert read(b'{"torn') is None
    assert read(b"[]") is None
    deep = b'{"id":"e","type":"x","data":' + b'{"a":' * 500 + b"1" + b"}" * 501
    assert read(deep) is not None


def test_a_response_is_read_whichever_way_it_came() -> None:
    call = '{"id":"c1","type":"function","function":{"name":"bash","arguments":"{\\"command\\":\\"a\\"}"}}'
    choice = '{"message":{"content":"hi","tool_calls":[' + call + "]}}"
    usage = '{"prompt_tokens":5,"completion_tokens":2}'
    found = parse("application/json", f'{{"choices":[{choice}],"usage":{usage}}}'.encode())
    assert found is not None
    assert (found.text, found.calls) == ("hi", (Called("c1", "bash", {"command": "a"}),))
    assert (found.tokens["input"], found.tokens["output"]) == (5, 2)
    assert parse("application/json", b"no json") is None
