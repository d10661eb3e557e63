"""``Codex``: the adapter as the driver sees it."""

from __future__ import annotations

from collections.abc import Mapping

from harness_durable.adapter import Capabilities, Launch, LifeContext, TurnEnd
from harness_durable.events import ReplayPolicy
from harness_durable.sandbox import Link

from ..common.adapter import Pinnable
from ..common.proof import Proofs, self_test_of
from .drive import drive
from .gate import EXACT
from .install import PINNED
from .launch import ASK, IMAGE, MODEL
from .prepare import prepare


class Codex(Pinnable):
    """Implements ``harness_durable.adapter.Adapter``."""

    pinned = PINNED
    proofs = Proofs(PINNED, self_test_of(__name__))

    @property
    def wire(self) -> str:
        return "openai-responses"

    @property
    def capabilities(self) -> Capabilities:
        return Capabilities(steer=True, stop=True, custom_tools=True, subagents=False, exact=EXACT)

    @property
    def policies(self) -> Mapping[str, ReplayPolicy]:
        return dict.fromkeys((IMAGE, ASK, "update_plan"), "safe")

    @property
    def model(self) -> str:
        return MODEL

    async def prepare(self, ctx: LifeContext) -> Launch:
        return await prepare(ctx)

    async def drive(self, ctx: LifeContext, link: Link) -> TurnEnd:
        return await drive(ctx, link)
