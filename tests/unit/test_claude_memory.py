"""C113: transcripts that are larger than the memory. What is held does not grow with them.

The bounds are of Python's own allocations, and far below what the transcripts hold."""

from __future__ import annotations

import itertools
import random
import tracemalloc
from collections.abc import AsyncGenerator, Generator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path

from harness_durable import fold
from harness_durable.adapter import LifeContext
from harness_durable.journal import Journal
from harness_durable.worlds import open_world
from harness_durable_adapters.claude_code import frames
from harness_durable_adapters.claude_code.drive import drive
from harness_durable_adapters.claude_code.mirror import lines_of, mirror
from harness_durable_adapters.claude_code.naming import main_file, message_uuid
from harness_durable_adapters.claude_code.prepare import prepare
from harness_durable_adapters.common.shapes import Json, decode, encode
from tests.unit.session_kit import begun
from tests.unit.test_claude_drive import INITIALIZED, RESULT, Double, echo
from tests.unit.test_claude_drive import context as driving
from tests.unit.test_claude_lines import context

MB = 1 << 20
LINES, LINE = 4096, 16 << 10
LONGEST = 4 * MB
BOUND = 32 * MB
"""A page of the log, a few copies of the longest line, and some hundred bytes for each other line."""


@contextmanager
def at_most(size: int) -> Generator[None]:
    tracemalloc.start()
    try:
        yield
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < size, f"{peak / MB:.1f} MB at the most"


@asynccontextmanager
async def session(folder: Path) -> AsyncGenerator[Journal]:
    world = await open_world(f"sqlite:{folder / 'world.db'}")
    try:
        yield await begun(world)
    finally:
        await world.aclose()


def long(size: int) -> str:
    """Text that no compression makes small."""
    return random.Random(size).randbytes(size // 2).hex()


def conversation(native: str, count: int, size: int) -> Iterator[bytes]:
    """Prompts and answers, and a call in each answer that has its result."""
    said, before = long(size), None
    for number in range(count):
        uuid = f"00000000-0000-4000-8000-{number:012d}"
        kind = ("user", "assistant")[number % 2]
        block: Json = {"type": "text", "text": f"{number} {said}"}
        message: Json = {"role": kind, "content": [block]}
        if kind == "assistant":
            message["id"] = f"msg_{number}"
        line: Json = {
            "parentUuid": before,
            "type": kind,
            "message": message,
            "uuid": uuid,
            "timestamp": "2026-01-01T00:00:00.000Z",
            "cwd": "/workspace",
            "sessionId": native,
        }
        yield encode(line)
        before = uuid


async def written(ctx: LifeContext, file: Path) -> int:
    """Prepare a life, and write its transcript as a sandbox does; how many bytes it has."""
    launch = await prepare(ctx)
    (content,) = [one for name, one in launch.files.items() if name.endswith(".jsonl")]
    assert not isinstance(content, bytes)
    size = 0
    with file.open("wb") as target:
        async for piece in content():
            size += target.write(piece)
    return size


async def fill(journal: Journal, lines: Iterator[bytes]) -> None:
    """Into the log, as the mirror does it, some lines at a time."""
    file = main_file(journal.state.native_id)
    for offset in itertools.count(2):
        part = list(itertools.islice(lines, 16))
        if not part:
            return
        await journal.transcript_appended("L1", {file: part}, offset=offset)


async def test_c113_a_home_is_built_without_holding_the_transcript(tmp_path: Path) -> None:
    async with session(tmp_path) as journal:
        native = journal.state.native_id
        await fill(journal, conversation(native, LINES, LINE))
        longest = encode({"type": "progress", "data": long(LONGEST)})
        await journal.transcript_appended("L1", {main_file(native): [longest]}, offset=LINES + 1)
        with at_most(BOUND):
            assert await written(context(journal, "/home/a"), tmp_path / "file") > 2 * BOUND
        lines = (tmp_path / "file").read_bytes().splitlines()
        assert lines == [*conversation(native, LINES, LINE), longest]


async def test_c113_a_change_at_the_start_writes_no_more_than_the_change(tmp_path: Path) -> None:
    """A line there twice, a parent that is nowhere, and a line that cannot be read."""
    async with session(tmp_path) as journal:
        lines = conversation(journal.state.native_id, LINES, LINE)
        first, second, third = next(lines), next(lines), next(lines)
        lost = second.replace(b'"parentUuid":"00000000-', b'"parentUuid":"99999999-')
        assert lost != second
        file = main_file(journal.state.native_id)
        await journal.transcript_appended("L1", {file: [first, first, b"{torn", lost, third]}, offset=1)
        await fill(journal, lines)
        before = journal.state.seq
        with at_most(BOUND):
            await written(context(journal, "/home/a"), tmp_path / "file")
        records = await journal.reader.world.read(journal.reader.session, before)
        assert sum(len(record.body) for record in records) < 2 * (len(second) + 1000)
        found = (tmp_path / "file").read_bytes().splitlines()
        assert found[:LINES] == list(conversation(journal.state.native_id, LINES, LINE))


async def test_c113_the_mirror_holds_one_frame_and_the_state_no_line(tmp_path: Path) -> None:
    async with session(tmp_path) as journal:
        ctx = context(journal, "/home/a")
        size = 0
        with at_most(BOUND):
            for offset, raw in enumerate(conversation(journal.state.native_id, 64, MB), 1):
                for _ in range(2):  # what the log has already is not written again
                    frame = mirrored(journal, raw)
                    await mirror(ctx, frame, lines_of(frame), offset)
                size += len(raw)
        assert size > 2 * BOUND
        (transcript,) = journal.state.transcripts.values()
        assert transcript.lines == 64
        assert len(fold.dump(journal.state)) < 16 << 10


async def test_c113_a_takeover_reads_a_long_output_in_parts(tmp_path: Path) -> None:
    async with session(tmp_path) as journal:
        prompt = message_uuid(journal.state.native_id, "m-1")
        double = Double(frames.request("durable-init", {}) + frames.message("do it", prompt, "s"))
        said = [mirrored(journal, raw) for raw in conversation(journal.state.native_id, 64, MB)]
        output = [INITIALIZED, echo(journal), *said, RESULT]
        double.output_bytes = b"".join(encode(frame) + b"\n" for frame in output)
        del said, output
        with at_most(BOUND):
            end = await drive(driving(journal, "attach"), double)
        assert end.kind == "completed"
        (transcript,) = journal.state.transcripts.values()
        assert transcript.lines == 64


def mirrored(journal: Journal, raw: bytes) -> Json:
    path = f"/home/a/projects/x/{main_file(journal.state.native_id)}"
    return {"type": "transcript_mirror", "filePath": path, "entries": [decode(raw)]}
