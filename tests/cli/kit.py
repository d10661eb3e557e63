"""The installed script as a subprocess, the scripted provider beside it, and logs without a harness."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Awaitable, Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, TypeVar, cast

import anyio

from harness_durable import codec
from harness_durable.events import AgentSpec, AnyEvent
from harness_durable.journal import Inbox
from harness_durable.world import Record, RowUpdate, World
from harness_durable.worlds import open_world

SCRIPT = Path(sys.executable).with_name("harness-durable")
OURS = ("HARNESS_DURABLE_", "ANTHROPIC_")
KEY = "sk-test-0123456789"

T = TypeVar("T")
Done = subprocess.CompletedProcess[bytes]


def bash(command: str) -> dict[str, Any]:
    """A block of a script: the model runs a command."""
    return {"type": "tool_use", "name": "Bash", "input": {"command": command}}


def calls(*blocks: dict[str, Any]) -> dict[str, Any]:
    return {"blocks": list(blocks)}


def says(text: str) -> dict[str, Any]:
    return {"blocks": [{"type": "text", "text": text}]}


class Cli:
    """``harness-durable`` in a folder of its own, with nothing of the tester's settings."""

    def __init__(self, folder: Path, world: str) -> None:
        self.folder, self.world = folder, world
        self.run_dir = folder / "run"
        kept = {name: value for name, value in os.environ.items() if not name.startswith(OURS)}
        home = os.environ.get("HARNESS_DURABLE_HARNESS_DIR")
        self.env = kept | ({"HARNESS_DURABLE_HARNESS_DIR": home} if home else {})
        self.env |= {"HARNESS_DURABLE_WORLD": world, "HARNESS_DURABLE_RUN_DIR": str(self.run_dir)}

    def __call__(self, *words: str, stdin: bytes = b"", env: Mapping[str, str] | None = None) -> Done:
        return subprocess.run(
            [SCRIPT, *words],
            cwd=self.folder,
            env={**self.env, **(env or {})},
            input=stdin,
            capture_output=True,
            timeout=120,
        )

    def start(self, *words: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [SCRIPT, *words],
            cwd=self.folder,
            env=self.env,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def json(self, *words: str) -> list[dict[str, Any]]:
        """The lines of a command that must succeed; each carries the version of the format."""
        done = self(*words, "--json")
        assert done.returncode == 0, done.stderr
        lines = [json.loads(line) for line in done.stdout.splitlines()]
        assert all(line.pop("v") == 1 for line in lines)
        return lines

    @contextmanager
    def provider(self, *replies: dict[str, Any]) -> Generator[None]:
        """A scripted model with these replies, one after the other."""
        script = self.folder / "script.json"
        script.write_text(json.dumps(replies))
        command = [sys.executable, "-m", "harness_durable.testing.provider", "--policy", f"script:{script}"]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        out = cast(IO[str], process.stdout)
        try:
            self.env |= {
                "HARNESS_DURABLE_UPSTREAM_URL": out.readline().strip(),
                "HARNESS_DURABLE_UPSTREAM_KEY": KEY,
            }
            yield
        finally:
            process.terminate()
            process.wait()
            out.close()

    @property
    def absolute(self) -> str:
        """The World's URL from anywhere."""
        scheme, _, path = self.world.partition(":")
        return self.world if path.startswith("//") else f"{scheme}:{self.folder / path}"

    def within(self, work: Callable[[World], Awaitable[T]]) -> T:
        """Do something with the World, in this process."""

        async def inside() -> T:
            store = await open_world(self.absolute)
            try:
                return await work(store)
            finally:
                await store.aclose()

        return anyio.run(inside)

    def log(
        self, session: str, events: Sequence[AnyEvent] = (), message: str = "hello", status: str = "idle"
    ) -> None:
        """A session with one waiting message and these events after it, as if a worker had written them."""

        async def write(store: World) -> None:
            inbox = await Inbox.create(
                store, session, AgentSpec("claude-code", "2.1.332", "m", "local", "/w")
            )
            await inbox.accept("m-1", message)
            for number, event in enumerate(events):
                record = Record(f"r{number}", codec.kind_of(event), 1, codec.encode(event))
                row = RowUpdate(status, None)
                await store.append(session, expected_head=2 + number, epoch=0, records=[record], row=row)

        self.within(write)


def held(process: subprocess.Popen[str], word: str) -> str:
    """Read stderr up to the line with this word; what was read."""
    seen = ""
    for line in cast(IO[str], process.stderr):
        seen += line
        if word in line:
            return seen
    raise AssertionError(f"{word!r} never came: {seen}")


def sentence(done: Done) -> str:
    """The error that a person reads: nothing but sentences, never a traceback."""
    said = done.stderr.decode()
    assert "Traceback" not in said, said
    return said
