"""C113: what stands before a compaction is given to the harness no more, and not read any more either; and a
rebuild that holds only what it must know of each line gives the same as one that holds them all."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import anyio
import pytest

from harness_durable.adapter import Launch
from harness_durable.journal import Journal
from harness_durable.journal.calls import Asked, Response
from harness_durable.policy import UNKNOWN
from harness_durable.world import StoredRecord
from harness_durable_adapters.claude_code import case as cases
from harness_durable_adapters.claude_code.case import Case
from harness_durable_adapters.claude_code.compaction import without_summed
from harness_durable_adapters.claude_code.delivery import Delivery
from harness_durable_adapters.claude_code.frames import read_said
from harness_durable_adapters.claude_code.naming import main_file, message_uuid
from harness_durable_adapters.claude_code.prepare import prepare
from harness_durable_adapters.claude_code.rebuild import rebuild
from harness_durable_adapters.claude_code.response import Recorded
from harness_durable_adapters.claude_code.slim import slim
from harness_durable_adapters.claude_code.stored import splices
from harness_durable_adapters.claude_code.transcript import Line, Parser, made, parse
from harness_durable_adapters.common.shapes import Json, encode
from tests.unit.claude_samples import EVERY
from tests.unit.memory_world import MemoryWorld
from tests.unit.session_kit import begun
from tests.unit.test_claude_lines import context
from tests.unit.test_claude_transcript import Script, case, done, text, use

LONG = "x" * 40_000
"""Each line with it is a blob of its own."""


class Compacted(Script):
    """A prompt, calls with long results, and a compaction that preserves the last one, from ``first`` on."""

    def __init__(self, prompt: str, calls: int = 5) -> None:
        super().__init__()
        self.about({"type": "mode", "mode": "old"})
        self.about({"type": "queue-operation", "operation": "enqueue"})
        self.about({"type": "custom-title", "customTitle": "kept"})
        self.about({"type": "mode", "mode": "new"})
        self.user("go", uuid=prompt)
        for number in range(calls):
            self.call(f"toolu_{number}")
        self.first = len(self.lines) - 2
        kept = [line.uuid for line in self.lines[-2:]]
        named = {"uuids": kept, "anchorUuid": "summary"}
        self.boundary(preservedMessages=named, preservedSegment={"headUuid": kept[0], "tailUuid": kept[1]})
        self.user("summary", uuid="summary", isCompactSummary=True)

    def about(self, value: Json) -> None:
        self.lines.append(made(value))

    def call(self, call: str, result: str = LONG) -> None:
        (asking,) = self.says(f"msg_{call}", use(call))
        self.result(call, result, asking)

    def boundary(self, **about: object) -> None:
        self._add("system", {}, "", subtype="compact_boundary", compactMetadata=about)

    @property
    def counts(self) -> list[bytes]:
        """What the harness is to get."""
        head, *suffix = self.lines[self.first :]
        about = [line for line in self.lines[:4] if b"kept" in line.raw or b"new" in line.raw]
        return [line.raw for line in (*about, head.changed(parentUuid=None), *suffix)]


async def session(world: MemoryWorld) -> tuple[Journal, Compacted]:
    """A turn in which a compaction was mirrored, one line at a time."""
    journal = await begun(world)
    script = Compacted(message_uuid(journal.state.native_id, "m-1"))
    for number in range(5):
        await answered(journal, f"toolu_{number}")
    await mirrored(journal, script.raw)
    return journal, script


async def answered(journal: Journal, call: str) -> None:
    """A response that asked for a call, and the call's outcome."""
    asked = Asked(call, "Bash", b"{}", "never", "builtin")
    model = await journal.model_requested(
        key=call, life="L1", wire="anthropic", model="x", path="/", body=b"{}", field="messages", agent=None
    )
    body = encode({"type": "message", "id": f"msg_{call}", "content": [use(call)]})
    response = Response(200, "application/json", body, f"msg_{call}", "tool_use", tools=(asked,))
    await journal.model_completed(model, response)
    await journal.tool_gate(call, "L1")
    await journal.tool_finished(call, ok=True, result=LONG.encode(), source="hook")


async def mirrored(journal: Journal, lines: Sequence[bytes]) -> None:
    file = main_file(journal.state.native_id)
    for raw in lines:
        await journal.transcript_appended("L1", {file: [raw]}, offset=journal.state.seq)


async def given(launch: Launch) -> list[bytes]:
    """The lines of the harness's file."""
    (content,) = [one for name, one in launch.files.items() if name.endswith(".jsonl")]
    assert not isinstance(content, bytes)
    return b"".join([piece async for piece in content()]).splitlines()


async def test_c113_what_a_compaction_sums_up_is_neither_given_nor_read_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world = MemoryWorld()
    journal, script = await session(world)
    first = await prepare(context(journal, "/home/a"))
    assert await given(first) == script.counts
    old = {segment.seq for segment in journal.state.transcripts[main_file(journal.state.native_id)].segments}
    read, blobs = list[int](), list[str]()
    whole_read, whole_blob = world.read, world.blob

    async def watched(session: str, after: int = 0, limit: int | None = None) -> list[StoredRecord]:
        read.append(after)
        return await whole_read(session, after, limit)

    async def counted(session: str, sha: str) -> bytes:
        blobs.append(sha)
        return await whole_blob(session, sha)

    monkeypatch.setattr(world, "read", watched)
    monkeypatch.setattr(world, "blob", counted)
    before = journal.state.seq
    second = await prepare(context(journal, "/home/a"))
    assert await given(second) == script.counts
    assert journal.state.seq == before, "a second rebuild changes nothing"
    assert min(read) >= min(old) - 1
    assert len(set(blobs)) == 1, "only the result that the compaction preserves"


async def test_c113_a_turn_goes_on_although_its_message_is_summed_up() -> None:
    """Neither is it sent again, nor are calls written that were over before."""
    journal, script = await session(MemoryWorld())
    for _ in range(2):
        ctx = context(journal, "/home/a")
        launch = await prepare(ctx)
        assert "CLAUDE_CODE_RESUME_INTERRUPTED_TURN" in launch.env
        assert await given(launch) == script.counts
        heard: list[bytes] = []

        async def write(frame: bytes, heard: list[bytes] = heard) -> None:
            heard.append(frame)

        delivery = await Delivery.begin(ctx, write, read_said(b""))
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(delivery.run)
            await delivery.begun()
            tasks.cancel_scope.cancel()
        assert heard == []


@pytest.mark.parametrize("seen", [True, False])
async def test_c113_what_comes_after_a_compaction_is_rebuilt_as_ever(seen: bool) -> None:
    """Whether the harness got to write its response or not."""
    journal, script = await session(MemoryWorld())
    await prepare(context(journal, "/home/a"))
    counts = script.counts
    await answered(journal, "toolu_new")
    script.says("msg_toolu_new", use("toolu_new"))
    await mirrored(journal, script.raw[-1:] if seen else [])
    lines, _ = parse(await given(await prepare(context(journal, "/home/a"))))
    assert [line.raw for line in lines[:-2]] == counts
    assert lines[-2].asks == ["toolu_new"]
    (result,) = lines[-1].results
    assert (result["tool_use_id"], result["content"]) == ("toolu_new", LONG)


async def test_c113_a_second_compaction_takes_the_place_of_the_first() -> None:
    journal, script = await session(MemoryWorld())
    await prepare(context(journal, "/home/a"))
    before = len(script.lines)
    script.user("more")
    script.boundary()
    script.user("all of it", isCompactSummary=True)
    await mirrored(journal, script.raw[before:])
    launch = await prepare(context(journal, "/home/a"))
    about = [raw for raw in script.raw[:4] if b"kept" in raw or b"new" in raw]
    assert await given(launch) == [*about, *script.raw[before + 1 :]]
    assert "CLAUDE_CODE_RESUME_INTERRUPTED_TURN" in launch.env, "the first one's messages are still known"


def _unnamed(script: Compacted) -> None:
    place = script.first + 2
    script.lines[place] = script.lines[place].changed(compactMetadata={"preservedSegment": {"headUuid": "a"}})


def _gone(script: Compacted) -> None:
    del script.lines[script.first]


def _unsummed(script: Compacted) -> None:
    script.lines[-1] = script.lines[-1].changed(isCompactSummary=False)


def _older(script: Compacted) -> None:
    script.user("an answer to what is gone", parent=script.lines[5].uuid)


def _hung(script: Compacted) -> None:
    place = script.first + 2
    script.lines[place] = script.lines[place].changed(parentUuid=script.lines[place - 1].uuid)


@pytest.mark.parametrize("spoil", [_unnamed, _gone, _unsummed, _older, _hung])
def test_c113_in_doubt_nothing_is_left_out(spoil: Callable[[Compacted], None]) -> None:
    script = Compacted("prompt")
    assert [line.raw for line in without_summed(script.lines)[0]] == script.counts
    spoil(script)
    assert without_summed(script.lines) == (script.lines, [])


# ------------------------------------------------------------------------------------- slim lines


def rebuilt_slim(raw: Sequence[bytes], same: Case) -> list[bytes]:
    """The transcript, changed where a rebuild of slim lines says so."""
    parser = Parser(keep=slim)
    for line in raw:
        parser.take(line)
    found, _ = parser.end()
    new = rebuild(found, same).lines
    whole = {line.number: line for line in parse(raw)[0]}
    written = {
        line.number: whole[line.number].changed(parentUuid=line.value["parentUuid"]).raw
        for line in new
        if line.hung
    }
    lines = list(raw)
    for splice in reversed(
        splices({one.number: one.raw for one in found if one.raw}, len(raw), new, written)
    ):
        assert splice.drop is not None
        lines[splice.at : splice.at + splice.drop] = splice.lines
    return lines


def rebuilt_whole(raw: Sequence[bytes], same: Case) -> list[bytes]:
    return [line.raw for line in rebuild(parse(raw)[0], same).lines]


@pytest.mark.parametrize("sample", EVERY)
def test_c113_slim_lines_of_any_transcript_are_rebuilt_as_whole_ones(sample: str) -> None:
    raw = EVERY[sample]
    for lines in (raw, [*raw, raw[0]], [b"{torn", *raw[1:]], raw[: len(raw) // 2]):
        for running in (False, True):
            same = case(running=running)
            assert rebuilt_slim(lines, same) == rebuilt_whole(lines, same)


def test_c113_slim_lines_of_a_cut_turn_are_rebuilt_as_whole_ones() -> None:
    """Cut at every place; with long texts, a lie about a stopped call, and a note of an interruption."""
    thought: Json = {"type": "thinking", "thinking": LONG}
    blocks = (text("plan " + LONG), thought, use("toolu_1"), use("toolu_2"))
    recorded = Recorded("msg_1", "claude", blocks, "tool_use", {"input_tokens": 1})
    lie = "The user doesn't want to proceed with this tool use. " + LONG
    script = Script()
    script.user("go " + LONG)
    said = script.says("msg_1", *blocks)
    script.result("toolu_1", lie, said[2], is_error=True)
    script.result("toolu_2", LONG, said[3])
    script.interrupted("[Request interrupted by user for tool use]")
    answers = {"toolu_1": done("truly"), "toolu_2": cases.Answer(UNKNOWN, True, UNKNOWN)}
    for opened in (False, True):
        response = cases.Response("msg_1", ("toolu_1", "toolu_2"), opened, not opened, recorded)
        same = case(response, answers=answers)
        for end in range(len(script.raw) + 1):
            lines = script.raw[:end]
            assert rebuilt_slim(lines, same) == rebuilt_whole(lines, same)


def test_c113_a_slim_line_holds_nothing_of_what_is_said() -> None:
    script = Script()
    script.user(LONG)
    script.says("msg_1", text(LONG), {**use("toolu_1", LONG), "caller": LONG})
    for place, line in enumerate(script.lines):
        short = slim(Line(line.raw, line.value, number=place))
        assert (short.raw, short.uuid, short.parent) == (b"", line.uuid, line.parent)
        assert (short.response, short.asks, short.delivered) == (line.response, line.asks, line.delivered)
        assert len(str(short.value)) < 500
