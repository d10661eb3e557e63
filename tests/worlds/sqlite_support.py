"""What the tests of the SQLite World share."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path

import anyio
import apsw
import pytest

from harness_durable.world import Record, RowUpdate, StoredRecord, World
from harness_durable_worlds._sqlite_db import open_db

APP = "tests"
PARKED = RowUpdate("parked", None)
DUE = RowUpdate("ready", 1)
DEADLINE = 30.0
CHILD = Path(__file__).with_name("sqlite_child.py")
ROOT = CHILD.parents[2]
PYTHON = str(Path(sys.executable).resolve())


def record(name: str, body: bytes = b"body") -> Record:
    return Record(name, "test.note", 1, body)


def batch(number: int) -> list[Record]:
    return [record(f"b{number}-{part}", b"%d" % number * 700) for part in range(3)]


def ids(log: list[StoredRecord]) -> list[str]:
    assert [each.seq for each in log] == list(range(1, len(log) + 1))
    return [each.id for each in log]


async def begin(world: World, session: str = "s", row: RowUpdate = PARKED) -> int:
    assert await world.create(session, [record("first")], row)
    return 1


async def until(true: Callable[[], Awaitable[bool]]) -> None:
    """Wait until it is true, or fail."""
    with anyio.fail_after(DEADLINE):
        while not await true():  # noqa: ASYNC110 - what is waited for is in another process or thread
            await anyio.sleep(0.005)


def command(*arguments: str) -> list[str]:
    return [PYTHON, str(CHILD), *arguments]


def environment() -> dict[str, str]:
    """So that the real interpreter, started without its virtual environment, finds what this one has."""
    return {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), *filter(None, sys.path)])}


def start(*arguments: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        command(*arguments), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment()
    )


def say(child: subprocess.Popen[str], line: str) -> None:
    assert child.stdin is not None
    child.stdin.write(line + "\n")
    child.stdin.flush()


def hear(child: subprocess.Popen[str]) -> list[str]:
    assert child.stdout is not None
    return child.stdout.readline().split()


def end(child: subprocess.Popen[str]) -> None:
    """Whatever state it is in."""
    for stream in (child.stdin, child.stdout):
        if stream is not None and not stream.closed:
            with contextlib.suppress(BrokenPipeError):
                stream.close()
    if child.poll() is None:
        child.send_signal(signal.SIGCONT)
        child.kill()
    child.wait(DEADLINE)


def strace(*arguments: str, options: list[str]) -> list[list[str]]:
    """Run the child under strace; the lines that it printed, in words. Fails if there is no strace."""
    program = shutil.which("strace")
    if program is None:
        pytest.fail("these tests need strace: apt-get install strace")
    full = [program, "-f", "-qq", *options, *command(*arguments)]
    done = subprocess.run(full, capture_output=True, text=True, timeout=DEADLINE * 2, env=environment())
    assert "Traceback" not in done.stderr, done.stderr
    return [line.split() for line in done.stdout.splitlines()]


def integrity(path: Path) -> str:
    """SQLite's own opinion of a database that nobody has open."""
    connection = open_db(path, apsw.SQLITE_OPEN_READWRITE)
    try:
        return str(connection.pragma("integrity_check"))
    finally:
        connection.close()
