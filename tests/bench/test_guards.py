"""What a tool call costs, counted: no machine is too slow or too busy for that.

Every count is of what more calls cost more, so that what opening and closing takes is not in it."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from bench.conversation import APPENDS, EVENTS, Conversation
from tests.bench.counted import turn
from tests.unit.memory_world import MemoryWorld
from tests.unit.session_kit import SESSION, begun
from tests.worlds.postgres_support import CURRENT, cluster, fresh_schema

asyncpg: Any = import_module("asyncpg")  # it has no types
FEW, MANY = 10, 30
SYNC = re.compile(r"\b(fsync|fdatasync|syncfs|sync_file_range)\(")
CLI = [sys.executable, "-X", "importtime", "-m", "harness_durable.cli.main"]
NOT_NEEDED = {"asyncpg", "docker", "playwright", "starlette", "uvicorn"}
"""Packages that no command which only reads a local World may import."""


def syncs(url: str, calls: int, trace: Path) -> int:
    """Of the disk, by a turn of so many calls."""
    if shutil.which("strace") is None:
        pytest.fail("these tests need strace: apt-get install strace")
    command = ["strace", "-f", "-qq", "-e", "trace=fsync,fdatasync,syncfs,sync_file_range", "-o", str(trace)]
    python = os.path.realpath(sys.executable)
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    command += [python, "-m", "tests.bench.counted", url, str(calls)]
    subprocess.run(command, check=True, env=environment, cwd=Path(__file__).parents[2])
    return len(SYNC.findall(trace.read_text()))


@pytest.mark.parametrize("world", ["file", "sqlite"])
def test_an_append_is_one_sync_of_the_disk(world: str, tmp_path: Path) -> None:
    few, many = (
        syncs(f"{world}:{tmp_path / f'{calls}'}", calls, tmp_path / f"{calls}.trace") for calls in (FEW, MANY)
    )
    assert many - few == (MANY - FEW) * APPENDS


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


def imported(command: str, tmp_path: Path) -> set[str]:
    """Modules that a command loads before it ends."""
    environment = {**os.environ, "HARNESS_DURABLE_WORLD": f"sqlite:{tmp_path / 'world.db'}"}
    done = subprocess.run(
        [*CLI, *command.split()], env=environment, capture_output=True, text=True, check=False
    )
    lines = [line for line in done.stderr.splitlines() if line.startswith("import time:")]
    assert len(lines) > 20, done.stderr
    return {line.rpartition("|")[2].strip() for line in lines}


@pytest.mark.parametrize(("command", "most"), [("--help", 120), ("sessions", 420), ("trace nothing", 640)])
def test_a_command_imports_what_it_needs(command: str, most: int, tmp_path: Path) -> None:
    found = imported(command, tmp_path)
    assert not NOT_NEEDED & {name.partition(".")[0] for name in found}
    assert len(found) <= most


def test_help_needs_no_package_but_click(tmp_path: Path) -> None:
    packages = {name.partition(".")[0] for name in imported("--help", tmp_path)}
    assert not packages & {"anyio", "apsw", "asyncio", "httpx", "msgspec", "pydantic", "rich"}
