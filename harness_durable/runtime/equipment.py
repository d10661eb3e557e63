"""What a worker brings along: adapters, sandboxes, tools, and the way to the model provider."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import cast
from urllib.parse import urlsplit

from harness_durable import registry
from harness_durable.adapter import Adapter
from harness_durable.errors import BadSetting, BadTool
from harness_durable.events import ASK, AgentSpec, ReplayPolicy, ToolOrigin
from harness_durable.gateway import Upstream
from harness_durable.recovery import Facts
from harness_durable.sandbox import LifeRef, Sandbox
from harness_durable.settings import Settings
from harness_durable.state import Life, Session
from harness_durable.tools import Tool

REAL_PROVIDER = "anthropic.com"
"""Hosts below it answer nobody who has no key. Others may: proxies, local models."""


@dataclass
class Equipment:
    """Adapters and sandboxes are made once, by name, on first use. Close it when the worker is done."""

    settings: Settings
    tools: Sequence[Tool] = ()
    _adapters: dict[str, Adapter] = field(default_factory=dict[str, Adapter])
    _sandboxes: dict[str, Sandbox] = field(default_factory=dict[str, Sandbox])

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

    def check_provider(self) -> None:
        """Before anything starts: raises ``BadSetting`` for a provider that cannot be asked."""
        upstream, where = self.upstream(), urlsplit(self.settings.upstream_url).hostname or ""
        credentials = {"x-api-key", "authorization"} & {name.lower() for name in upstream.headers}
        if upstream.auth == "key" and not upstream.key and not credentials and where.endswith(REAL_PROVIDER):
            raise BadSetting(
                f"no key for {where}: set ANTHROPIC_API_KEY (or HARNESS_DURABLE_UPSTREAM_KEY), name another "
                "provider with HARNESS_DURABLE_UPSTREAM_URL, or let the harness use a login of its own with "
                "HARNESS_DURABLE_UPSTREAM_AUTH=login"
            )

    def upstream(self) -> Upstream:
        """Raises ``BadSetting`` for a URL, a key or a header that cannot work."""
        key = self.settings.upstream_key
        return Upstream(
            base_url=self.settings.upstream_url,
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

    def classifier(self, agent: AgentSpec) -> Callable[[str], tuple[ReplayPolicy, ToolOrigin]]:
        """Policy and origin of a tool, for the gateway."""
        adapter, policies = self.adapter(agent.adapter), self.policies(agent)
        custom = {adapter.custom_name(tool.name) for tool in self.tools}
        return lambda name: (policies.get(name, "never"), "custom" if name in custom else "builtin")

    async def facts(self, state: Session, *, rival: bool = False) -> Facts:
        """What recovery must know beside the log: is the keeper alive, what are today's policies. ``rival``:
        the worker before us may still be alive."""
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
        )

    async def aclose(self) -> None:
        for sandbox in self._sandboxes.values():
            await sandbox.aclose()


def ref_of(life: Life) -> LifeRef:
    """Where a life of the log is."""
    return LifeRef(life.id, life.sandbox, life.run_dir, life.host)
