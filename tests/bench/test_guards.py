"""What a tool call costs, counted: no machine is too slow or too busy for that.

Every count is of what more calls cost more, so that what opening and closing takes is not in it."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import subprocess
import sys
from importlib import import_module
from pathlib import Path
from typing import Any

import anyio
import pytest

from bench.commandline import fill
from bench.conversation import APPENDS, EVENTS, Conversation
from harness_durable.world import Record, RowUpdate
from harness_durable.worlds import open_world
from tests.bench.counted import turn
from tests.unit.memory_world import MemoryWorld
from tests.unit.session_kit import SESSION, begun
from tests.worlds.postgres_support import CURRENT, cluster, fresh_schema

asyncpg: Any = import_module("asyncpg")  # it has no types
FEW, MANY = 10, 30
SYNC = re.compile(r"\b(fsync|fdatasync|syncfs|sync_file_range)\(")
CLI = [sys.executable, "-X", "importtime", "-m", "harness_durable.cli.main"]
NOT_NEEDED = {
    *("asyncpg", "certifi", "docker", "email", "h11", "http", "httpcore", "httpx", "platformdirs"),
    *("playwright", "pydantic", "pydantic_core", "pygments", "starlette", "tomllib", "uvicorn"),
    *("harness_durable.exports", "harness_durable.gateway", "harness_durable.runtime"),
    *("harness_durable.sandbox", "harness_durable.settings", "importlib.metadata", "rich.console"),
}
"""Modules and packages that no command which only reads a local World may import."""


def syncs(url: str, calls: int, trace: Path, result: int = 1000) -> int:
    """Of the disk, by a turn of so many calls, each with a result of so many bytes."""
    if shutil.which("strace") is None:
        pytest.fail("these tests need strace: apt-get install strace")
    command = ["strace", "-f", "-qq", "-e", "trace=fsync,fdatasync,syncfs,sync_file_range", "-o", str(trace)]
    python = os.path.realpath(sys.executable)
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    command += [python, "-m", "tests.bench.counted", url, str(calls), str(result)]
    subprocess.run(command, check=True, env=environment, cwd=Path(__file__).parents[2])
    return len(SYNC.findall(trace.read_text()))


@pytest.mark.parametrize("world", ["file", "sqlite"])
def test_an_append_is_one_sync_of_the_disk(world: str, tmp_path: Path) -> None:
    few, many = (
        syncs(f"{world}:{tmp_path / f'{calls}'}", calls, tmp_path / f"{calls}.trace") for calls in (FEW, MANY)
    )
    assert many - few == (MANY - FEW) * APPENDS


BLOBS = 2
"""Of a tool call with a large result: the result, and what the next model request quotes of it."""


@pytest.mark.parametrize(("world", "most"), [("file", 3), ("sqlite", 0)])
def test_what_a_blob_adds_to_the_sync_of_its_append(world: str, most: int, tmp_path: Path) -> None:
    """In the file World its file and its folder, and the folder's folder if it is the first one there."""
    few, many = (
        syncs(f"{world}:{tmp_path / f'{calls}'}", calls, tmp_path / f"{calls}.trace", 40_000)
        for calls in (FEW, MANY)
    )
    calls = MANY - FEW
    assert calls * APPENDS <= many - few <= calls * (APPENDS + BLOBS * most)


@pytest.fixture
def connections(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Those that are made to PostgreSQL from now on."""
    made: list[Any] = []
    connect = asyncpg.connect

    async def kept(*args: Any, **options: Any) -> Any:
        made.append(await connect(*args, **options))
        return made[-1]

    monkeypatch.setattr(asyncpg, "connect", kept)
    return made


@pytest.fixture
def statements(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What is said to PostgreSQL from now on, but for notifications: those are at most so many a second."""
    said: list[str] = []
    connect = asyncpg.connect

    def note(query: Any) -> None:
        if "notify" not in query.query.lower():
            said.append(query.query)

    async def noted(*args: Any, **options: Any) -> Any:
        connection = await connect(*args, **options)
        connection.add_query_logger(note)
        return connection

    monkeypatch.setattr(asyncpg, "connect", noted)
    return said


async def test_an_append_is_one_statement_of_postgres(statements: list[str]) -> None:
    counts: list[int] = []
    for calls in (FEW, MANY):
        statements.clear()
        await turn(cluster(CURRENT).url(fresh_schema()), calls)
        counts.append(len(statements))
    assert counts[0] > FEW * APPENDS, "they were heard"
    assert counts[1] - counts[0] == (MANY - FEW) * APPENDS


async def test_a_step_is_written_and_read_back_in_a_statement_each(statements: list[str]) -> None:
    world = await open_world(cluster(CURRENT).url(fresh_schema()), "bench")
    await world.create("s", [Record("first", "bench.note", 1, b"{}")], RowUpdate("parked", None))
    try:
        for head in range(1, MANY + 2):
            note = Record(f"r{head}", "bench.note", 1, b"{}")
            await world.append("s", expected_head=head, epoch=0, records=[note])
            assert [each.id for each in await world.read("s", head)] == [note.id]
            if head == 1:
                statements.clear()  # the first of each connection learns the server's types
        assert len(statements) == 2 * MANY
    finally:
        await world.aclose()


async def test_progress_that_comes_at_once_is_written_at_once(statements: list[str]) -> None:
    """Hundreds of harnesses that stream would keep a server busy with what nobody may ever look at."""
    world = await open_world(cluster(CURRENT).url(fresh_schema()), "bench")
    names = [f"s{number}" for number in range(MANY)]
    for name in names:
        await world.create(name, [Record("first", "bench.note", 1, b"{}")], RowUpdate("parked", None))
    try:
        await world.put_progress(names[0], b"0")
        statements.clear()
        async with anyio.create_task_group() as tasks:
            for part in range(1, 4):
                for name in names:
                    tasks.start_soon(world.put_progress, name, f"{name} {part}".encode())
        assert len(statements) <= 2, "the first goes alone, and all others with the next"
        assert [await world.progress(name) for name in names] == [f"{name} 3".encode() for name in names]
    finally:
        await world.aclose()


async def test_postgres_plans_a_statement_once_and_waits_for_the_disk(connections: list[Any]) -> None:
    """Also after statements that did not wait: progress, snapshots and notifications are hints and caches."""
    schema = fresh_schema()
    world = await open_world(cluster(CURRENT).url(schema), "bench")
    await world.create("s", [Record("first", "bench.note", 1, b"{}")], RowUpdate("parked", None))
    try:
        for head in range(1, MANY + 1):
            note = Record(f"r{head}", "bench.note", 1, b"{}")
            await world.append("s", expected_head=head, epoch=0, records=[note])
            await world.read("s", head)
            await world.put_progress("s", b"{}")
            await world.put_snapshot("s", head, b"{}")
        plans: list[tuple[int, int]] = []
        for connection in connections:
            with contextlib.suppress(asyncpg.ConnectionDoesNotExistError, asyncpg.InterfaceError):
                waits = await connection.fetchval("show synchronous_commit")
                plans += await connection.fetch(
                    "select generic_plans, custom_plans from pg_prepared_statements where statement like $1",
                    f"%{schema}%",
                )
                assert waits == "on"
        assert max(kept for kept, _ in plans) >= MANY
        assert sum(anew for _, anew in plans) == 0
    finally:
        await world.aclose()


async def talked(calls: int) -> tuple[MemoryWorld, Conversation]:
    world = MemoryWorld()
    talk = Conversation(await begun(world), "L1", "x" * 1000)
    for _ in range(calls):
        await talk.call()
    return world, talk


async def test_a_tool_call_is_five_events() -> None:
    few, many = [len((await talked(calls))[0].stored[SESSION].records) for calls in (FEW, MANY)]
    assert many - few == (MANY - FEW) * EVENTS


async def test_a_turn_stores_what_is_new_in_it_however_long_it_is() -> None:
    """Each model request holds the whole conversation; its calls must not cost more bytes for that."""

    async def stored(calls: int) -> tuple[int, int]:
        world, talk = await talked(calls)
        there = world.stored[SESSION]
        return sum(len(r.body) for r in there.records) + sum(map(len, there.blobs.values())), talk.bytes

    (first, first_new), (second, second_new), (third, third_new) = [await stored(n) for n in (20, 60, 100)]
    early, late = (second - first) / (second_new - first_new), (third - second) / (third_new - second_new)
    assert late < early * 1.1
    assert late < 4


def imported(command: str, url: str) -> set[str]:
    """Modules that a command loads before it ends."""
    environment = {**os.environ, "HARNESS_DURABLE_WORLD": url}
    done = subprocess.run(
        [*CLI, *command.split()], env=environment, capture_output=True, text=True, check=False
    )
    lines = [line for line in done.stderr.splitlines() if line.startswith("import time:")]
    assert len(lines) > 20, done.stderr
    return {line.rpartition("|")[2].strip() for line in lines}


@pytest.mark.parametrize("world", ["file", "sqlite"])
@pytest.mark.parametrize(("command", "most"), [("sessions", 265), ("trace long", 290)])
async def test_a_command_imports_what_it_needs(command: str, most: int, world: str, tmp_path: Path) -> None:
    url = f"{world}:{tmp_path / world}"
    await fill(url, 20)
    found = imported(command, url)
    assert "harness_durable.world" in found, "it has got so far as to look into it"
    assert not NOT_NEEDED & found
    assert len(found) <= most


def test_help_needs_no_package_but_click(tmp_path: Path) -> None:
    found = imported("--help", f"sqlite:{tmp_path / 'none'}")
    assert len(found) <= 115
    assert not found & {"anyio", "apsw", "asyncio", "httpx", "msgspec", "pydantic", "rich"}


@pytest.mark.parametrize("adapter", ["claude-code", "codex", "opencode", "pi"])
def test_a_worker_that_attaches_waits_for_no_http_client_and_no_test_provider(adapter: str) -> None:
    """They are imported when a life asks its model, or when a binary has to be proven."""
    told = (
        "import sys, harness_durable.runtime.api\n"
        "from harness_durable.registry import load\n"
        f"load('adapter', {adapter!r}), load('sandbox', 'local'), load('world', 'sqlite')\n"
        "print(*sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", told], capture_output=True, text=True, check=True)
    found = set(done.stdout.split())
    assert "harness_durable.gateway.server" in found, "it is ready to serve"
    assert not found & {"httpx", "certifi", "rich", "harness_durable.testing", "starlette", "uvicorn"}
