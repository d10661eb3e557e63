"""The contract of an adapter: all that we know about one harness.

The driver (``runtime.driver``) decides *what* happens to a turn; the adapter knows *how* its harness is
told. Per life the driver calls ``prepare`` once (a fresh home, or one rebuilt from the log), starts the
life in a sandbox, and calls ``drive`` once; after a takeover it attaches and calls ``drive`` alone.
Everything an adapter has to remember across a crash is in the log: it keeps nothing on disk and nothing in
memory that it could not lose."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal, Protocol, runtime_checkable

import anyio
import msgspec

from harness_durable.events import AgentSpec, ReplayPolicy, Rung
from harness_durable.gateway.routes import Routes
from harness_durable.sandbox import Content, Link

if TYPE_CHECKING:
    from harness_durable.journal import Journal
    from harness_durable.tools.host import ToolHost


class Harness(msgspec.Struct, frozen=True):
    """An installed harness: its binary and its version. ``needs`` are all files and folders of this host that
    it reads to run: what a sandbox must show it. None: its binary alone."""

    path: str
    version: str
    needs: tuple[str, ...] = ()


class Capabilities(msgspec.Struct, frozen=True):
    """Declared, not discovered by failing. ``exact`` names the built-in tools of which the harness asks us
    before it runs a call, and runs nothing if nobody answers; None: all that it can run. The calls of others
    are released with their response: one that was cut off is unknown even if it never began, and a repeat of
    it cannot be refused. Custom tools are always exact. ``supplies``: in a response that is given again, a
    call that has its outcome gets exactly that instead of running, so that its siblings may still run."""

    steer: bool
    stop: bool
    custom_tools: bool
    subagents: bool
    exact: frozenset[str] | None
    supplies: bool = False


class Launch(msgspec.Struct, frozen=True):
    """How to start the harness: see ``sandbox.LifeSpec`` for ``@PORT@`` and ``files``."""

    argv: tuple[str, ...]
    env: Mapping[str, str]
    files: Mapping[str, Content]


class TurnEnd(msgspec.Struct, frozen=True):
    """How the harness settled the turn. ``code`` is a short word for a failure, such as ``api_401``.
    ``transient``: it failed for a trouble between the harness and the provider that may have passed by now;
    the driver goes on with the turn once before it lets it fail."""

    kind: Literal["completed", "failed", "cancelled"]
    text: str = ""
    code: str = ""
    reason: str = ""
    transient: bool = False


def _unheard(text: str) -> None:
    """Nobody looks."""


@dataclass
class LifeContext:
    """What an adapter works with during one life.

    ``ready`` is set by the adapter once the harness's barrier is in place; the gateway forwards nothing
    before. ``token`` is what the harness must present to the gateway as its API key. ``home`` is where the
    sandbox puts the files of ``Launch``, ``cwd`` the workspace, both absolute and as the harness sees them
    (that of ``agent`` is the session's name for it, the same on all hosts). ``login``: the harness uses a
    login of its own as its key; then ``token`` is the first part of the gateway's path. ``progress`` takes
    words about what the harness waits for just now, for people to see, and returns at once. ``routes`` is for
    a harness that asks about its tools over the relay: a ``drive`` that opens none is asked nothing.
    """

    session: str
    life: str
    turn: str
    rung: Rung
    agent: AgentSpec
    harness: Harness
    journal: Journal
    tools: ToolHost
    token: str
    home: str
    cwd: str
    ready: anyio.Event
    login: bool = False
    progress: Callable[[str], None] = _unheard
    routes: Routes = field(default_factory=Routes)


class Adapter(Protocol):
    """One harness. Stateless: one object serves all sessions of a worker."""

    @property
    def name(self) -> str: ...

    @property
    def wire(self) -> str:
        """Which model API the harness speaks to the gateway, such as ``anthropic``."""
        ...

    @property
    def capabilities(self) -> Capabilities: ...

    @property
    def policies(self) -> Mapping[str, ReplayPolicy]:
        """Replay policies of the built-in tools, by name; a tool that is not listed is ``never``."""
        ...

    @property
    def containers(self) -> frozenset[str]:
        """Built-in tools that hold a loop of their own (subagents)."""
        ...

    def custom_name(self, tool: str) -> str:
        """How the model sees a custom tool of that name."""
        ...

    @property
    def versions(self) -> tuple[str, ...]:
        """Versions of the harness that were tested, the default first."""
        ...

    async def install(self, version: str | None, progress: Callable[[str], None]) -> Harness:
        """Fetch a tested version into the managed folder; ``progress`` is told a line per step. Raises
        ``UnsupportedVersion`` or ``HarnessMissing``."""
        ...

    async def check(self) -> Sequence[str]:
        """Prove on this machine, with the installed binary, what the adapter relies on and no document
        promises. Whole sentences about what does not hold; none if all is well. Used by ``doctor``."""
        ...

    async def find(self, version: str | None = None) -> Harness:
        """The installed binary. Raises ``HarnessMissing`` or ``UnsupportedVersion``, each with the command
        that helps. With ``version``: that one, which a session is pinned to."""
        ...

    async def prepare(self, ctx: LifeContext) -> Launch:
        """Everything needed to start or to continue in a new life. May write to the log what it had to make
        up (``transcript_replaced``). Called by the driver before ``sandbox.start``, after all open calls
        that do not run again have their outcomes."""
        ...

    async def drive(self, ctx: LifeContext, link: Link) -> TurnEnd:
        """Speak with the harness until it has settled the turn: deliver the message and later steers,
        answer its hooks and tool calls, mirror its transcript, interrupt it when the turn's stop was asked
        for.

        Works the same on a fresh life and on one that was attached: it finds out from the log and from
        ``link.said()`` what has been said already. Raises ``HarnessDied``, ``HarnessStuck``, ``KeeperGone``.
        """
        ...


@runtime_checkable
class ReadsVariables(Protocol):
    """What an adapter may offer beside the contract: the environment variables that it reads itself, or
    passes on to its harness. ``doctor`` shows those that are set."""

    @property
    def variables(self) -> Sequence[str]: ...


@runtime_checkable
class NamesModel(Protocol):
    """What an adapter may offer beside the contract, if the usual model is none of its provider's."""

    @property
    def model(self) -> str:
        """The model of new sessions for which nobody names one."""
        ...


__all__: Sequence[str] = (
    "Adapter",
    "Capabilities",
    "Harness",
    "Launch",
    "LifeContext",
    "NamesModel",
    "ReadsVariables",
    "TurnEnd",
)
