"""Export and import as a file. That a session moves whole between Worlds is W14 of the conformance suite."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from harness_durable.errors import BadInput, LogTooNew, NotFound
from harness_durable.transfer import export_session, import_session
from harness_durable.world import Record, RowUpdate
from tests.worlds.reference import PlainWorld, open_world

BODIES = [b"", b"text", b"\0\r\n\xff", "é\u2028".encode(), b'{"n":9007199254740993}']


@pytest.fixture
async def source(tmp_path: Path) -> AsyncIterator[PlainWorld]:
    world = await open_world(f"plain:{tmp_path}/source", "app")
    records = [Record(f"r{n}", "check.note", n, body) for n, body in enumerate(BODIES)]
    await world.create("s", records, RowUpdate("needs_input", None))
    large = b"\xfe" * (2_500_000)
    blobs = {"aa" * 32: b"", "bb" * 32: large}
    last = [Record("last", "check.note", 9, b"with blobs")]
    await world.append("s", expected_head=len(BODIES), epoch=0, records=last, blobs=blobs)
    yield world
    await world.aclose()


@pytest.fixture
async def target(tmp_path: Path) -> AsyncIterator[PlainWorld]:
    world = await open_world(f"plain:{tmp_path}/target", "other-app")
    yield world
    await world.aclose()


async def exported(world: PlainWorld) -> bytes:
    return b"".join([line async for line in export_session(world, "s")])


async def stream(data: bytes, size: int = 1 << 16) -> AsyncIterator[bytes]:
    for start in range(0, len(data), size):
        yield data[start : start + size]


async def contents(world: PlainWorld, session: str) -> tuple[object, ...]:
    blobs = {name: body async for name, body in world.blobs(session)}
    row = await world.session(session)
    return await world.read(session), blobs, row.status, row.due


async def nothing_is_stored(world: PlainWorld) -> bool:
    return await world.sessions() == []


@pytest.mark.parametrize("size", [7, 1000, 1 << 22])
async def test_a_session_comes_back_whole_however_the_stream_is_cut(
    source: PlainWorld, target: PlainWorld, size: int
) -> None:
    data = await exported(source)
    assert await import_session(target, stream(data, size)) == "s"
    assert await contents(target, "s") == await contents(source, "s")
    assert await exported(target) == data


async def test_the_file_is_lines_of_json_that_people_can_read(source: PlainWorld) -> None:
    lines = [json.loads(line) for line in (await exported(source)).splitlines()]
    assert lines[0] == {"line": "session", "version": 1, "session": "s", "status": "needs_input"}
    assert lines[2]["text"] == "text"
    assert lines[-1]["line"] == "end"
    assert all(len(line) < 3 << 20 for line in (await exported(source)).splitlines())


async def test_a_session_can_be_imported_under_another_name(source: PlainWorld, target: PlainWorld) -> None:
    data = await exported(source)
    assert await import_session(target, stream(data), name="copy") == "copy"
    assert await target.read("copy") == await source.read("s")
    with pytest.raises(BadInput, match="cannot name a session"):
        await import_session(target, stream(data), name="../copy")


async def test_a_file_cut_anywhere_imports_nothing(source: PlainWorld, target: PlainWorld) -> None:
    data = await exported(source)
    starts = [0, 1, 50, len(data) // 2, len(data) - 100, len(data) - 2]
    line_ends = [place for place in range(2000) if data[place : place + 1] == b"\n"]
    for end in [*starts, *(place + 1 for place in line_ends)]:
        with pytest.raises(BadInput, match=r"cut short|empty|not a session export"):
            await import_session(target, stream(data[:end]))
    assert await nothing_is_stored(target)


async def test_a_changed_byte_is_noticed(source: PlainWorld, target: PlainWorld) -> None:
    data = await exported(source)
    for word, other in ((b'"text":"text"', b'"text":"tezt"'), (b'"time":1', b'"time":2')):
        with pytest.raises(BadInput, match="altered"):
            await import_session(target, stream(data.replace(word, other, 1)))
    lines = data.splitlines(keepends=True)
    for changed in ([*lines[:2], *lines[3:]], [*lines, lines[1]], [lines[0], *lines]):
        with pytest.raises(BadInput, match="altered"):
            await import_session(target, stream(b"".join(changed)))
    assert await nothing_is_stored(target)


OTHERS = {
    "text": b"hello\n",
    "json": b'{"a": 1}\n',
    "bytes": b"\xff\xfe\n",
    "list": b"[]\n",
    "endless": b"x" * (17 << 20),
}


@pytest.mark.parametrize("data", OTHERS.values(), ids=OTHERS.keys())
async def test_a_file_of_something_else_is_refused(target: PlainWorld, data: bytes) -> None:
    with pytest.raises(BadInput, match="not a session export"):
        await import_session(target, stream(data))


async def test_an_empty_file_is_refused(target: PlainWorld) -> None:
    with pytest.raises(BadInput, match="empty"):
        await import_session(target, stream(b""))


async def test_a_newer_file_is_refused_as_newer(source: PlainWorld, target: PlainWorld) -> None:
    data = (await exported(source)).replace(b'"version":1', b'"version":2,"what":"is this"', 1)
    with pytest.raises(LogTooNew, match="upgrade"):
        await import_session(target, stream(data))


async def test_exporting_no_session_says_so(source: PlainWorld) -> None:
    with pytest.raises(NotFound):
        await anext(export_session(source, "none"))
