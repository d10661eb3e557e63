"""What a binary was proven to do on this machine, remembered beside the managed binaries.

Versions that the test-suite runs against need no proof. Any other one is put through the adapter's self-test
at its first use; a barrier that does not block, or a turn that does not go on in its middle, rules it out."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Generic, TypeVar

import anyio.to_thread
import msgspec

from harness_durable import harnesses
from harness_durable.adapter import Harness
from harness_durable.errors import UnsupportedVersion


class Proof(msgspec.Struct, frozen=True):
    """``troubles``: in whole sentences, what does not hold; none if all does."""

    troubles: tuple[str, ...] = ()


P = TypeVar("P", bound=msgspec.Struct)


class Proven(Generic[P]):
    """What the self-test of one adapter found, by binary. ``self_test`` takes some seconds and needs no
    network; ``kind`` is the struct that it gives."""

    def __init__(self, name: str, kind: type[P], self_test: Callable[[Harness], Awaitable[P]]) -> None:
        self._name, self._kind, self._self_test = name, kind, self_test

    async def prove(self, harness: Harness) -> P:
        """Run the self-test now and remember what it found."""
        proof = await self._self_test(harness)
        await anyio.to_thread.run_sync(self._remember, harness, proof)
        return proof

    async def proof(self, harness: Harness) -> P:
        """What is remembered of this binary; the first time, it is proven."""
        known = (await anyio.to_thread.run_sync(self._all)).get(_key(harness))
        return known if known is not None else await self.prove(harness)

    def refusal(self, harness: Harness, troubles: tuple[str, ...]) -> UnsupportedVersion:
        """For one that must not be used."""
        return UnsupportedVersion(
            f"{self._name} {harness.version} at {harness.path} is not usable: {'; '.join(troubles)}; "
            f"run `harness-durable install {self._name}` and use that one"
        )

    @property
    def _file(self) -> Path:
        return harnesses.managed() / self._name / "self-test.json"

    def _all(self) -> dict[str, P]:
        kind = dict[str, self._kind]  # type: ignore[name-defined]  # made at run time, for msgspec alone
        try:
            return msgspec.json.decode(self._file.read_bytes(), type=kind)
        except (OSError, msgspec.MsgspecError):
            return {}

    def _remember(self, harness: Harness, proof: P) -> None:
        """A cache: where it cannot be written, the test is run again."""
        fresh = self._file.with_name(f".self-test-{id(proof)}")
        try:
            self._file.parent.mkdir(parents=True, exist_ok=True)
            fresh.write_bytes(msgspec.json.encode({**self._all(), _key(harness): proof}))
            fresh.replace(self._file)
        except OSError:
            return


class Proofs:
    """Those of an adapter for which every trouble rules a binary out."""

    def __init__(
        self,
        name: str,
        is_supported: Callable[[str], bool],
        self_test: Callable[[Harness], Awaitable[Proof]],
    ) -> None:
        self._is_supported = is_supported
        self._proven = Proven(name, Proof, self_test)

    async def prove(self, harness: Harness) -> tuple[str, ...]:
        """Run the self-test now and remember what it found."""
        return (await self._proven.prove(harness)).troubles

    async def refuse_unproven(self, harness: Harness) -> None:
        """Raises ``UnsupportedVersion`` for an untested binary that was not proven to hold."""
        if self._is_supported(harness.version):
            return
        troubles = (await self._proven.proof(harness)).troubles
        if troubles:
            raise self._proven.refusal(harness, troubles)


def _key(harness: Harness) -> str:
    status = Path(harness.path).stat()
    return f"{harness.path} {status.st_size} {status.st_mtime_ns}"
