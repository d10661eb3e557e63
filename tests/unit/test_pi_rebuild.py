"""What is added to a session file before a new life, case by case."""

from __future__ import annotations

from typing import cast

import msgspec
import pytest

from harness_durable.policy import UNKNOWN
from harness_durable_adapters.common.lost import OPENING
from harness_durable_adapters.common.shapes import Json, decode, encode, mapping, text_of
from harness_durable_adapters.pi.entries import parse, path
from harness_durable_adapters.pi.rebuild import Answer, Case, Rebuilt, rebuild, unanswered
from harness_durable_adapters.pi.repair import lost_entry, repaired
from tests.unit.pi_samples import HEADER, assistant, line, result, user

CASE = Case(native="native", life="life-1", stamp="t", model="m", prompt="n-1")
GO = user("a", None, "go", "n-1")
ASKS = assistant("b", "a", "t1", "t2")
SAID = Answer([{"type": "text", "text": "said"}], False, {"x": 1}, "bash")


def built(*lines: bytes, **more: object) -> tuple[Rebuilt, list[bytes]]:
    """The result, and the file with it."""
    case = msgspec.structs.replace(CASE, **more)
    rebuilt = rebuild(parse([HEADER, *lines]).entries, case)
    return rebuilt, [HEADER, *lines, *(encode(entry) for entry in rebuilt.added)]


def leaf(lines: list[bytes]) -> str:
    return [entry for entry in path(parse(lines).entries) if entry.is_talk][-1].id


def test_a_message_that_is_not_there_yet_is_given() -> None:
    assert built()[0] == Rebuilt([], "message")


def test_a_turn_whose_answer_never_came_goes_on_as_it_is() -> None:
    assert built(GO)[0] == Rebuilt([], "continue")
    assert built(GO, ASKS, result("c", "b", "t1"), result("d", "c", "t2"))[0] == Rebuilt([], "continue")


def test_a_response_with_a_call_that_may_run_is_given_again() -> None:
    rebuilt, lines = built(GO, ASKS, result("c", "b", "t1"), open=frozenset({"t2"}), answers={"t1": SAID})
    assert (rebuilt.mode, rebuilt.cut, leaf(lines)) == ("continue", True, "a")


def test_results_that_are_known_are_written_instead() -> None:
    rebuilt, lines = built(GO, ASKS, answers={"t1": SAID, "t2": SAID})
    assert (rebuilt.mode, rebuilt.cut, rebuilt.made_up) == ("continue", False, ("t1", "t2"))
    assert unanswered(parse(lines).entries) == ()
    message = mapping(rebuilt.added[0].get("message"))
    assert (message["content"], message["details"], message["toolName"]) == (SAID.content, {"x": 1}, "bash")


def test_a_last_word_is_given_again_since_the_turn_is_not_settled() -> None:
    rebuilt, lines = built(GO, assistant("b", "a", text="done"))
    assert (rebuilt.cut, leaf(lines)) == (True, "a")


@pytest.mark.parametrize("stop", ["error", "aborted"])
def test_an_answer_that_failed_is_asked_for_again(stop: str) -> None:
    rebuilt, lines = built(GO, assistant("b", "a", stop=stop))
    assert (rebuilt.cut, leaf(lines)) == (True, "a")
    rebuilt, lines = built(GO, assistant("b", "a", "t1", stop=stop))
    assert (rebuilt.cut, leaf(lines)) == (True, "a")


def test_a_steer_after_the_last_word_keeps_its_place() -> None:
    assert built(GO, assistant("b", "a", text="done"), user("c", "b", "more", "s-1"))[0].added == []


def test_what_an_earlier_turn_said_is_not_given_again() -> None:
    lines = (user("x", None, "before", "n-0"), assistant("y", "x", text="old"), user("a", "y", "go", "n-1"))
    assert built(*lines)[0] == Rebuilt([], "continue")


def test_rebuilding_again_adds_nothing() -> None:
    for lines, more in (
        ([GO, ASKS], {"open": frozenset({"t1", "t2"})}),
        ([GO, ASKS], {"answers": {"t1": SAID, "t2": SAID}}),
        ([GO, assistant("b", "a", text="done")], {}),
    ):
        once, whole = built(*lines, **cast(Json, more))
        assert once.added
        again = rebuild(parse(whole).entries, msgspec.structs.replace(CASE, life="life-2", **more))
        assert again.added == []


def test_a_response_is_given_again_in_life_after_life() -> None:
    _, whole = built(GO, ASKS, open=frozenset({"t1"}))
    whole.append(assistant("z", parse(whole).entries[-1].id, "t1", "t2"))
    case = msgspec.structs.replace(CASE, life="life-2", open=frozenset({"t1"}))
    again = rebuild(parse(whole).entries, case)
    names = [entry.id for entry in parse([*whole, *(encode(one) for one in again.added)]).entries]
    assert again.cut
    assert len(set(names)) == len(names)


def test_a_turn_that_was_stopped_is_closed_before_the_next() -> None:
    """Its calls get the results that the log has, and the model is told why it broke off."""
    lines = (user("x", None, "before", "n-0"), assistant("y", "x", "t1", "t2"))
    rebuilt, whole = built(*lines, answers={"t1": SAID}, ending="it was stopped before its end")
    assert (rebuilt.mode, rebuilt.made_up) == ("message", ("t1", "t2"))
    texts = [str(mapping(entry.get("message")).get("content")) for entry in rebuilt.added]
    assert "said" in texts[0]
    assert UNKNOWN in texts[1]
    assert "it was stopped before its end" in texts[2]
    assert [entry.role for entry in path(parse(whole).entries)][-3:] == [
        "toolResult",
        "toolResult",
        "assistant",
    ]


def test_a_turn_that_ended_well_gets_no_note() -> None:
    lines = (user("x", None, "before", "n-0"), assistant("y", "x", text="done"))
    assert built(*lines, ending="of no account")[0].added == []


def test_a_stopped_answer_is_told_although_the_harness_drops_it() -> None:
    lines = (user("x", None, "before", "n-0"), assistant("y", "x", stop="aborted"))
    rebuilt, _ = built(*lines, ending="it was stopped")
    assert len(rebuilt.added) == 1
    assert rebuilt.added[0]["parentId"] == "x", "the note takes the place of what is dropped"


def test_a_call_that_a_stop_left_without_a_result_gets_one_in_its_place() -> None:
    stopped = assistant("z", "r", stop="aborted")
    lines = (
        user("x", None, "before", "n-0"),
        assistant("y", "x", "t1", "t2"),
        result("r", "y", "t1"),
        stopped,
    )
    rebuilt, whole = built(*lines, answers={"t2": SAID}, ending="it was stopped")
    assert rebuilt.made_up == ("t2",)
    way = [entry for entry in path(parse(whole).entries) if entry.is_talk]
    assert [entry.result for entry in way] == ["", "", "t1", "t2", ""]


def test_entries_that_are_no_messages_do_not_matter() -> None:
    edit = line({"type": "context_edit", "id": "e", "parentId": "b", "targetId": "b", "replacement": None})
    rebuilt, whole = built(GO, assistant("b", "a", stop="error"), edit)
    assert (rebuilt.cut, leaf(whole)) == (True, "a")


# ------------------------------------------------------------------------------------ what is lost


def brought(*lines: bytes) -> tuple[list[bytes], str]:
    """A damaged file as it is after its repair, and what the model is to be told."""
    sound = [HEADER, *repaired(lines, "native")]
    last = parse(sound).entries[-1]
    parent = "" if last.is_header else last.id
    kept = lost_entry(parse(lines).findings, "native", "life-0", "t", parent)
    words = str(mapping(kept.get("data")).get("lost")) if kept is not None else ""
    return [*sound, *([encode(kept)] if kept is not None else [])], words


def read_by_model(lines: list[bytes]) -> list[tuple[str, str]]:
    """Role and text of what the path shows, in order."""
    talk = [entry for entry in path(parse(lines).entries) if entry.is_talk]
    bodies = [mapping((decode(lines[entry.line]) or {}).get("message")) for entry in talk]
    return [(str(body["role"]), text_of(body["content"])) for body in bodies]


def test_c001_a_damaged_line_is_told_with_the_next_message_by_place_and_once() -> None:
    sound, words = brought(HEADER, user("a", None, "hi"), b'{"torn', assistant("b", "a", text="hello"))
    offset = len(HEADER) + len(user("a", None, "hi")) + 2
    assert words == (
        f"1 line of this conversation's record could not be read and is left out (6 bytes at byte {offset})"
    )
    rebuilt, whole = built(*sound[1:])
    note = f"[Note by harness-durable, not by the model: {words}.]"
    assert read_by_model(whole) == [("user", "hi"), ("assistant", "hello"), ("assistant", note)]
    assert rebuilt.told == note
    assert built(*whole[1:])[0] == Rebuilt([], "message"), "not once more, in another life"
    later = user("z", parse(whole).entries[-1].id, "go", "n-1")
    assert built(*whole[1:], later)[0] == Rebuilt([], "continue")


def test_c001_a_turn_that_goes_on_is_asked_what_it_was_asked_and_told_afterwards() -> None:
    """What it was asked may have a recorded answer, which must still fit."""
    sound, words = brought(HEADER, GO, b"{torn", ASKS)
    rebuilt, whole = built(*sound[1:], open=frozenset({"t1", "t2"}))
    assert (rebuilt.mode, rebuilt.cut, rebuilt.told) == ("continue", True, "")
    assert read_by_model(whole) == [("user", "go")]
    said = assistant("z", parse(whole).entries[-1].id, text="done")
    rebuilt, whole = built(*whole[1:], said, prompt="n-2", life="life-2")
    assert [words in text for _, text in read_by_model(whole)] == [False, False, True]


def test_c001_a_reason_and_a_loss_stand_in_one_note() -> None:
    sound, words = brought(HEADER, user("x", None, "before", "n-0"), assistant("y", "x", "t1"), b"{torn")
    rebuilt, whole = built(*sound[1:], answers={"t1": SAID}, ending="it was stopped before its end")
    notes = [text for role, text in read_by_model(whole) if role == "assistant" and text]
    assert notes == [rebuilt.told]
    assert "it was stopped before its end" in notes[0]
    assert words in notes[0]


def test_c001_two_losses_are_told_in_one_note() -> None:
    sound, _ = brought(HEADER, user("a", None, "hi"), b"{torn")
    findings = parse([b"{more", b"\0\0"]).findings
    more = lost_entry(findings, "native", "life-9", "t", parse(sound).entries[-1].id)
    rebuilt, whole = built(*sound[1:], encode(more))
    assert rebuilt.told.count("could not be read") == 2
    assert "2 zero bytes at byte 6" in rebuilt.told
    assert built(*whole[1:])[0].added == []


@pytest.mark.parametrize("rest", [(), (assistant("b", "a", text="hello"),)])
def test_c001_a_conversation_whose_beginning_is_lost_still_begins_with_the_user(
    rest: tuple[bytes, ...],
) -> None:
    sound, words = brought(HEADER, user("a", None, "hi")[:30], *rest)
    _, whole = built(*sound[1:])
    said = read_by_model(whole)
    assert said[0] == ("user", OPENING)
    assert words in said[-1][1]
    assert len(said) == 2 + len(rest)
    assert parse(whole).sound
    assert built(*whole[1:])[0].added == []


def test_c001_a_result_that_is_left_out_is_told_although_it_can_be_read() -> None:
    _, words = brought(HEADER, user("a", None, "hi"), assistant("b", "a", "t1")[:40], result("c", "b", "t1"))
    assert "1 line of this conversation's record could not be read" in words
    assert words.endswith("the result of 1 call is left out, since what asked for it is not on record")


def test_c001_where_nothing_is_dropped_nothing_is_said() -> None:
    said = user("a", None, "hi")
    assert brought(HEADER, said, said)[1] == ""
    assert brought(said, b"", assistant("b", "a", text="hello"))[1] == ""
