"""C001: what of a damaged transcript is dropped, the model is told; once, truly, and in a conversation that
a provider takes."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import pytest

from harness_durable_adapters.claude_code.case import Case
from harness_durable_adapters.claude_code.lost import is_pending, lost
from harness_durable_adapters.claude_code.rebuild import Rebuilt, file_of, rebuild
from harness_durable_adapters.claude_code.transcript import Line, is_conversation, parse
from harness_durable_adapters.common.lost import OPENING
from harness_durable_adapters.common.shapes import text_of
from tests.unit.test_claude_transcript import Script, case, check_stable, text, use

NEW = "33333333-3333-4333-8333-333333333333"
"""The message of a turn that the harness has not got yet."""


def conversation() -> Script:
    """A turn with a call, and one without; both settled."""
    script = Script()
    script.user("first")
    said = script.says("msg_1", text("plan"), use("toolu_1"))
    script.result("toolu_1", "x", said[1])
    script.says("msg_2", text("done"))
    script.user("second")
    script.says("msg_3", text("done again"))
    return script


def started(raw: Sequence[bytes], same: Case) -> Rebuilt:
    """As a life is started from these lines."""
    lines, findings = parse(raw)
    return rebuild(lines, msgspec.structs.replace(same, lost=lost(findings)))


def notes(lines: Sequence[Line]) -> list[str]:
    """What the model reads of us, in order."""
    said = [text_of(line.message.get("content")) for line in lines if is_conversation(line)]
    return [one for one in said if "Note by harness-durable" in one]


def torn(raw: list[bytes], place: int) -> tuple[list[bytes], str]:
    """The lines with one cut short, and where that is."""
    damaged = [line[:-20] if number == place else line for number, line in enumerate(raw)]
    before = sum(len(line) + 1 for line in damaged[:place])
    return damaged, f"{len(damaged[place])} bytes at byte {before}"


def test_c001_the_model_is_told_of_a_torn_tail_by_bytes_and_place() -> None:
    raw, where = torn([*conversation().raw, conversation().raw[0]], 7)
    rebuilt = started(raw, case(prompt=NEW))
    assert rebuilt.mode == "resume"
    assert [line.raw for line in rebuilt.lines[:-1]] == raw[:-1], "all that can be read stays as it was"
    assert notes(rebuilt.lines) == [
        "[Note by harness-durable, not by the model: "
        f"1 line of this conversation's record could not be read and is left out ({where}).]"
    ]
    last = rebuilt.lines[-1]
    assert (last.kind, last.parent) == ("assistant", rebuilt.lines[-2].uuid)
    check_stable(rebuilt, case(prompt=NEW))


@pytest.mark.parametrize("place", range(7))
def test_c001_whichever_line_is_damaged_the_model_is_told_once(place: int) -> None:
    raw, where = torn(conversation().raw, place)
    rebuilt = started(raw, case(prompt=NEW))
    assert sum(where in note for note in notes(rebuilt.lines)) == 1
    spoken = [line.kind for line in rebuilt.lines if is_conversation(line)]
    assert spoken[0] == "user", "a conversation begins on the user's side"
    assert spoken[-1] == "assistant", "the next message follows"
    assert (notes(rebuilt.lines)[0] == OPENING) == (place == 0)
    check_stable(rebuilt, case(prompt=NEW))


def test_c001_a_reason_that_a_damaged_line_may_belie_is_not_given() -> None:
    """The model's last word is what was lost: the turn did not end before it."""
    raw, _ = torn(conversation().raw, 6)
    (note,) = notes(started(raw, case(prompt=NEW)).lines)
    assert "ended before" not in note
    known = msgspec.structs.replace(case(prompt=NEW), ending="Ann wanted it")
    (note,) = notes(started(raw, known).lines)
    assert "Ann wanted it" in note
    assert "could not be read" in note


def test_c001_a_conversation_that_is_lost_whole_does_not_look_like_a_new_one() -> None:
    rebuilt = started([b'{"torn', b"\0" * 9], case(prompt=NEW))
    assert [line.kind for line in rebuilt.lines] == ["user", "assistant"]
    assert rebuilt.mode == "resume"
    assert notes(rebuilt.lines) == [
        OPENING,
        "[Note by harness-durable, not by the model: 2 lines of this conversation's record could not be read "
        "and are left out (6 bytes at byte 0, 9 zero bytes at byte 7).]",
    ]
    check_stable(rebuilt, case(prompt=NEW))


def test_c001_many_damaged_lines_make_a_short_note() -> None:
    raw = [line for good in conversation().raw for line in (b"{torn", good)] * 20
    (note,) = notes(started(raw, case(prompt=NEW)).lines)
    assert "140 lines" in note
    assert "and 135 more" in note
    assert len(note) < 400


@pytest.mark.parametrize("answered", [True, False])
def test_c001_a_turn_that_goes_on_is_asked_what_it_was_asked_and_told_with_the_next_message(
    answered: bool,
) -> None:
    """What it was asked may have a recorded answer, which must still fit."""
    script = conversation()
    prompt = script.user("third")
    said = script.says("msg_4", use("toolu_2"))
    script.result("toolu_2", "y", said[0])
    damaged = script.raw
    damaged.insert(3, b'{"type":"file-history-snapshot","mess')
    same = msgspec.structs.replace(case(prompt=prompt), answered=answered)
    rebuilt = started(damaged, same)
    assert rebuilt.mode == "continue"
    assert file_of(rebuilt.lines) == file_of(script.lines)
    check_stable(rebuilt, same)
    again = started([line.raw for line in rebuilt.lines], same)
    assert [line.raw for line in again.lines] == [line.raw for line in rebuilt.lines], (
        "the life died: it is not forgotten, and not there twice"
    )
    script.says("msg_5", text("the end"))
    mirrored = [*(line.raw for line in again.lines), script.raw[-1]]
    later = started(mirrored, case(prompt=NEW))
    assert later.mode == "resume"
    assert [line.raw for line in later.lines[:-1]] == script.raw
    (note,) = notes(later.lines)
    assert "1 line of this conversation's record" in note
    assert not any(is_pending(line) for line in later.lines)
    check_stable(later, case(prompt=NEW))


def test_c001_a_message_that_was_answered_already_is_sent_into_the_same_conversation() -> None:
    """The harness was lost before it wrote the message down; the answer is in the log."""
    script = conversation()
    same = msgspec.structs.replace(case(prompt=NEW), answered=True)
    rebuilt = started([*script.raw, b"{torn"], same)
    assert rebuilt.mode == "resume"
    assert file_of(rebuilt.lines) == file_of(script.lines)
    assert [is_pending(line) for line in rebuilt.lines] == [False] * 7 + [True]
    (note,) = notes(started([line.raw for line in rebuilt.lines], case(prompt=NEW)).lines)
    assert "could not be read" in note
    assert started([b"{torn"], same).mode == "fresh", "it was asked without any history"


def test_c001_two_losses_are_told_in_one_note() -> None:
    script = conversation()
    same = msgspec.structs.replace(case(prompt=NEW), answered=True)
    waiting = [line.raw for line in started([*script.raw, b"{torn"], same).lines]
    (note,) = notes(started([*waiting, b"{more", b"{}"], case(prompt=NEW)).lines)
    assert note.count("1 line of") == 2


@pytest.mark.parametrize("harmless", ["duplicate", "zeros behind", "empty"])
def test_c001_where_nothing_is_dropped_nothing_is_said(harmless: str) -> None:
    raw = conversation().raw
    damaged = {
        "duplicate": [*raw, raw[-1]],
        "zeros behind": [*raw[:-1], raw[-1] + b"\0\0"],
        "empty": [raw[0], b"", *raw[1:], b""],
    }[harmless]
    assert [line.raw for line in started(damaged, case(prompt=NEW)).lines] == raw
