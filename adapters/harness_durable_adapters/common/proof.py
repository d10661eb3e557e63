"""What a binary was proven to do on this machine, remembered beside the managed binaries.

Versions that the test-suite runs against need no proof. Any other one is put through the adapter's self-test
at its first use; a barrier that does not block, or a turn that does not go on in its middle, rules it out."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from importlib import import_module
from pathlib import Path

import anyio.to_thread
import msgspec

from harness_durable import harnesses
from harness_durable.adapter import Harness
from harness_durable.errors import UnsupportedVersion
from harness_durable.pinned import Pinned


class Proof(msgspec.Struct, frozen=True):
    """In whole sentences what does not hold; none if all does. ``troubles`` rule the binary out; what it
    ``lacks`` the adapter does without."""

    troubles: tuple[str, ...] = ()
    lacks: tuple[str, ...] = ()


SelfTest = Callable[[Harness], Awaitable[Proof]]


def self_test_of(module: str) -> SelfTest:
    """That beside a module of an adapter. It brings a provider along, so it is imported when it is run."""
    name = f"{module.rpartition('.')[0]}.selftest"

    async def self_test(harness: Harness) -> Proof:
        test: SelfTest = import_module(name).self_test
        return await test(harness)

    return self_test


class Proofs:
    """What the self-test of one adapter found, by binary. ``self_test`` takes some seconds and needs no
    network."""

    def __init__(self, pinned: Pinned, self_test: SelfTest) -> None:
        self._pinned, self._self_test = pinned, self_test

    async def prove(self, harness: Harness) -> Proof:
        """Run the self-test now and remember what it found."""
        proof = await self._self_test(harness)
        await anyio.to_thread.run_sync(self._remember, harness, proof)
        return proof

    async def proof(self, harness: Harness) -> Proof:
        """What is remembered of this binary; the first time, it is proven. Nothing is amiss with a version
        that was tested."""
        if self._pinned.is_supported(harness.version):
            return Proof()
        known = (await anyio.to_thread.run_sync(self._all)).get(_key(harness))
        return known if known is not None else await self.prove(harness)

    async def refuse_unproven(self, harness: Harness) -> None:
        """Raises ``UnsupportedVersion`` for an untested binary that was not proven to hold."""
        troubles = (await self.proof(harness)).troubles
        if troubles:
            name = self._pinned.name
            raise UnsupportedVersion(
                f"{name} {harness.version} at {harness.path} is not usable: {'; '.join(troubles)}; "
                f"run `harness-durable install {name}` and use that one"
            )

    @property
    def _file(self) -> Path:
        return harnesses.managed() / self._pinned.name / "self-test.json"

    def _all(self) -> dict[str, Proof]:
        try:
            return msgspec.json.decode(self._file.read_bytes(), type=dict[str, Proof])
        except (OSError, msgspec.MsgspecError):
            return {}

    def _remember(self, harness: Harness, proof: Proof) -> None:
        """A cache: where it cannot be written, the test is run again."""
        fresh = self._file.with_name(f".self-test-{id(proof)}")
        try:
            self._file.parent.mkdir(parents=True, exist_ok=True)
            fresh.write_bytes(msgspec.json.encode({**self._all(), _key(harness): proof}))
            fresh.replace(self._file)
        except OSError:
            return


def _key(harness: Harness) -> str:
    status = Path(harness.path).stat()
    return f"{harness.path} {status.st_size} {status.st_mtime_ns}"
