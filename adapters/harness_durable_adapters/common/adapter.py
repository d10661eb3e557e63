"""What every adapter does alike: its binary is found, installed and proven. A class for each harness says the
rest of ``harness_durable.adapter.Adapter``."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from harness_durable.adapter import Harness
from harness_durable.pinned import Pinned

from .naming import custom_tool
from .proof import Proofs


class Pinnable:
    """``settings`` are the environment variables that the adapter reads beside those that name a binary."""

    pinned: Pinned
    proofs: Proofs
    settings: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        return self.pinned.name

    @property
    def versions(self) -> tuple[str, ...]:
        return self.pinned.supported

    @property
    def variables(self) -> tuple[str, ...]:
        return (self.pinned.binary_variable, self.pinned.any_version_variable, *self.settings)

    @property
    def containers(self) -> frozenset[str]:
        return frozenset()

    def custom_name(self, tool: str) -> str:
        return custom_tool(tool)

    async def install(self, version: str | None, progress: Callable[[str], None]) -> Harness:
        return await self.pinned.install(version, progress)

    async def check(self) -> Sequence[str]:
        proof = await self.proofs.prove(await self.pinned.find())
        return (*proof.troubles, *proof.lacks)

    async def find(self, version: str | None = None) -> Harness:
        found = await self.pinned.find(version)
        await self.proofs.refuse_unproven(found)
        return found
