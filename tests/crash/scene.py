"""One crash experiment: a scripted provider, a workspace, a World, and workers that come and go.

What surprises: an experiment on Postgres has an app of its own on a database that it shares with others, so
that each also shows that apps do not meet. ``postgres`` is a server that is started for this process; a
``postgresql://`` URL is one that is there.
"""

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
import uuid
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import IO, cast

import msgspec

from harness_durable.errors import NotFound
from harness_durable.journal import Reader
from harness_durable.settings import resolve
from harness_durable.testing.provider.policies import FromPrompt, Script, Steps
from harness_durable.world import World
from harness_durable.worlds import open_world
from tests.worlds.postgres_support import cluster

WORLDS = ("sqlite", "file", "postgres")
FULL = os.environ.get("HARNESS_DURABLE_CRASH") == "full"
"""Whether everything is tried, or what a change is to be judged by within minutes."""
KILLED = (-signal.SIGKILL, 128 + signal.SIGKILL)
"""How a worker ends that was killed, or a shell tells it."""
KEY = "sk-canary-0123456789abcdef0123456789abcdef"
SESSION = "crash"
MESSAGE = "task"
NEEDS_A_PERSON, HELD = 3, 4
EFFECTS = "effects.txt"
"""A line for each effect. Those of ``Steps`` are outside of the workspace, as what an agent does to the world
is, and survive the machine; they leave a trace in the workspace besides."""
TOOL = Path(__file__).with_name("effect_tool.py")
HARNESS = {
    "claude-code": b"--session-mirror",
    "codex": b"app-server",
    "opencode": b"serve\0",
    "pi": b"pi\0\0",
}
"""By adapter: what the command line of a harness has that no other process of a scene has."""


class Host(msgspec.Struct, frozen=True):
    """What a machine has for itself. The machines of a scene share nothing below their roots. Workers of a
    ``remote`` one are in a PID namespace of their own, as in another container: nobody there sees whether a
    process here is alive, nor the other way round."""

    root: Path
    remote: bool = False

    @property
    def run_dir(self) -> Path:
        return self.root / "run"

    @property
    def workspace(self) -> Path:
        return self.root / "work"

    @property
    def home(self) -> Path:
        return self.root / "home"

    @property
    def lives(self) -> list[Path]:
        """Directories of lives that are there."""
        return list(self.run_dir.glob("life-*"))

    def make(self) -> None:
        """Its folders, empty."""
        self.workspace.mkdir(parents=True)
        self.home.mkdir()

    @property
    def enter(self) -> list[str]:
        """What a command is begun with there. The shell is the namespace's first process, which buries the
        dead; with it everything in there dies."""
        if not self.remote:
            return []
        user = [] if os.getuid() == 0 else ["--user", "--map-root-user"]
        begin = ["unshare", *user, "--pid", "--fork", "--mount-proc", "--kill-child"]
        return [*begin, "sh", "-c", '"$@"; exit "$?"', "sh"]

    @property
    def apart(self) -> dict[str, str]:
        """Settings of a host that is not the only one. The harness's binary is on each."""
        return {
            "HOME": str(self.home),
            "HARNESS_DURABLE_WORKSPACES": str(self.root),
            "HARNESS_DURABLE_HARNESS_DIR": str(resolve().settings.harness_dir),
        }


class Scene:
    """``policy`` is what the model does; the tokens of a ``Steps`` are what the effects' ledger is checked
    against, for others the test says it. With ``FromPrompt``, the message's ``text`` names the policy, and a
    subagent's prompt may name one of its own; a string names one as ``module:attribute``. ``mood`` is the
    scripted provider's: ``messy`` for odd but legal streams.

    ``hosts`` names several machines; the first is where things happen unless another one is given. Then the
    effects' ledger is outside of them, as a deployment would be; ``outside``: of the workspace in any case. A
    machine that dies loses its workspaces."""

    def __init__(
        self,
        root: Path,
        world: str,
        *,
        policy: Steps | Script | FromPrompt | str | None = None,
        text: str = "do the steps",
        adapter: str = "claude-code",
        mood: str = "calm",
        hosts: Sequence[str] = (),
        outside: bool = False,
    ) -> None:
        self.root, self.adapter, self.mood, self.text = root, adapter, mood, text
        self.policy = policy or Steps(steps=3, pair_every=2, custom_every=3, nap=0.1)
        self.world, self.app = _store(root, world)
        self.hosts = [Host(root / name, name != hosts[0]) for name in hosts] or [Host(root)]
        for host in self.hosts:
            host.make()
        self.ledger = root / "provider.jsonl"
        self.errors = root / "workers.txt"
        self.effects = root / EFFECTS if outside else self._effects()
        self.effects.touch()
        self._provider: subprocess.Popen[str] | None = None
        self._started: list[subprocess.Popen[bytes]] = []
        self.url = ""

    @property
    def workspace(self) -> Path:
        return self.hosts[0].workspace

    @property
    def loses_workspaces(self) -> bool:
        """With a machine. Else what is counted would be lost with it."""
        return not self.effects.is_relative_to(self.workspace)

    def _effects(self) -> Path:
        if isinstance(self.policy, Steps):
            ledger = str(self.root / EFFECTS)
            self.policy = msgspec.structs.replace(self.policy, effects=ledger, work="work.txt")
        elif len(self.hosts) == 1:
            return self.workspace / EFFECTS
        return self.root / EFFECTS

    async def opened(self) -> World:
        """The store, as this experiment's app sees it. Close it."""
        return await open_world(self.world, self.app)

    async def put_back(self) -> None:
        """After a death: where nothing had been saved yet, a person makes the workspace again."""
        world = await self.opened()
        try:
            saved = bool((await Reader(world, SESSION).load()).files.root)
        except NotFound:
            saved = False
        finally:
            await world.aclose()
        if not saved:
            for host in self.hosts:
                host.workspace.mkdir(parents=True, exist_ok=True)

    async def forget(self) -> None:
        """Leave nothing in a store that outlives the experiment's directory."""
        world = await self.opened()
        try:
            for row in await world.sessions():
                await world.delete(row.session)
        finally:
            await world.aclose()

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
        for process in self._started:  # of a test that failed: it would begin another life
            process.kill()
            process.wait()
        self.kill_lives()

    def worker(
        self,
        message: str = MESSAGE,
        host: Host | None = None,
        /,
        *,
        options: Sequence[str] = (),
        **variables: str,
    ) -> subprocess.Popen[bytes]:
        """Start a worker that sends the message (if it is not accepted yet) and drives the session."""
        text = self.text if message == MESSAGE else f"go on, says {message}"
        command = [sys.executable, "-m", "harness_durable.cli.main", "run", text]
        command += ["--session", SESSION, "--message-id", message, "--adapter", self.adapter]
        command += ["--workspace", str((host or self.hosts[0]).workspace), "--tools", str(TOOL), *options]
        return self._start(command, variables, host)

    def service(
        self, host: Host | None = None, /, *, options: Sequence[str] = (), **variables: str
    ) -> subprocess.Popen[bytes]:
        """Start a worker that drives whatever is due, until it is told to stop."""
        command = [sys.executable, "-m", "harness_durable.cli.main", "worker", "--tools", str(TOOL), *options]
        return self._start(command, variables, host)

    def client(self, verb: str, *words: str, after: float = 0.0, **variables: str) -> subprocess.Popen[bytes]:
        """Some other process that says something to the session, ``after`` seconds from now."""
        command = ["sh", "-c", 'sleep "$0" && exec "$@"', str(after)]
        command += [sys.executable, "-m", "harness_durable.cli.main", verb, SESSION, *words]
        return self._start(command, variables)

    def _start(
        self, command: list[str], variables: dict[str, str], host: Host | None = None
    ) -> subprocess.Popen[bytes]:
        host = host or self.hosts[0]
        environment = {
            **os.environ,
            **(host.apart if len(self.hosts) > 1 else {}),
            "HARNESS_DURABLE_WORLD": self.world,
            "HARNESS_DURABLE_APP": self.app,
            "HARNESS_DURABLE_RUN_DIR": str(host.run_dir),
            "HARNESS_DURABLE_UPSTREAM_URL": self.url,
            "ANTHROPIC_API_KEY": KEY,
            "HARNESS_DURABLE_LEASE_SECONDS": "3",
            "CRASH_EFFECTS": str(self.effects),
            "HARNESS_DURABLE_CRASH_LOSES": str(host.workspace) if self.loses_workspaces else "",
            **variables,
        }
        with self.errors.open("ab") as errors:
            command = [*host.enter, *command]
            self._started.append(subprocess.Popen(command, env=environment, stdout=errors, stderr=errors))
        return self._started[-1]

    def _policy(self) -> list[str]:
        if isinstance(self.policy, Script):
            return ["--policy", f"script:{written(self.root / 'script.json', self.policy)}"]
        if isinstance(self.policy, str):
            return ["--policy", self.policy]
        name = "steps" if isinstance(self.policy, Steps) else "prompt"
        return ["--policy", name, "--options", json.dumps(msgspec.structs.asdict(self.policy))]

    def finish(self, message: str = MESSAGE, most: int = 5, wanted: int = 0, host: Host | None = None) -> int:
        """Workers without faults until one ends with the ``wanted`` exit code, or with that for "needs a
        person"; the last one's."""
        code = -1
        for _ in range(most):
            code = self.ended(message, host)
            if code in (wanted, NEEDS_A_PERSON):
                break
        return code

    def ended(self, message: str = MESSAGE, host: Host | None = None, /, **variables: str) -> int:
        """The exit code of a worker that was not told that another one holds the session. A host does not
        see that a process of another one is dead, and has to wait until its lease ends."""
        give_up = time.monotonic() + 60
        while True:
            code = self.worker(message, host, **variables).wait(timeout=120)
            if code != HELD or time.monotonic() > give_up:
                return code

    def clean_up(self) -> None:
        """Hosts are up again: a worker ends, at its start, what another host could only give up."""
        for host in (host for host in self.hosts if host.lives):
            worker = self.service(host)
            wait_for(partial(_is_clean, host), "what was left behind to be ended")
            worker.kill()
            worker.wait()

    def die(self, worker: subprocess.Popen[bytes], death: str) -> None:
        """Kill a worker, and what ``crashpoints`` means by this death with it, on every host."""
        worker.kill()
        worker.wait()
        if death == "harness":
            self.kill_lives()
        elif death == "machine":
            self.lose_machine()

    def keepers(self) -> list[int]:
        """Host pids of the processes that hold lives of this scene."""
        return [pid for pid in _pids() if self._marked(pid, "cmdline") and b"keeper" in _read(pid, "cmdline")]

    def _marked(self, pid: int, name: str) -> bool:
        found = _read(pid, name)
        return any(str(host.run_dir).encode() in found for host in self.hosts)

    def harnesses(self) -> list[tuple[int, bytes]]:
        """Pid and start time of each harness process, so that a reused pid is not taken for the same one."""
        return [(pid, _read(pid, "stat").split()[21]) for pid in self._acting()]

    def _acting(self) -> list[int]:
        found = [pid for pid in _pids() if HARNESS[self.adapter] in _read(pid, "cmdline")]
        return [pid for pid in found if self._marked(pid, "environ")]

    def said(self, text: str) -> bool:
        """Did a worker say this?"""
        return self.errors.exists() and text in self.errors.read_text(errors="replace")

    def processes(self) -> list[int]:
        """Everything that belongs to a life of this scene: keepers, harnesses, their children."""
        return [pid for pid in _pids() if self._marked(pid, "cmdline") or self._marked(pid, "environ")]

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
        """The death of everything but the workers. A harness dies a moment after its keeper, and may write
        into its home until then."""
        for pid in self.keepers():
            _kill(pid)
        wait_for(lambda: not self.keepers() and not self._acting(), "keepers and harnesses to die")

    def lose_machine(self) -> None:
        """Homes, run directories and spools are gone, too, and the workspace; where another host can go on,
        the first host is a new machine."""
        self.kill_lives()
        for host in self.hosts:
            shutil.rmtree(host.run_dir, ignore_errors=True)
        if self.loses_workspaces and len(self.hosts) == 1:
            shutil.rmtree(self.workspace, ignore_errors=True)
        if len(self.hosts) > 1:
            shutil.rmtree(self.hosts[0].root)
            self.hosts[0].make()

    def tail(self) -> str:
        """What the workers said last, for a failing test."""
        return self.errors.read_text(errors="replace")[-6000:] if self.errors.exists() else ""


def _is_clean(host: Host) -> bool:
    return not host.lives


def _store(root: Path, world: str) -> tuple[str, str]:
    """The URL of a World, and the app."""
    if world.startswith("postgres"):
        url = cluster().url("crash") if world == "postgres" else world
        return url, f"crash-{uuid.uuid4().hex[:12]}"
    known = {"sqlite": f"sqlite:{root / 'world.db'}", "file": f"file:{root / 'world'}"}
    return known.get(world, world), "default"


def written(path: Path, script: Script) -> Path:
    """A script as the provider reads it."""
    path.write_bytes(msgspec.json.encode(script.replies))
    return path


def dies_at(scene: Scene, point: str, death: str) -> None:
    """A worker is killed there; if that is in a recovery, another one was killed in a tool before it."""
    crash = {"HARNESS_DURABLE_CRASH_AT": point, "HARNESS_DURABLE_CRASH_DEATH": death}
    if point.startswith("recovery."):
        first = {"HARNESS_DURABLE_CRASH_AT": "tool.released", "HARNESS_DURABLE_CRASH_DEATH": "harness"}
        assert scene.worker(**first).wait(timeout=120) == -signal.SIGKILL, scene.tail()
    if point == "lease.renewing":
        crash["HARNESS_DURABLE_LEASE_SECONDS"] = "1"
    assert scene.worker(**crash).wait(timeout=120) == -signal.SIGKILL, scene.tail()


def goes_on_without_its_worker(scene: Scene) -> None:
    """The worker is killed once the command has had its effect; the harness is the same process when the next
    one attaches, and the turn comes to its end."""
    worker = scene.worker()
    wait_for(scene.has_effects, "the command's effect")
    worker.kill()
    worker.wait()
    harness = scene.harnesses()
    assert len(harness) == 1
    heir = scene.worker()
    wait_for(lambda: scene.said("attaches"), "the next worker to attach")
    assert scene.harnesses() == harness
    assert heir.wait(timeout=120) == 0, scene.tail()


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
