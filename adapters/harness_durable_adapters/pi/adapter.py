"""``Pi``: the adapter as the driver sees it."""

from __future__ import annotations

from collections.abc import Mapping

from harness_durable.adapter import Capabilities, Launch, LifeContext, TurnEnd
from harness_durable.events import ReplayPolicy
from harness_durable.sandbox import Link

from ..common.adapter import Pinnable
from ..common.proof import Proofs, self_test_of
from .drive import drive
from .gate import READS
from .install import PINNED
from .launch import SETTINGS
from .prepare import prepare


class Pi(Pinnable):
    """Implements ``harness_durable.adapter.Adapter``."""

    pinned = PINNED
    proofs = Proofs(PINNED, self_test_of(__name__))
    settings = (SETTINGS,)

    @property
    def wire(self) -> str:
        return "anthropic"

    @property
    def capabilities(self) -> Capabilities:
        # Our extension is asked for every tool, and a call that it does not let pass is not run.
        return Capabilities(
            steer=True, stop=True, custom_tools=True, subagents=False, exact=None, supplies=True
        )

    @property
    def policies(self) -> Mapping[str, ReplayPolicy]:
        return dict.fromkeys(READS, "safe")

    async def prepare(self, ctx: LifeContext) -> Launch:
        return await prepare(ctx)

    async def drive(self, ctx: LifeContext, link: Link) -> TurnEnd:
        return await drive(ctx, link)
