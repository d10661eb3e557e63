"""The contract of a sandbox: a place in which a harness runs, under a keeper.

A sandbox starts *lives*. One life is one keeper process and the harness that it holds. The worker talks
to the life through a :class:`Link` (see below); the worker may die without the life noticing.

Who calls what: the driver calls ``start`` once per life, ``attach`` after a takeover, ``alive`` while it
plans a recovery, ``reap`` before it starts a new life (the old one must be gone) and when a turn is over.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from pathlib import Path
from typing import Literal, Protocol, runtime_checkable

import msgspec
from anyio.abc import ByteStream

from harness_durable.allowlist import AllowList


class LifeRef(msgspec.Struct, frozen=True):
    """Where a life is. It goes into the log, so that any worker of the same host can find the life. ``host``
    tells this place from every other in which a life may be: the machine, its boot, its folder of lives."""

    life: str
    sandbox: str
    run_dir: str
    host: str


Content = bytes | Callable[[], AsyncIterator[bytes]]
"""What a file of a life holds: all of it; or, for one that may be larger than the memory, a function that
gives it piece by piece. It is called once. What it raises comes out of ``start`` as it is."""


class LifeSpec(msgspec.Struct, frozen=True):
    """How to start a harness. ``@PORT@`` in argv, env values and file texts becomes the relay's port.

    ``@HOME@`` in the same places and in ``cwd`` becomes the absolute path of ``home``, as the harness
    sees it; nothing is set by itself (give ``HOME=@HOME@``).
    ``files`` are written below ``home`` before the start (relative path -> content). Nothing is filled into a
    content that comes in pieces. ``token`` is this
    life's credential for the keeper's control socket. ``ttl`` is in seconds: how long a keeper waits,
    detached, before it ends the life by itself. ``origin`` stands for the World and the app that the life
    belongs to; it is kept with the life, for ``ListsLives``.

    A sandbox that is a wall shows the life no more of this host than ``workspace``, the folder that is worked
    on, and, not to be changed, what ``reads`` names: the harness's program. All are absolute, and the same
    inside. Of the workspace it keeps back what ``hidden`` names: logs, other lives. ``options`` are the
    session's, as ``TakesOptions.complete`` gave them.
    """

    life: str
    session: str
    argv: tuple[str, ...]
    env: Mapping[str, str]
    cwd: str
    files: Mapping[str, Content]
    token: str
    ttl: float = 3600.0
    origin: str = ""
    workspace: str = ""
    reads: tuple[str, ...] = ()
    hidden: tuple[str, ...] = ()
    options: Mapping[str, str] = {}


class Exit(msgspec.Struct, frozen=True):
    """How the harness ended: exit code (negative: a signal), oom kills counted, and why in a word."""

    code: int
    oom_kills: int = 0
    why: str = ""


class Request(Protocol):
    """One connection that the harness opened to its relay: a model call, usually.

    If the worker dies before it wrote a byte, the keeper holds the request for the next worker; if it
    dies after, the harness sees a reset. ``done`` says that the answer is complete.
    """

    @property
    def id(self) -> int: ...
    @property
    def stream(self) -> ByteStream: ...
    async def done(self) -> None: ...


class Link(Protocol):
    """A worker's hold on a life, under one epoch. Every method raises ``KeeperGone`` when the life's
    keeper is no longer there and ``StaleEpoch`` when a newer worker has attached."""

    @property
    def token(self) -> str:
        """The life's credential, as in its ``LifeSpec``."""
        ...

    @property
    def exit(self) -> Exit | None:
        """Set once the harness has ended; its spooled output can still be read."""
        ...

    @property
    def stdin_offset(self) -> int:
        """Bytes ever accepted for the harness's standard input."""
        ...

    async def said(self) -> bytes:
        """All that any worker ever wrote to the harness's standard input in this life."""
        ...

    async def write(self, frame: bytes) -> None:
        """One whole frame for the harness's standard input: written wholly or not at all, after what
        this worker wrote before. A worker that was superseded writes nothing."""
        ...

    def output(self, offset: int = 0) -> AsyncIterator[tuple[int, bytes]]:
        """Chunks of standard output from ``offset``, each with the offset after it; follows until the
        harness has ended and everything was read."""
        ...

    async def errors(self, tail: int = 4096) -> bytes:
        """The last ``tail`` bytes of standard error."""
        ...

    def requests(self) -> AsyncIterator[Request]:
        """Connections to the relay, first those that were held, then new ones."""
        ...

    async def dial(self, port: int) -> ByteStream:
        """A connection to 127.0.0.1:``port`` as the harness sees it, for one that is spoken with over a
        server of its own. It ends at once if nobody listens there."""
        ...

    async def pid(self) -> int:
        """The harness's pid, as its keeper sees it."""
        ...

    async def shutdown(self) -> None:
        """Kill everything in the life, let the keeper leave, wait until both are gone."""
        ...

    async def aclose(self) -> None:
        """Detach; the life goes on."""
        ...


class ExecResult(msgspec.Struct, frozen=True):
    """``returncode`` is negative for a signal; ``timed_out`` says that we killed it."""

    returncode: int
    stdout: bytes
    stderr: bytes
    timed_out: bool = False


class Isolation(msgspec.Struct, frozen=True):
    """How a life is held. ``firm``: whatever becomes of its keeper, nothing of the life outlives it."""

    kind: str
    firm: bool
    sentence: str


@runtime_checkable
class TellsIsolation(Protocol):
    """What a sandbox may offer beside the contract. Called by ``doctor``."""

    async def isolation(self) -> Isolation:
        """What lives get on this machine, found out with one that does nothing. Raises ``SandboxError``."""
        ...


@runtime_checkable
class TakesOptions(Protocol):
    """What a sandbox may offer beside the contract. One without it takes no options."""

    def complete(self, options: Mapping[str, str], workspace: str = "") -> dict[str, str]:
        """The options of a new session, all of them: what is not given gets its default, so that the session
        stays the same whatever the defaults become. ``workspace`` is its folder on this host, if it is known;
        there need be none yet. Raises ``BadSetting`` for what it does not know, or cannot work on."""
        ...

    def allowed(self, options: Mapping[str, str]) -> AllowList:
        """The hosts that lives with these options may reach, beside the model. Those of others than the empty
        list send their requests for them to the relay, as to an HTTP proxy; the gateway lets them out."""
        ...


@runtime_checkable
class GivesFiles(Protocol):
    """What a sandbox may offer beside the contract, if its harness is another user than the worker."""

    async def hand_over(self, workspace: str, options: Mapping[str, str]) -> None:
        """The worker has made files there, while no life is on: give them to whom the harness will be."""
        ...


@runtime_checkable
class NamesProcesses(Protocol):
    """What a sandbox may offer beside the contract, if its processes are processes of this host."""

    def acting(self, ref: LifeRef) -> Sequence[int]:
        """The pids, on this host, of all that acts in a life now. Called from threads, after each call that
        may have changed files; blocks for milliseconds. Raises nothing."""
        ...


@runtime_checkable
class Installs(Protocol):
    """What a sandbox may offer beside the contract, if lives need more than is there from the beginning."""

    async def ready(self, options: Mapping[str, str]) -> None:
        """Before a session is made. Raises ``BadSetting`` with the command that helps, if lives with these
        options could not be started; ``SandboxUnavailable`` if nobody can know."""
        ...

    async def install(self, options: Mapping[str, str], progress: Callable[[str], None]) -> str:
        """Fetch or make what is missing; a sentence about what is there now. ``progress`` is told a line per
        step. Called by ``harness-durable install``. Raises ``BadSetting`` or ``SandboxUnavailable``."""
        ...


class Ending(msgspec.Struct, frozen=True):
    """What became of a life whose keeper is gone. ``why`` is a word: killed, removed, stopped, oom, …"""

    why: str
    sentence: str
    oom_kills: int = 0


@runtime_checkable
class TellsEnding(Protocol):
    """What a sandbox may offer beside the contract, if it can tell deaths apart. Asked before ``reap``."""

    async def ending(self, ref: LifeRef) -> Ending | None:
        """How the life ended; None if nothing is known. Raises ``SandboxUnavailable``."""
        ...


class Finding(msgspec.Struct, frozen=True):
    """One line of ``doctor``; for a failure, ``sentence`` says what to do."""

    about: str
    state: Literal["ok", "warn", "fail"]
    sentence: str


@runtime_checkable
class ChecksItself(Protocol):
    """What a sandbox may offer beside the contract."""

    def findings(self, options: Mapping[str, str]) -> AsyncIterator[Finding]:
        """What ``doctor`` says of this sandbox on this machine. Raises nothing."""
        ...


class FoundLife(msgspec.Struct, frozen=True):
    """A life of this host, whether it still runs or only its directory is left; ``session`` and ``origin`` as
    in its ``LifeSpec``."""

    ref: LifeRef
    session: str
    origin: str


@runtime_checkable
class ListsLives(Protocol):
    """What a sandbox may offer beside the contract: then workers end lives that nobody will come back for.
    Elsewhere such a life waits for its ``ttl``."""

    async def list_lives(self) -> Sequence[FoundLife]:
        """All lives that are here, of any World and app. Raises ``SandboxUnavailable``."""
        ...


class Sandbox(Protocol):
    """``SandboxUnavailable`` from any method means that the machinery failed, not the command."""

    @property
    def name(self) -> str: ...

    def locate(self, life: str) -> LifeRef:
        """Where a life of that id will be, or is, on this host. Nothing is created: the driver logs it before
        it starts the life, so that whoever comes after a crash knows what to end."""
        ...

    def home(self, ref: LifeRef) -> str:
        """The absolute path of a life's home, as its harness sees it: what ``@HOME@`` stands for."""
        ...

    async def start(self, spec: LifeSpec, epoch: int) -> tuple[LifeRef, Link]:
        """Start a life and attach to it. Raises ``HarnessMissing`` if argv[0] cannot be started."""
        ...

    async def attach(self, ref: LifeRef, epoch: int) -> Link:
        """Attach to a running life; its token is read from the run directory, since the log must not hold
        it. Raises ``KeeperGone`` or ``StaleEpoch``."""
        ...

    async def alive(self, ref: LifeRef) -> bool:
        """True while the life's keeper is there and reachable from this host."""
        ...

    async def reap(self, ref: LifeRef, epoch: int | None = None) -> bool:
        """Make sure that nothing of this life acts any more, and delete its run directory and home. True when
        it is so, also for a life that was gone already. False for a life that cannot be reached from here,
        because it was on another machine: it can pay for nothing any more, and ends itself after its ``ttl``.

        Raises ``StaleEpoch``, and does nothing, if a worker newer than ``epoch`` has attached to it: to ask
        the log first would not do, as one may do so in between. A keeper that does not answer serves nobody.
        Without an epoch (a life that the log has done with) it is ended in any case.
        """
        ...

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
        """Run one command to its end, in no life: with what a life gets that works on ``cwd`` with these
        ``options``, and nothing of any other. Past ``timeout`` seconds it and its children are killed."""
        ...

    async def aclose(self) -> None: ...
