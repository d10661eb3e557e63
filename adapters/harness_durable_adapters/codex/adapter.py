"""``Codex``: the adapter as the driver sees it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from harness_durable.adapter import Capabilities, Harness, Launch, LifeContext, TurnEnd
from harness_durable.events import ReplayPolicy
from harness_durable.sandbox import Link

from ..common.naming import custom_tool
from ..common.proof import Proofs
from . import install
from .drive import drive
from .gate import EXACT
from .launch import ASK, IMAGE, MODEL
from .prepare import prepare
from .selftest import self_test

PROOFS = Proofs(install.NAME, install.is_supported, self_test)


class Codex:
    """Implements ``harness_durable.adapter.Adapter``."""

    @property
    def name(self) -> str:
        return install.NAME

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
    def containers(self) -> frozenset[str]:
        return frozenset()

    def custom_name(self, tool: str) -> str:
        return custom_tool(tool)

    @property
    def versions(self) -> tuple[str, ...]:
        return install.SUPPORTED

    @property
    def model(self) -> str:
        return MODEL

    @property
    def variables(self) -> tuple[str, ...]:
        return (install.BINARY, install.ANY_VERSION)

    async def install(self, version: str | None, progress: Callable[[str], None]) -> Harness:
        return await install.install(version, progress)

    async def check(self) -> Sequence[str]:
        return await PROOFS.prove(await install.find())

    async def find(self, version: str | None = None) -> Harness:
        found = await install.find(version)
        await PROOFS.refuse_unproven(found)
        return found

    async def prepare(self, ctx: LifeContext) -> Launch:
        return await prepare(ctx)

    async def drive(self, ctx: LifeContext, link: Link) -> TurnEnd:
        return await drive(ctx, link)
