"""Session files of Pi are read whatever they hold, and repaired without losing an entry."""

from __future__ import annotations

import json

import pytest

from harness_durable_adapters.pi.entries import parse, path, read
from harness_durable_adapters.pi.repair import repaired
from tests.unit.pi_samples import DEEP, HEADER, assistant, invented, line, real, user

EVERY = [*real().items(), *invented().items()]


@pytest.mark.parametrize(("name", "lines"), EVERY, ids=[name for name, _ in EVERY])
def test_a_repaired_file_is_sound_and_has_every_entry(name: str, lines: list[bytes]) -> None:
    before = parse(lines)
    fixed = [HEADER, *repaired(lines, "native")]
    after = parse(fixed)
    assert after.sound, (name, after.findings)
    kept = [entry for entry in before.entries if not entry.is_header]
    assert len(after.entries) - 1 == len(kept)
    assert [(one.kind, one.role) for one in after.entries[1:]] == [
        (one.kind, "custom" if one.role == "hookMessage" else one.role) for one in kept
    ]
    assert repaired(fixed, "native") == fixed[1:], "repairing again changes nothing"


@pytest.mark.parametrize(("name", "lines"), EVERY, ids=[name for name, _ in EVERY])
def test_no_line_is_passed_over_without_a_word(name: str, lines: list[bytes]) -> None:
    parser = parse(lines)
    assert parser.count == len(lines)
    missing = set(range(len(lines))) - {entry.line for entry in parser.entries}
    assert missing <= {finding.line for finding in parser.findings}, name


def test_a_sound_file_stays_byte_for_byte() -> None:
    lines = invented()["a sound one"]
    assert parse(lines).sound
    assert repaired(lines, "native") == lines[1:]


def test_what_stands_above_a_lost_line_is_not_lost() -> None:
    lines = [
        HEADER,
        user("a", None, "first"),
        b'{"torn',
        user("c", "b", "x"),
        assistant("d", "c", text="y"),
    ]
    entries = parse([HEADER, *repaired(lines, "native")]).entries
    assert [entry.id for entry in path(entries)] == ["a", "c", "d"]


def test_the_path_leads_to_the_last_line() -> None:
    lines = [
        HEADER,
        user("a", None, "go"),
        assistant("b", "a", "t1"),
        line({"type": "custom", "customType": "durable-rewind", "id": "r", "parentId": "a"}),
        assistant("c", "r", text="again"),
    ]
    assert [entry.id for entry in path(parse(lines).entries)] == ["a", "r", "c"]


def test_a_compaction_of_the_first_version_still_names_what_it_kept() -> None:
    lines = [
        line({"type": "session", "id": "s"}),
        line({"type": "message", "message": {"role": "user", "content": "one"}}),
        line({"type": "message", "message": {"role": "user", "content": "two"}}),
        line({"type": "compaction", "summary": "S", "firstKeptEntryIndex": 2}),
    ]
    fixed = [json.loads(one) for one in repaired(lines, "native")]
    assert fixed[2]["firstKeptEntryId"] == fixed[1]["id"]
    assert "firstKeptEntryIndex" not in fixed[2]


def test_an_entry_tells_what_a_rebuild_must_know() -> None:
    entry = read(assistant("b", "a", "t1", "t2", text="hello"))
    assert entry is not None
    assert (entry.calls, entry.stop, entry.text, entry.is_dropped) == (
        ("t1", "t2"),
        "toolUse",
        "hello",
        False,
    )
    said = read(user("a", None, "hi", "n-1"))
    assert said is not None
    assert (said.number, said.is_talk) == ("n-1", True)


def test_a_line_that_is_hung_anew_keeps_all_else_as_it_was_spelled() -> None:
    odd = b'{"type":"message","id":"b","parentId":"gone","big":12345678901234567890,"message":{"role":"user",'
    whole = odd + b'"content":"\\ud800 x"}}'
    fixed = repaired([HEADER, user("a", None, "hi"), whole], "native")
    assert fixed[1] == whole.replace(b'"gone"', b'"a"')
    assert DEEP in b"".join(repaired(invented()["deep, and hung anew"], "native"))


def test_results_without_a_call_are_left_out_and_named() -> None:
    parser = parse(invented()["a result without its call"])
    assert [finding.trouble for finding in parser.findings] == ["orphan"]
    assert [entry.id for entry in parser.entries[1:]] == ["a"]
