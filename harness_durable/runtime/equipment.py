"""What a worker brings along: adapters, sandboxes, tools, and the way to the model provider."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import cast
from urllib.parse import urlsplit

from harness_durable import clock, registry
from harness_durable.adapter import Adapter, NamesModel
from harness_durable.errors import BadSetting, BadTool, UsageError, WorkspaceMissing
from harness_durable.events import ASK, AgentSpec, ReplayPolicy
from harness_durable.gateway import Classify, Kind, Upstream, WayOut, Wire, wire
from harness_durable.recovery import Facts
from harness_durable.sandbox import Installs, LifeRef, Sandbox, TakesOptions
from harness_durable.settings import Settings
from harness_durable.state import Life, Session
from harness_durable.tools import Tool
from harness_durable.workspace.limits import Limits
from harness_durable.worlds import origin, places

REAL_PROVIDERS = {"anthropic.com": "ANTHROPIC_API_KEY", "openai.com": "OPENAI_API_KEY"}
"""Hosts below them answer nobody who has no key. Others may: proxies, local models."""


@dataclass
class Equipment:
    """Adapters and sandboxes are made once, by name, on first use. Close it when the worker is done.
    ``rollback``: sessions whose files go back to the last recorded step before their turn goes on."""

    settings: Settings
    tools: Sequence[Tool] = ()
    _adapters: dict[str, Adapter] = field(default_factory=dict[str, Adapter])
    _sandboxes: dict[str, Sandbox] = field(default_factory=dict[str, Sandbox])
    rollback: set[str] = field(default_factory=set[str])

    def adapter(self, name: str) -> Adapter:
        """Raises ``UnknownName``."""
        if name not in self._adapters:
            self._adapters[name] = cast(Adapter, registry.load("adapter", name)())
        return self._adapters[name]

    def sandbox(self, name: str) -> Sandbox:
        """Raises ``UnknownName``."""
        if name not in self._sandboxes:
            self._sandboxes[name] = cast(Sandbox, registry.load("sandbox", name)(self.settings.run_dir))
        return self._sandboxes[name]

    def sandbox_options(self, name: str, given: Mapping[str, str]) -> dict[str, str]:
        """All options of an agent's sandbox: those given, those of the settings, its defaults. Raises
        ``UnknownName``, and ``BadSetting`` for one that it does not know."""
        known = self._sandboxes.get(name) or registry.load("sandbox", name)
        if hasattr(known, "complete"):  # else it need not be made, where nothing is driven
            return cast(TakesOptions, self.sandbox(name)).complete({**self.settings.sandbox_options, **given})
        if given:
            raise BadSetting(f"the sandbox {name} takes no options ({', '.join(given)}); leave them out")
        return {}

    def settled_options(self, agent: AgentSpec) -> dict[str, str]:
        """The same for a new session, with what depends on its workspace. Raises ``BadSetting``."""
        sandbox = self.sandbox(agent.sandbox)
        if isinstance(sandbox, TakesOptions) and agent.files != "scratch":
            return sandbox.complete(agent.sandbox_options, self.place(agent))
        return agent.sandbox_options

    async def check_sandbox(self, agent: AgentSpec) -> None:
        """Before a message is accepted that only a life could work on. Raises ``BadSetting`` or
        ``SandboxUnavailable``."""
        sandbox = self.sandbox(agent.sandbox)
        if isinstance(sandbox, Installs):
            await sandbox.ready(agent.sandbox_options)

    def way_out(self, agent: AgentSpec) -> WayOut | None:
        """What the gateway lets a session's harness reach beside the model."""
        sandbox = self.sandbox(agent.sandbox)
        return WayOut(sandbox.allowed(agent.sandbox_options)) if isinstance(sandbox, TakesOptions) else None

    @cached_property
    def hidden(self) -> tuple[str, ...]:
        """What no harness behind a wall may see, even if it lies in its workspace: logs, and lives."""
        kept: tuple[Path, ...] = ()
        with suppress(UsageError):  # of a World that was not opened by this name
            kept = places(self.settings.world)
        return tuple(str(path.expanduser().resolve()) for path in (self.settings.run_dir, *kept))

    def model(self, adapter: str) -> str:
        """The model of a new session for which nobody names one: the setting, or else the adapter's own."""
        named = self.adapter(adapter)
        given = "model" in self.settings.model_fields_set
        return named.model if isinstance(named, NamesModel) and not given else self.settings.model

    @cached_property
    def origin(self) -> str:
        """Whose lives ours are: see ``LifeSpec``."""
        return origin(self.settings.world, self.settings.app)

    def sandboxes(self) -> list[str]:
        """The names of those in use, of the one that new sessions use, and of those that may have lives on
        this host, from whenever they were used. One that needs an engine is left in peace if it has none."""
        run_dir = self.settings.run_dir
        here = [name for name in registry.known("sandbox") if _has_lives(run_dir / name)]
        return list(dict.fromkeys((*self._sandboxes, self.settings.sandbox, registry.IN_RUN_DIR, *here)))

    def place(self, agent: AgentSpec) -> str:
        """Where a session's workspace is on this host, as an absolute path. Raises ``WorkspaceMissing`` if
        only another worker can know."""
        name, root = agent.workspace, self.settings.workspaces
        if Path(name).is_absolute():
            return name
        if root is None:
            raise WorkspaceMissing(
                f"the workspace {name} lies in a folder that each host has for itself; start the worker with "
                "HARNESS_DURABLE_WORKSPACES=FOLDER"
            )
        return str(root.resolve() / name)

    def named(self, workspace: Path) -> str:
        """What a new session calls a workspace of this host: its place below our folder of workspaces, else
        its absolute path."""
        found, root = workspace.resolve(), self.settings.workspaces
        inside = root is not None and found.is_relative_to(root.resolve())
        return str(found.relative_to(root.resolve()) if root is not None and inside else found)

    def beside(self, session: str) -> Path:
        """What this host keeps beside the log of a session: nothing that it could not do without."""
        return self.settings.run_dir / "sessions" / self.origin / session

    def limits(self) -> Limits:
        """What of a workspace is saved. What is ours and may lie in it never is."""
        given, ours = self.settings, (*places(self.settings.world), self.settings.run_dir)
        return Limits(
            ignored=given.workspace_ignored,
            include=given.workspace_include,
            exclude=given.workspace_exclude,
            git=given.workspace_git,
            max_file=given.workspace_max_file,
            max_total=given.workspace_max_total,
            max_files=given.workspace_max_files,
            max_step=given.workspace_max_step,
            timeout=given.workspace_timeout_seconds,
            outside=tuple(path.expanduser().resolve() for path in ours),
        )

    def check_provider(self) -> None:
        """Before anything starts: raises ``BadSetting`` for a provider that cannot be asked."""
        upstream = self.upstream(wire(self.adapter(self.settings.adapter).wire))
        where = urlsplit(upstream.base_url).hostname or ""
        variable = next((name for host, name in REAL_PROVIDERS.items() if where.endswith(host)), None)
        credentials = {"x-api-key", "authorization"} & {name.lower() for name in upstream.headers}
        if upstream.auth == "key" and not upstream.key and not credentials and variable is not None:
            raise BadSetting(
                f"no key for {where}: set {variable} (or HARNESS_DURABLE_UPSTREAM_KEY), name another "
                "provider with HARNESS_DURABLE_UPSTREAM_URL, or let the harness use a login of its own with "
                "HARNESS_DURABLE_UPSTREAM_AUTH=login"
            )

    def upstream(self, speaks: Wire) -> Upstream:
        """Where model calls of a wire go. Raises ``BadSetting`` for a URL, a key or a header that cannot
        work."""
        url, key = self.settings.upstream_url, self.settings.upstream_key
        if speaks.name.startswith("openai-"):
            url, key = self.settings.openai_url, self.settings.openai_key
        return Upstream(
            base_url=url,
            version=speaks.version,
            key=key.get_secret_value() if key is not None else None,
            headers=self.settings.upstream_headers,
            auth=self.settings.upstream_auth,
        )

    def check_tools(self, agent: AgentSpec) -> None:
        """Raises ``BadTool`` if the session was made with tools that this worker does not have: an agent must
        be the same after every recovery."""
        missing = sorted(set(agent.custom_tools) - {tool.name for tool in self.tools})
        if missing:
            raise BadTool(
                f"the session was made with the tools {', '.join(missing)}, which this worker does not have; "
                "name their file with --tools, or pass them to agent(tools=...)"
            )

    def policies(self, agent: AgentSpec) -> dict[str, ReplayPolicy]:
        """Today's policies by the names that the model sees. A tool that is not listed is ``never``."""
        adapter = self.adapter(agent.adapter)
        policies: dict[str, ReplayPolicy] = {**adapter.policies, **agent.policies}
        for tool in self.tools:
            policies[adapter.custom_name(tool.name)] = tool.replay
        return policies

    def classifier(self, agent: AgentSpec) -> Classify:
        """What the gateway must know of a tool. One that holds a loop counts as exact: its own calls pass the
        barrier one by one."""
        adapter, policies = self.adapter(agent.adapter), self.policies(agent)
        custom = {adapter.custom_name(tool.name) for tool in self.tools}
        exact = adapter.capabilities.exact

        def classify(name: str) -> Kind:
            policy = policies.get(name, "never")
            if name in custom:
                return Kind(policy, "custom", True)
            return Kind(policy, "builtin", exact is None or name in exact or name in adapter.containers)

        return classify

    async def facts(self, state: Session, *, rival: bool = False, now: int = 0) -> Facts:
        """What recovery must know beside the log: is the keeper alive, what are today's policies. ``rival``:
        the worker before us may still be alive. ``now``: the store's time (ms), as far as it is known."""
        if state.agent is None:
            return Facts(False)
        adapter, sandbox = self.adapter(state.agent.adapter), self.sandbox(state.agent.sandbox)
        return Facts(
            keeper_alive=state.life is not None and await sandbox.alive(ref_of(state.life)),
            policies=self.policies(state.agent),
            probes=frozenset(adapter.custom_name(tool.name) for tool in self.tools if tool.probe is not None),
            containers=adapter.containers,
            asks=state.agent.permission_mode == ASK,
            rival=rival,
            now=max(clock.now_ms(), now),
            supplies=adapter.capabilities.supplies,
        )

    async def aclose(self) -> None:
        for sandbox in self._sandboxes.values():
            await sandbox.aclose()


def _has_lives(folder: Path) -> bool:
    try:
        return any(entry.is_dir() for entry in folder.iterdir())
    except OSError:
        return False


def ref_of(life: Life) -> LifeRef:
    """Where a life of the log is."""
    return LifeRef(life.id, life.sandbox, life.run_dir, life.host)
