"""``ClaudeCode``: the adapter as the driver sees it."""

from __future__ import annotations

from collections.abc import Mapping

from harness_durable.adapter import Capabilities, Launch, LifeContext, TurnEnd
from harness_durable.events import ReplayPolicy
from harness_durable.sandbox import Link

from ..common.adapter import Pinnable
from .drive import drive
from .gate import CONTAINERS, READS
from .install import PINNED
from .launch import PASSED_ON
from .naming import custom_tool
from .prepare import prepare
from .proof import PROOFS


class ClaudeCode(Pinnable):
    """Implements ``harness_durable.adapter.Adapter``."""

    pinned = PINNED
    proofs = PROOFS
    settings = PASSED_ON

    @property
    def wire(self) -> str:
        return "anthropic"

    @property
    def capabilities(self) -> Capabilities:
        # The hook is asked for every tool, and nothing is allowed without it: see ``launch``.
        return Capabilities(steer=True, stop=True, custom_tools=True, subagents=True, exact=None)

    @property
    def policies(self) -> Mapping[str, ReplayPolicy]:
        return dict.fromkeys(READS | CONTAINERS, "safe")

    @property
    def containers(self) -> frozenset[str]:
        return CONTAINERS

    def custom_name(self, tool: str) -> str:
        return custom_tool(tool)

    async def prepare(self, ctx: LifeContext) -> Launch:
        return await prepare(ctx)

    async def drive(self, ctx: LifeContext, link: Link) -> TurnEnd:
        return await drive(ctx, link)
