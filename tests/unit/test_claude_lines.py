"""Transcript lines that a power cut, another program or a model left odd: read, reported, and kept.

The docstrings name the cases of which a test is the check."""

from __future__ import annotations

import itertools
import json
import random
from pathlib import Path

import anyio
import pytest
from msgspec import structs

from harness_durable.adapter import Harness, LifeContext
from harness_durable.journal import Inbox, Journal, Reader
from harness_durable.policy import UNKNOWN
from harness_durable.tools.host import ToolHost
from harness_durable_adapters.claude_code.naming import file_name
from harness_durable_adapters.claude_code.prepare import prepare
from harness_durable_adapters.claude_code.rebuild import rebuild
from harness_durable_adapters.claude_code.transcript import parse, repair
from harness_durable_adapters.common.shapes import Json
from tests.unit.memory_world import OWNER, MemoryWorld
from tests.unit.session_kit import AGENT, SESSION, taken
from tests.unit.test_claude_transcript import Script, case, check_stable, told

DEPTH = 10_000


def deep(opening: bytes, closing: bytes, template: Json) -> bytes:
    """The object with a value in place of ``"DEEP"`` that is nested 10,000 levels deep."""
    return json.dumps(template).encode().replace(b'"DEEP"', opening * DEPTH + b"1" + closing * DEPTH)


@pytest.mark.parametrize("count", [1, 7, 1728])
@pytest.mark.parametrize("behind", [True, False])
def test_zero_bytes_at_the_end_are_counted_and_cost_no_record(count: int, behind: bool) -> None:
    """C010: behind the last line's end, or in the place of it."""
    script = Script()
    for number in range(3):
        script.user(f"message {number}")
    raw, zeros = script.raw, b"\0" * count
    left = [*raw, zeros] if behind else [*raw[:-1], raw[-1] + zeros]
    lines, findings = parse(left)
    assert [line.raw for line in lines] == raw
    assert [(f.trouble, f.zeros, f.line) for f in findings] == [("torn", count, 3 if behind else 2)]
    assert findings[0].length == len(left[-1])


@pytest.mark.parametrize("number", ["NaN", "Infinity", "-Infinity"])
def test_what_is_no_number_is_reported_and_kept_as_it_was_written(number: str) -> None:
    """C109"""
    script = Script()
    script.user("hello")
    odd = script.raw[0].replace(b'"message"', b'"cost":' + number.encode() + b',"message"')
    lines, findings = parse([odd])
    assert [finding.trouble for finding in findings] == ["no_number"]
    assert [line.raw for line in repair(lines)] == [odd]


def test_a_text_about_nan_is_nothing_odd() -> None:
    script = Script()
    script.user("NaN is not a number, nor is Infinity")
    assert parse(script.raw)[1] == []


@pytest.mark.parametrize(("opening", "closing"), [(b"[", b"]"), (b'{"a":', b"}"), (b'[{"a":', b"}]")])
def test_a_deep_line_is_kept_and_its_call_gets_a_result(opening: bytes, closing: bytes) -> None:
    """C119: 10,000 levels, in a tool's input."""
    script = Script()
    script.user("go")
    block: Json = {"type": "tool_use", "id": "toolu_1", "name": "Bash", "input": {"command": "DEEP"}}
    (asking,) = script.says("msg_1", block)
    raw = [script.raw[0], deep(opening, closing, script.lines[-1].value)]
    lines, findings = parse(raw)
    assert [(finding.trouble, finding.line) for finding in findings] == [("deep", 1)]
    assert [line.raw for line in lines] == raw
    assert (lines[1].uuid, lines[1].response, lines[1].asks) == (asking, "msg_1", ["toolu_1"])
    rebuilt = rebuild(lines, case())
    assert [line.raw for line in rebuilt.lines[:2]] == raw
    assert told(rebuilt) == [("toolu_1", UNKNOWN)]
    check_stable(rebuilt, case())


def test_a_deep_line_can_get_another_parent() -> None:
    """C119: nothing of it but that changes."""
    script = Script()
    first = script.user("one")
    script.user("two", parent="99999999-0000-4000-8000-000000000000", toolUseResult="DEEP")
    (raw,) = [deep(b"[", b"]", line.value) for line in script.lines[1:]]
    lines = repair(parse([script.raw[0], raw])[0])
    assert lines[1].parent == first
    again, findings = parse([lines[1].raw])
    assert again[0].raw == lines[1].raw
    assert b"[" * DEPTH in again[0].raw
    expected = {**script.lines[1].value, "parentUuid": first}
    assert {**again[0].value, "toolUseResult": "DEEP"} == expected
    assert "deep" in [finding.trouble for finding in findings]


@pytest.mark.parametrize(
    "rest", [b"", b"]" * (DEPTH - 1) + b"}", b"]" * DEPTH + b"}}", b"x" + b"]" * DEPTH + b"}"]
)
def test_a_deep_line_that_is_no_json_is_unreadable(rest: bytes) -> None:
    """C119: depth excuses nothing."""
    lines, findings = parse([b'{"a":' + b"[" * DEPTH + rest, b"{}"])
    assert len(lines) == 1
    assert [finding.trouble for finding in findings] == ["unreadable"]


@pytest.mark.parametrize("seed", range(20))
def test_every_readable_line_is_returned_whatever_is_wrong_with_the_chain(seed: int) -> None:
    """C004: duplicate ids and parents that were never written are findings; no line is lost, and only what
    is there twice is left out of what the harness gets."""
    choice = random.Random(seed)
    script = Script()
    dangling, duplicates = set[int](), set[int]()
    for number in range(30):
        what = choice.random()
        if number and what < 0.2:
            dangling.add(number)
            script.user(f"m {number}", parent=f"99999999-0000-4000-8000-{number:012d}")
        elif number and what < 0.4:
            duplicates.add(number)
            again = choice.randrange(number)
            script.user(f"m {number}", parent=script.lines[again].parent, uuid=script.lines[again].uuid)
        else:
            script.user(f"m {number}")
    raw = script.raw
    bad = sorted(choice.sample(range(30), 5))
    for place in reversed(bad):
        raw.insert(place, b'{"half')
    lines, findings = parse([*raw, b"{}"])
    assert [line.raw for line in lines[:-1]] == script.raw, "as many as can be read, in the file's order"
    found = {trouble: [f for f in findings if f.trouble == trouble] for trouble in ("unreadable", "dangling")}
    assert len(found["unreadable"]) == len(bad)
    assert len(found["dangling"]) == sum(line.parent.startswith("99999999") for line in script.lines), (
        "also of a line that repeats another's"
    )
    assert sum(finding.trouble == "duplicate" for finding in findings) == len(duplicates)
    kept = repair(lines)
    known = {line.uuid for line in kept}
    assert [line.uuid for line in kept[:-1]] == list(dict.fromkeys(line.uuid for line in script.lines))
    for before, line in itertools.pairwise(kept[:-1]):
        assert line.parent in known
        if line.parent != next(one for one in script.lines if one.uuid == line.uuid).parent:
            assert line.parent == before.uuid


# --------------------------------------------------------------------------------- another machine


@pytest.mark.parametrize("name", ["with a space", "with-a-dash", "a-link"])
async def test_a_session_is_found_wherever_it_is_restored(tmp_path: Path, name: str) -> None:
    """C029: another absolute path, the same session id. The harness is given the transcript's own path, and
    the log holds where the session began."""
    began = tmp_path / "private" / "begun here"
    began.mkdir(parents=True)
    place = tmp_path / name
    place.symlink_to(began) if name == "a-link" else place.mkdir()
    world, agent = MemoryWorld(), structs.replace(AGENT, workspace=str(began))
    await Inbox.create(world, SESSION, agent)
    journal = await taken(world, OWNER)
    native = journal.state.native_id
    script = Script()
    script.user("hello", cwd=str(began), sessionId=native)
    script.says("msg_1", {"type": "text", "text": "hi"})
    mirrored = f"/home/before/projects/{str(began).replace('/', '-')}/{native}.jsonl"
    await journal.transcript_appended("L1", {file_name(mirrored, native): script.raw}, offset=1)
    home = f"{place}/home"
    launch = await prepare(context(journal, home))
    path = launch.argv[launch.argv.index("--resume") + 1]
    assert path.startswith(f"{home}/")
    assert Path(path).name == f"{native}.jsonl"
    content = launch.files[path.removeprefix(f"{home}/")]
    assert not isinstance(content, bytes)
    assert b"".join([piece async for piece in content()]) == b"".join(raw + b"\n" for raw in script.raw)
    assert not any(str(began) in word for word in launch.argv)
    kept = await Reader(world, SESSION).load()
    assert kept.native_id == native
    assert kept.agent == agent


def context(journal: Journal, home: str) -> LifeContext:
    return LifeContext(
        session=SESSION,
        life="L2",
        turn="m-1",
        rung="continue",
        agent=AGENT,
        harness=Harness("/bin/claude", "2.1.332"),
        journal=journal,
        tools=ToolHost((), journal, SESSION, "L2", custom_name=str),
        token="token",
        home=home,
        cwd="/ws",
        ready=anyio.Event(),
    )
