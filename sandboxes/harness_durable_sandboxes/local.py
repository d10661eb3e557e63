"""The local sandbox: harnesses as processes of this host and this user, each under its own keeper.

It separates lives from each other and from the worker's environment. It is no wall: a harness can do
what this user can do. For that there is the Docker sandbox.

    ROOT/.id              tells this directory from those of other hosts
    ROOT/LIFE/            0700, one per life
        home/             the harness's home, with the files of the LifeSpec
        token             0600: so that any worker of this user can reap the life
        origin.json       whose life it is, so that a worker knows its own orphans
        keeper/           the keeper's run directory (see ``keeper/__init__.py``)
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
from harness_durable.errors import BadInput, KeeperGone, SandboxError, SandboxUnavailable, StaleEpoch
from harness_durable.sandbox import ExecResult, FoundLife, Isolation, LifeRef, LifeSpec, Link

from . import commands, launch, processes
from .client import connect, dial
from .link import attach

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
        self._root = root.absolute()
        self._isolation: launch.Isolation = isolation
        self._root.mkdir(parents=True, exist_ok=True, mode=0o700)
        self._host = launch.host(self._root)

    @property
    def name(self) -> str:
        return "local"

    def locate(self, life: str) -> LifeRef:
        """Raises ``BadInput`` for an id that cannot be a directory's name."""
        return LifeRef(life, self.name, str(launch.directory(self._root, life)), self._host)

    def home(self, ref: LifeRef) -> str:
        return str(launch.home(Path(ref.run_dir)))

    async def start(self, spec: LifeSpec, epoch: int) -> tuple[LifeRef, Link]:
        """Also raises ``BadInput`` for a file that would lie outside of ``home``."""
        ref = self.locate(spec.life)
        _attached[ref.life] = ref.run_dir
        try:
            await launch.launch(Path(ref.run_dir), spec, self._isolation)
            return ref, await attach(_run(ref), spec.token, epoch)
        except launch.StartedBefore:
            raise
        except BaseException as error:
            with anyio.CancelScope(shield=True):
                await self.reap(ref, epoch)
            if isinstance(error, OSError):
                raise SandboxUnavailable(f"cannot start a life: {error}; see to {self._root}") from error
            raise

    async def attach(self, ref: LifeRef, epoch: int) -> Link:
        if not self._here(ref):
            raise KeeperGone(f"life {ref.life} ran on {ref.host}; recover the session with a new life")
        link = await attach(_run(ref), _token(ref), epoch)
        _attached[ref.life] = ref.run_dir
        return link

    async def alive(self, ref: LifeRef) -> bool:
        if not self._here(ref):
            return False
        try:
            stream = await connect(_run(ref))
        except KeeperGone:
            return False
        await anyio.aclose_forcefully(stream)
        return True

    async def reap(self, ref: LifeRef, epoch: int | None = None) -> bool:
        if not launch.same_host(ref.host, self._host, boot=False):
            return False
        await self._ask_to_leave(ref, epoch)
        await run_sync(processes.end_life, ref.life, _run(ref))
        await run_sync(launch.remove, Path(ref.run_dir))
        _attached.pop(ref.life, None)
        return True

    async def list_lives(self) -> Sequence[FoundLife]:
        """See ``harness_durable.sandbox.ListsLives``. A directory that does not say whose it is stays."""
        return await run_sync(self._listed)

    def _listed(self) -> list[FoundLife]:
        found: list[FoundLife] = []
        for mark in self._root.glob("*/origin.json"):
            try:
                about: dict[str, str] = json.loads(mark.read_bytes())
                found.append(FoundLife(self.locate(mark.parent.name), about["session"], about["origin"]))
            except (OSError, ValueError, KeyError, BadInput):
                continue  # being made or removed just now, or none of ours
        return found

    async def exec(
        self,
        argv: tuple[str, ...],
        *,
        cwd: Path,
        env: Mapping[str, str],
        stdin: bytes = b"",
        timeout: float,
    ) -> ExecResult:
        try:
            return await commands.run(
                argv, cwd=cwd, env=env, stdin=stdin, timeout=timeout, scratch=self._root
            )
        except OSError as error:
            raise SandboxUnavailable(f"cannot run {argv[0]!r}: {error}; see to {self._root}") from error

    async def isolation(self) -> Isolation:
        """See ``harness_durable.sandbox.TellsIsolation``."""
        life, token = f"check-{uuid.uuid4().hex[:12]}", uuid.uuid4().hex
        spec = LifeSpec(life, life, (shutil.which("sleep") or "/bin/sleep", "0"), {}, "/", {}, token, ttl=60)
        ref, link = await self.start(spec, 1)
        try:
            about: dict[str, str] = json.loads(await anyio.Path(_run(ref) / "keeper.json").read_bytes())
        finally:
            with anyio.CancelScope(shield=True):
                await link.aclose()
                await self.reap(ref)
        kind = about["isolation"]
        firm, sentence = _KINDS.get(kind, (False, f"isolation of the kind {kind!r}"))
        return Isolation(kind, firm, sentence)

    async def aclose(self) -> None:
        """Nothing to close: lives go on without us."""

    def _here(self, ref: LifeRef) -> bool:
        return launch.same_host(ref.host, self._host)

    async def _ask_to_leave(self, ref: LifeRef, epoch: int | None) -> None:
        """The orderly way. Whether it worked is found out by looking; a keeper of an earlier version heeds no
        epoch. Raises ``StaleEpoch``."""
        under = {} if epoch is None else {"epoch": epoch}
        try:
            stream, _ = await dial(_run(ref), _token(ref), op="shutdown", **under)
        except StaleEpoch:
            raise
        except SandboxError:
            return
        await stream.aclose()


def _run(ref: LifeRef) -> Path:
    return Path(ref.run_dir) / "keeper"


def _token(ref: LifeRef) -> str:
    try:
        return (Path(ref.run_dir) / "token").read_text()
    except OSError as error:
        raise KeeperGone(f"life {ref.life} is gone; recover the session with a new life") from error


def kill_life(ref: LifeRef) -> None:
    """For tests: the keeper dies by SIGKILL, and with it all that it holds. Blocks until it is so."""
    processes.end_life(ref.life, _run(ref))


def _on_death(death: crashpoints.Death) -> None:
    if death == "worker":
        return
    for life, run_dir in _attached.items():
        processes.end_life(life, Path(run_dir) / "keeper")
        if death == "machine":
            shutil.rmtree(run_dir, ignore_errors=True)


crashpoints.on_death(_on_death)
