"""The local sandbox: harnesses as processes of this host and this user, each under its own keeper.

It separates lives from each other and from the worker's environment. It is no wall: a harness can do
what this user can do. For that there is the Docker sandbox. What lies where, ``layout.py`` tells.
"""

from __future__ import annotations

import json
import shutil
import uuid
from collections.abc import Mapping, Sequence
from pathlib import Path

import anyio
from anyio.to_thread import run_sync

from harness_durable import crashpoints
from harness_durable.errors import SandboxUnavailable
from harness_durable.sandbox import ExecResult, FoundLife, Isolation, LifeRef, LifeSpec, Link

from . import commands, launch, layout, processes
from .link import attach
from .lives import Lives, run_of

_KINDS = {
    "pidns": (True, "each life has a PID namespace of its own: nothing of it outlives its keeper"),
    "userns": (
        True,
        "each life has user and PID namespaces of its own: nothing of it outlives its keeper",
    ),
    "guard": (
        False,
        "namespaces are forbidden here, so that lives have only a guard process: if it and the keeper are "
        "killed at once, children of a harness may outlive both; allow user namespaces "
        "(kernel.unprivileged_userns_clone, kernel.apparmor_restrict_unprivileged_userns)",
    ),
}
_attached: dict[str, str] = {}  # life -> run_dir: all that this process holds, for the crash suite


class LocalSandbox:
    """``root`` is created if need be; it must be on a local file system.

    ``isolation="guard"`` does without namespaces, for harnesses that need to become other users.
    """

    def __init__(self, root: Path, isolation: launch.Isolation = "auto") -> None:
        self._lives = Lives(root, "local")
        self._isolation: launch.Isolation = isolation

    @property
    def name(self) -> str:
        return "local"

    def locate(self, life: str) -> LifeRef:
        """Raises ``BadInput`` for an id that cannot be a directory's name."""
        return self._lives.locate(life)

    def home(self, ref: LifeRef) -> str:
        return str(layout.home(Path(ref.run_dir)))

    async def start(self, spec: LifeSpec, epoch: int) -> tuple[LifeRef, Link]:
        """Also raises ``BadInput`` for a file that would lie outside of ``home``."""
        ref = self.locate(spec.life)
        _attached[ref.life] = ref.run_dir
        try:
            await launch.launch(Path(ref.run_dir), spec, self._isolation)
            return ref, await attach(run_of(ref), spec.token, epoch)
        except layout.StartedBefore:
            raise
        except BaseException as error:
            with anyio.CancelScope(shield=True):
                await self.reap(ref, epoch)
            if isinstance(error, OSError):
                raise layout.not_started(error, self._lives.root) from error
            raise

    async def attach(self, ref: LifeRef, epoch: int) -> Link:
        link = await attach(run_of(ref), self._lives.token(ref), epoch)
        _attached[ref.life] = ref.run_dir
        return link

    async def alive(self, ref: LifeRef) -> bool:
        return await self._lives.alive(ref)

    async def reap(self, ref: LifeRef, epoch: int | None = None) -> bool:
        if not self._lives.ours(ref):
            return False
        await self._lives.ask_to_leave(ref, epoch)
        await run_sync(processes.end_life, ref.life, run_of(ref))
        await run_sync(layout.remove, Path(ref.run_dir))
        _attached.pop(ref.life, None)
        return True

    async def list_lives(self) -> Sequence[FoundLife]:
        """See ``harness_durable.sandbox.ListsLives``."""
        return await self._lives.listed()

    def acting(self, ref: LifeRef) -> Sequence[int]:
        """See ``harness_durable.sandbox.NamesProcesses``."""
        if not self._lives.ours(ref):
            return ()
        return processes.find(processes.marked(processes.marks(ref.life, run_of(ref))))

    async def exec(
        self,
        argv: tuple[str, ...],
        *,
        cwd: Path,
        env: Mapping[str, str],
        stdin: bytes = b"",
        timeout: float,
        options: Mapping[str, str] = {},
    ) -> ExecResult:
        try:
            return await commands.run(
                argv, cwd=cwd, env=env, stdin=stdin, timeout=timeout, scratch=self._lives.root
            )
        except OSError as error:
            raise SandboxUnavailable(f"cannot run {argv[0]!r}: {error}; see to {self._lives.root}") from error

    async def isolation(self) -> Isolation:
        """See ``harness_durable.sandbox.TellsIsolation``."""
        life, token = f"check-{uuid.uuid4().hex[:12]}", uuid.uuid4().hex
        spec = LifeSpec(life, life, (shutil.which("sleep") or "/bin/sleep", "0"), {}, "/", {}, token, ttl=60)
        ref, link = await self.start(spec, 1)
        try:
            about: dict[str, str] = json.loads(await anyio.Path(run_of(ref) / "keeper.json").read_bytes())
        finally:
            with anyio.CancelScope(shield=True):
                await link.aclose()
                await self.reap(ref)
        kind = about["isolation"]
        firm, sentence = _KINDS.get(kind, (False, f"isolation of the kind {kind!r}"))
        return Isolation(kind, firm, sentence)

    async def aclose(self) -> None:
        """Nothing to close: lives go on without us."""


def kill_life(ref: LifeRef) -> None:
    """For tests: the keeper dies by SIGKILL, and with it all that it holds. Blocks until it is so."""
    processes.end_life(ref.life, run_of(ref))


def _on_death(death: crashpoints.Death) -> None:
    if death == "worker":
        return
    for life, run_dir in _attached.items():
        processes.end_life(life, Path(run_dir) / "keeper")
        if death == "machine":
            shutil.rmtree(run_dir, ignore_errors=True)


crashpoints.on_death(_on_death)
