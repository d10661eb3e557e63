"""``OpenCode``: the adapter as the driver sees it."""

from __future__ import annotations

from collections.abc import Mapping

from harness_durable.adapter import Capabilities, Launch, LifeContext, TurnEnd
from harness_durable.events import ReplayPolicy
from harness_durable.sandbox import Link

from ..common.adapter import Pinnable
from ..common.proof import Proofs, self_test_of
from .drive import drive
from .events import CONTAINERS
from .gate import READS
from .install import PINNED
from .launch import VARIABLES
from .prepare import prepare


class OpenCode(Pinnable):
    """Implements ``harness_durable.adapter.Adapter``."""

    pinned = PINNED
    proofs = Proofs(PINNED, self_test_of(__name__))
    settings = VARIABLES

    @property
    def wire(self) -> str:
        return "openai-chat"

    @property
    def capabilities(self) -> Capabilities:
        # The plugin is asked for every tool, and without it in place a life gets no answer: see ``drive``.
        return Capabilities(steer=True, stop=True, custom_tools=True, subagents=True, exact=None)

    @property
    def policies(self) -> Mapping[str, ReplayPolicy]:
        return dict.fromkeys(READS | CONTAINERS, "safe")

    @property
    def containers(self) -> frozenset[str]:
        return CONTAINERS

    async def prepare(self, ctx: LifeContext) -> Launch:
        return await prepare(ctx)

    async def drive(self, ctx: LifeContext, link: Link) -> TurnEnd:
        return await drive(ctx, link)
