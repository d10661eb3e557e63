"""What a worker brings along: adapters, sandboxes, tools, and the way to the model provider."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import cast

from harness_durable import registry
from harness_durable.adapter import Adapter
from harness_durable.gateway import Upstream
from harness_durable.sandbox import Sandbox
from harness_durable.settings import Settings
from harness_durable.tools import Tool


@dataclass
class Equipment:
    """Adapters and sandboxes are made once, by name, on first use. Close it when the worker is done."""

    settings: Settings
    tools: Sequence[Tool] = ()
    _adapters: dict[str, Adapter] = field(default_factory=dict[str, Adapter])
    _sandboxes: dict[str, Sandbox] = field(default_factory=dict[str, Sandbox])

    def adapter(self, name: str) -> Adapter:
        if name not in self._adapters:
            self._adapters[name] = cast(Adapter, registry.load("adapter", name)())
        return self._adapters[name]

    def sandbox(self, name: str) -> Sandbox:
        if name not in self._sandboxes:
            self._sandboxes[name] = cast(Sandbox, registry.load("sandbox", name)(self.settings.run_dir))
        return self._sandboxes[name]

    def upstream(self) -> Upstream:
        key = self.settings.upstream_key
        return Upstream(
            base_url=self.settings.upstream_url,
            key=key.get_secret_value() if key is not None else None,
            headers=self.settings.upstream_headers,
            auth=self.settings.upstream_auth,
        )

    async def aclose(self) -> None:
        for sandbox in self._sandboxes.values():
            await sandbox.aclose()
