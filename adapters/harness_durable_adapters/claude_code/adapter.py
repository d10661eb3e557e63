"""``ClaudeCode``: the adapter as the driver sees it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from harness_durable.adapter import Capabilities, Harness, Launch, LifeContext, TurnEnd
from harness_durable.events import ReplayPolicy
from harness_durable.sandbox import Link

from . import install
from .drive import drive
from .gate import READS
from .launch import DEFAULT_TOOLS
from .naming import custom_tool
from .prepare import prepare
from .proof import prove, refuse_unproven

CONTAINERS = frozenset({"Agent", "Task"})
"""Tools that hold a loop of their own. Releasing one again is safe: what it does inside is gated call by
call."""


class ClaudeCode:
    """Implements ``harness_durable.adapter.Adapter``."""

    @property
    def name(self) -> str:
        return install.NAME

    @property
    def wire(self) -> str:
        return "anthropic"

    @property
    def capabilities(self) -> Capabilities:
        exact = frozenset(DEFAULT_TOOLS) | CONTAINERS
        return Capabilities(steer=True, stop=True, custom_tools=True, subagents=True, exact=exact)

    @property
    def policies(self) -> Mapping[str, ReplayPolicy]:
        return dict.fromkeys(READS | CONTAINERS, "safe")

    @property
    def containers(self) -> frozenset[str]:
        return CONTAINERS

    def custom_name(self, tool: str) -> str:
        return custom_tool(tool)

    @property
    def versions(self) -> tuple[str, ...]:
        return install.SUPPORTED

    async def install(self, version: str | None, progress: Callable[[str], None]) -> Harness:
        return await install.install(version, progress)

    async def check(self) -> Sequence[str]:
        return await prove(await install.find())

    async def find(self, version: str | None = None) -> Harness:
        found = await install.find(version)
        await refuse_unproven(found)
        return found

    async def prepare(self, ctx: LifeContext) -> Launch:
        return await prepare(ctx)

    async def drive(self, ctx: LifeContext, link: Link) -> TurnEnd:
        return await drive(ctx, link)
