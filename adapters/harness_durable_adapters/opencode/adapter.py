"""``OpenCode``: the adapter as the driver sees it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from harness_durable.adapter import Capabilities, Harness, Launch, LifeContext, TurnEnd
from harness_durable.events import ReplayPolicy
from harness_durable.sandbox import Link

from ..common.naming import custom_tool
from . import install
from .drive import drive
from .events import CONTAINERS
from .gate import READS
from .launch import VARIABLES
from .prepare import prepare
from .proof import prove, refuse_unproven


class OpenCode:
    """Implements ``harness_durable.adapter.Adapter``."""

    @property
    def name(self) -> str:
        return install.NAME

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

    def custom_name(self, tool: str) -> str:
        return custom_tool(tool)

    @property
    def versions(self) -> tuple[str, ...]:
        return install.SUPPORTED

    @property
    def variables(self) -> tuple[str, ...]:
        return (install.BINARY, install.ANY_VERSION, *VARIABLES)

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
