"""What the tests of the file World share: worlds, logs and scripted children."""

from __future__ import annotations

import os
import subprocess
import sys
import uuid
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

from harness_durable.world import Owner, Record, RowUpdate
from harness_durable_worlds._file_log import Log
from harness_durable_worlds._file_store import Store
from harness_durable_worlds.file import FileWorld, open_world
from tests.worlds import file_child

PARKED = RowUpdate("idle", None)
DUE = RowUpdate("queued", 1)
CHILD = [os.path.realpath(sys.executable), str(Path(file_child.__file__).resolve())]


def note(body: bytes = b"x", name: str = "") -> Record:
    return Record(name or uuid.uuid4().hex, "check.note", 1, body)


def quiet(sentence: str) -> None:
    """Takes the report of a repair that the test is not about."""


def worker() -> Owner:
    return Owner(str(uuid.uuid4()), "host", os.getpid())


@asynccontextmanager
async def opened(folder: Path, app: str = "a") -> AsyncGenerator[FileWorld, None]:
    world = await open_world(f"file:{folder}", app)
    try:
        yield world
    finally:
        await world.aclose()


def bare_log(folder: Path, session: str = "s") -> Log:
    """A log as the World uses it, without threads."""
    store = Store(folder, "a")
    store.prepare()
    store.create(session, [(0, [note(b"first", "r1")])], {}, PARKED)
    return store.log(session)


def start(folder: Path, mode: str, *strace: str) -> subprocess.Popen[str]:
    """The scripted child, below strace if options for it are given."""
    python = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    trace = ["strace", "-f", "-qq", "-o", str(folder) + ".trace", *strace] if strace else []
    return subprocess.Popen(
        [*trace, *CHILD, str(folder), mode],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=python,
    )


def run(folder: Path, mode: str, *strace: str) -> list[list[str]]:
    """The words of each line that the child said."""
    child = start(folder, mode, *strace)
    said, errors = child.communicate()
    assert "Traceback" not in errors, errors
    return [line.split() for line in said.splitlines()]


def line_of(child: subprocess.Popen[str]) -> list[str]:
    assert child.stdout is not None
    return child.stdout.readline().split()


def go_on(child: subprocess.Popen[str]) -> None:
    assert child.stdin is not None
    child.stdin.write("\n")
    child.stdin.flush()
