"""What a binary was proven to do on this machine, remembered beside the managed binaries.

Versions that the test-suite runs against need no proof. Any other one is put through the adapter's self-test
at its first use; a barrier that does not block, or a turn that does not go on in its middle, rules it out."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path

import anyio.to_thread
import msgspec

from harness_durable import harnesses
from harness_durable.adapter import Harness
from harness_durable.errors import UnsupportedVersion


class Proof(msgspec.Struct, frozen=True):
    """``troubles``: in whole sentences, what does not hold; none if all does."""

    troubles: tuple[str, ...] = ()


SelfTest = Callable[[Harness], Awaitable[Proof]]


class Proofs:
    """Those of one adapter. ``self_test`` takes some seconds and needs no network."""

    def __init__(self, name: str, is_supported: Callable[[str], bool], self_test: SelfTest) -> None:
        self._name, self._is_supported, self._self_test = name, is_supported, self_test

    async def prove(self, harness: Harness) -> tuple[str, ...]:
        """Run the self-test now and remember what it found."""
        proof = await self._self_test(harness)
        await anyio.to_thread.run_sync(self._remember, harness, proof)
        return proof.troubles

    async def refuse_unproven(self, harness: Harness) -> None:
        """Raises ``UnsupportedVersion`` for an untested binary that was not proven to hold."""
        if self._is_supported(harness.version):
            return
        known = (await anyio.to_thread.run_sync(self._all)).get(_key(harness))
        troubles = known.troubles if known is not None else await self.prove(harness)
        if troubles:
            raise UnsupportedVersion(
                f"{self._name} {harness.version} at {harness.path} is not usable: {'; '.join(troubles)}; "
                f"run `harness-durable install {self._name}` and use that one"
            )

    @property
    def _file(self) -> Path:
        return harnesses.managed() / self._name / "self-test.json"

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
