"""One crash experiment: a scripted provider, a workspace, a World, and workers that come and go."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import IO, cast

import msgspec

from harness_durable.testing.provider.policies import FromPrompt, Script, Steps

KEY = "sk-canary-0123456789abcdef0123456789abcdef"
SESSION = "crash"
MESSAGE = "task"
NEEDS_A_PERSON = 3
EFFECTS = "effects.txt"
"""In the workspace: a line for each effect, as ``Steps`` writes them."""
TOOL = Path(__file__).with_name("effect_tool.py")


class Scene:
    """``policy`` is what the model does; the tokens of a ``Steps`` are what the effects' ledger is checked
    against, for others the test says it. With ``FromPrompt``, the message's ``text`` names the policy, and a
    subagent's prompt may name one of its own. ``mood`` is the scripted provider's: ``messy`` for odd but
    legal streams."""

    def __init__(
        self,
        root: Path,
        world: str,
        *,
        policy: Steps | Script | FromPrompt | None = None,
        text: str = "do the steps",
        adapter: str = "claude-code",
        mood: str = "calm",
    ) -> None:
        self.root, self.adapter, self.mood, self.text = root, adapter, mood, text
        self.policy = policy or Steps(steps=3, pair_every=2, custom_every=3, nap=0.1)
        self.world = {"sqlite": f"sqlite:{root / 'world.db'}", "file": f"file:{root / 'world'}"}.get(
            world, world
        )
        self.workspace = root / "work"
        self.run_dir = root / "run"
        self.ledger = root / "provider.jsonl"
        self.errors = root / "workers.txt"
        self.workspace.mkdir(parents=True)
        self.effects = self.workspace / EFFECTS
        self.effects.touch()
        self._provider: subprocess.Popen[str] | None = None
        self.url = ""

    def __enter__(self) -> Scene:
        command = [sys.executable, "-m", "harness_durable.testing.provider", *self._policy()]
        command += ["--ledger", str(self.ledger), "--mood", self.mood]
        self._provider = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        self.url = cast(IO[str], self._provider.stdout).readline().strip()
        assert self.url.startswith("http"), "the scripted provider did not start"
        return self

    def __exit__(self, *_: object) -> None:
        provider = cast("subprocess.Popen[str]", self._provider)
        provider.terminate()
        provider.wait()
        cast(IO[str], provider.stdout).close()
        self.kill_lives()

    def worker(
        self, message: str = MESSAGE, *, options: Sequence[str] = (), **variables: str
    ) -> subprocess.Popen[bytes]:
        """Start a worker that sends the message (if it is not accepted yet) and drives the session."""
        text = self.text if message == MESSAGE else f"go on, says {message}"
        command = [sys.executable, "-m", "harness_durable.cli.main", "run", text]
        command += ["--session", SESSION, "--message-id", message, "--adapter", self.adapter]
        command += ["--workspace", str(self.workspace), "--tools", str(TOOL), *options]
        return self._start(command, variables)

    def client(self, verb: str, *words: str, after: float = 0.0, **variables: str) -> subprocess.Popen[bytes]:
        """Some other process that says something to the session, ``after`` seconds from now."""
        command = ["sh", "-c", 'sleep "$0" && exec "$@"', str(after)]
        command += [sys.executable, "-m", "harness_durable.cli.main", verb, SESSION, *words]
        return self._start(command, variables)

    def _start(self, command: list[str], variables: dict[str, str]) -> subprocess.Popen[bytes]:
        environment = {
            **os.environ,
            "HARNESS_DURABLE_WORLD": self.world,
            "HARNESS_DURABLE_RUN_DIR": str(self.run_dir),
            "HARNESS_DURABLE_UPSTREAM_URL": self.url,
            "ANTHROPIC_API_KEY": KEY,
            "HARNESS_DURABLE_LEASE_SECONDS": "3",
            "CRASH_EFFECTS": str(self.effects),
            **variables,
        }
        with self.errors.open("ab") as errors:
            return subprocess.Popen(command, env=environment, stdout=errors, stderr=errors)

    def _policy(self) -> list[str]:
        if isinstance(self.policy, Script):
            return ["--policy", f"script:{written(self.root / 'script.json', self.policy)}"]
        name = "steps" if isinstance(self.policy, Steps) else "prompt"
        return ["--policy", name, "--options", json.dumps(msgspec.structs.asdict(self.policy))]

    def finish(self, message: str = MESSAGE, most: int = 5, wanted: int = 0) -> int:
        """Workers without faults until one ends with the ``wanted`` exit code, or with that for "needs a
        person"; the last one's."""
        code = -1
        for _ in range(most):
            code = self.worker(message).wait(timeout=120)
            if code in (wanted, NEEDS_A_PERSON):
                break
        return code

    def die(self, worker: subprocess.Popen[bytes], death: str) -> None:
        """Kill a worker, and what ``crashpoints`` means by this death with it."""
        worker.kill()
        worker.wait()
        if death == "harness":
            self.kill_lives()
        elif death == "machine":
            self.lose_machine()

    def keepers(self) -> list[int]:
        """Host pids of the processes that hold lives of this scene."""
        mark = str(self.run_dir).encode()
        return [
            pid for pid in _pids() if mark in _read(pid, "cmdline") and b"keeper" in _read(pid, "cmdline")
        ]

    def harnesses(self) -> list[tuple[int, bytes]]:
        """Pid and start time of each harness process, so that a reused pid is not taken for the same one."""
        mark = str(self.run_dir).encode()
        found = [pid for pid in _pids() if b"--session-mirror" in _read(pid, "cmdline")]
        return [(pid, _read(pid, "stat").split()[21]) for pid in found if mark in _read(pid, "environ")]

    def said(self, text: str) -> bool:
        """Did a worker say this?"""
        return self.errors.exists() and text in self.errors.read_text(errors="replace")

    def processes(self) -> list[int]:
        """Everything that belongs to a life of this scene: keepers, harnesses, their children."""
        mark = str(self.run_dir).encode()
        return [pid for pid in _pids() if mark in _read(pid, "cmdline") or mark in _read(pid, "environ")]

    def has_effects(self) -> bool:
        return self.effects.stat().st_size > 0

    def pause(self, worker: subprocess.Popen[bytes]) -> None:
        """Stop a worker at a moment at which it writes nothing. One that is stopped within a transaction of
        SQLite keeps the database locked, and nobody can take over before it goes on."""
        while True:
            worker.send_signal(signal.SIGSTOP)
            if not self.world.startswith("sqlite:") or _writable(self.world.removeprefix("sqlite:")):
                return
            worker.send_signal(signal.SIGCONT)
            time.sleep(0.01)

    def files_with(self, secret: bytes) -> list[Path]:
        """Files of this scene, whoever wrote them, that hold the secret."""
        return [path for path in self.root.rglob("*") if path.is_file() and secret in path.read_bytes()]

    def kill_lives(self) -> None:
        """The death of everything but the workers."""
        for pid in self.keepers():
            _kill(pid)
        wait_for(lambda: not self.keepers(), "keepers to die")

    def lose_machine(self) -> None:
        """Homes, run directories and spools are gone, too."""
        self.kill_lives()
        shutil.rmtree(self.run_dir, ignore_errors=True)

    def tail(self) -> str:
        """What the workers said last, for a failing test."""
        return self.errors.read_text(errors="replace")[-6000:] if self.errors.exists() else ""


def written(path: Path, script: Script) -> Path:
    """A script as the provider reads it."""
    path.write_bytes(msgspec.json.encode(script.replies))
    return path


def wait_for(condition: Callable[[], bool], what: str, seconds: float = 60.0) -> None:
    """Wait for a condition; fails with a sentence when it does not come."""
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            raise AssertionError(f"waited {seconds:.0f} s in vain for {what}")
        time.sleep(0.02)


def _writable(database: str) -> bool:
    with contextlib.closing(sqlite3.connect(database, timeout=0, isolation_level=None)) as connection:
        try:
            connection.execute("begin immediate")
            connection.execute("rollback")
        except sqlite3.OperationalError:
            return False
        return True


def _pids() -> list[int]:
    own = os.getpid()
    return [
        int(entry.name)
        for entry in Path("/proc").iterdir()
        if entry.name.isdigit() and int(entry.name) != own
    ]


def _read(pid: int, name: str) -> bytes:
    try:
        return Path(f"/proc/{pid}/{name}").read_bytes()
    except OSError:
        return b""


def _kill(pid: int) -> None:
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        return
