"""The Docker sandbox: a wall around each life.

A life is a container without a network, of no rights beyond an ordinary user's, with a root file system that
cannot be written, its keeper as process 1. Its way out is the keeper's relay, through a socket in the run
directory: to the model, and to hosts that its session allows. It sees its home, its workspace and the
harness's program, each under the path it has on this host. The engine must be this machine's.
"""

from __future__ import annotations

import shutil
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from pathlib import Path

import anyio
from anyio.to_thread import run_sync

from harness_durable import crashpoints
from harness_durable.allowlist import AllowList
from harness_durable.errors import SandboxUnavailable
from harness_durable.gateway import WayOut
from harness_durable.sandbox import (
    Ending,
    ExecResult,
    Finding,
    FoundLife,
    LifeRef,
    LifeSpec,
    Link,
)

from .. import layout
from ..link import attach
from ..lives import Lives, run_of
from . import commands, container, health, image
from .ending import by_whom, ending, is_leaving
from .engine import Engine, Refused
from .life import begin, hand_over, remove, settled
from .options import Options, options, words

TIDY_SECONDS = 10.0
"""How long is waited for an engine that hangs, when we have to go and something is left to be removed."""

_attached: dict[str, str] = {}  # container -> run_dir: all that this process holds, for the crash suite


class DockerSandbox:
    """``run_dir`` is where all sandboxes of this host keep what they have; it must be on a local file system.
    ``defaults`` are options for lives of which nobody said any."""

    def __init__(self, run_dir: Path, defaults: Mapping[str, str] | None = None) -> None:
        self._lives = Lives(run_dir / "docker", "docker")
        self._root = self._lives.host.rpartition("/")[2]
        self._defaults = dict(defaults or {})
        self._engine = Engine()

    @property
    def name(self) -> str:
        return "docker"

    def locate(self, life: str) -> LifeRef:
        """Raises ``BadInput`` for an id that cannot be a directory's name."""
        return self._lives.locate(life)

    def home(self, ref: LifeRef) -> str:
        return str(layout.home(Path(ref.run_dir)))

    # ------------------------------------------------------------------------------------- options

    def complete(self, options: Mapping[str, str], workspace: str = "") -> dict[str, str]:
        """See ``harness_durable.sandbox.TakesOptions``. The user is settled here, too: a workspace that is
        made anew later has no other owner."""
        found = words(self._options(options))
        if workspace:
            found["user"] = "{}:{}".format(*container.user_for(workspace, self._options(options)))
        return found

    def allowed(self, options: Mapping[str, str]) -> AllowList:
        """See ``harness_durable.sandbox.TakesOptions``."""
        return self._options(options).hosts

    async def hand_over(self, workspace: str, options: Mapping[str, str]) -> None:
        """See ``harness_durable.sandbox.GivesFiles``."""
        user = self._options(options).owner or container.SOMEBODY
        await run_sync(hand_over, Path(workspace), user)

    async def ready(self, options: Mapping[str, str]) -> None:
        """See ``harness_durable.sandbox.Installs``."""
        await image.check(self._engine, self._options(options).image)

    async def install(self, options: Mapping[str, str], progress: Callable[[str], None]) -> str:
        """See ``harness_durable.sandbox.Installs``."""
        return await image.install(self._engine, self._options(options).image, progress)

    def _options(self, given: Mapping[str, str]) -> Options:
        return options({**self._defaults, **given})

    # --------------------------------------------------------------------------------------- lives

    async def start(self, spec: LifeSpec, epoch: int) -> tuple[LifeRef, Link]:
        """Also raises ``BadSetting`` for options or a workspace that cannot be used, ``BadInput`` for a file
        that would lie outside of ``home``."""
        ref, wanted = self.locate(spec.life), self._options(spec.options)
        _attached[self._container(ref)] = ref.run_dir
        try:
            await begin(self._engine, Path(ref.run_dir), spec, wanted, self._root)
            return ref, await attach(run_of(ref), spec.token, epoch)
        except layout.StartedBefore:
            raise
        except BaseException as error:
            with anyio.move_on_after(TIDY_SECONDS, shield=True):
                await self._tidy(ref, epoch, error)
            if isinstance(error, OSError):
                raise layout.not_started(error, self._lives.root) from error
            raise

    async def _tidy(self, ref: LifeRef, epoch: int, error: BaseException) -> None:
        """After a start that failed. An engine that cannot be reached now, or hangs, leaves it to the next
        sweep."""
        try:
            await self.reap(ref, epoch)
        except SandboxUnavailable as trouble:
            error.add_note(str(trouble))

    async def attach(self, ref: LifeRef, epoch: int) -> Link:
        link = await attach(run_of(ref), self._lives.token(ref), epoch)
        _attached[self._container(ref)] = ref.run_dir
        return link

    async def alive(self, ref: LifeRef) -> bool:
        return await self._lives.alive(ref)

    async def reap(self, ref: LifeRef, epoch: int | None = None) -> bool:
        """Raises ``SandboxUnavailable`` while the engine cannot be asked: nothing is over before."""
        if not self._lives.ours(ref):
            return False
        await self._lives.ask_to_leave(ref, epoch)
        await remove(self._engine, self._container(ref))
        await run_sync(layout.remove, Path(ref.run_dir))
        _attached.pop(self._container(ref), None)
        return True

    async def ending(self, ref: LifeRef) -> Ending | None:
        """See ``harness_durable.sandbox.TellsEnding``."""
        if not self._lives.here(ref) or (await self._lives.answers(ref) and not is_leaving(run_of(ref))):
            return None
        name = self._container(ref)
        found = ending(run_of(ref), await settled(self._engine, name))
        return found and await by_whom(self._engine, name, found)

    async def list_lives(self) -> Sequence[FoundLife]:
        """See ``harness_durable.sandbox.ListsLives``: also containers whose directory is gone."""
        found = {one.ref.life: one for one in await self._lives.listed()}
        marked = await self._engine.call(
            lambda api: api.containers(all=True, filters=container.of_root(self._root))
        )
        for one in marked:
            name, session, origin = container.whose(one["Labels"])
            found.setdefault(name, FoundLife(self.locate(name), session, origin))
        return list(found.values())

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
        started: list[LifeRef] = []

        async def start(spec: LifeSpec) -> tuple[LifeRef, Link]:
            started.append(self.locate(spec.life))
            return await self.start(spec, 1)

        try:
            return await commands.run(
                start,
                argv,
                cwd=str(cwd),
                env=env,
                stdin=stdin,
                timeout=timeout,
                options=options,
                way_out=WayOut(self.allowed(options)),
            )
        finally:
            with anyio.move_on_after(TIDY_SECONDS, shield=True):
                for ref in started:
                    await self.reap(ref)

    def findings(self, options: Mapping[str, str]) -> AsyncIterator[Finding]:
        """See ``harness_durable.sandbox.ChecksItself``."""
        return health.findings(self, self._engine, self._options(options))

    async def aclose(self) -> None:
        """Nothing to close: lives go on without us."""

    def _container(self, ref: LifeRef) -> str:
        return container.name_of(self._root, ref.life)


def kill_life(name: str) -> None:
    """For tests: SIGKILL to all that a container holds. Blocks until it is so."""
    engine = Engine()
    try:
        engine.ask(lambda api: api.kill(name))
        while engine.ask(lambda api: api.inspect_container(name))["State"]["Running"]:
            pass
    except Refused:
        return  # it was not running


def _on_death(death: crashpoints.Death) -> None:
    if death == "worker":
        return
    for name, run_dir in _attached.items():
        kill_life(name)
        if death == "machine":
            shutil.rmtree(run_dir, ignore_errors=True)


crashpoints.on_death(_on_death)
