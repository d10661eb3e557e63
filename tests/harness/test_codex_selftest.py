"""The self-test with both real Codex binaries, and what its proof is used for."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness_durable.adapter import Harness
from harness_durable.errors import UnsupportedVersion
from harness_durable_adapters.codex import Codex, install
from harness_durable_adapters.codex.selftest import self_test
from harness_durable_adapters.common.proof import Proof, Proofs
from tests.harness.codex_rig import VERSIONS

pytestmark = [pytest.mark.slow, pytest.mark.parametrize("version", VERSIONS)]


async def test_the_barrier_blocks_and_a_killed_turn_continues(version: str) -> None:
    assert await self_test(await install.install(version)) == Proof()


async def test_a_binary_that_does_nothing_of_it_is_found_out(version: str, tmp_path: Path) -> None:
    sham = tmp_path / "codex"
    sham.write_text("#!/bin/sh\nexit 0\n")
    sham.chmod(0o755)
    found = await self_test(Harness(str(sham), version))
    assert len(found.troubles) == 3


async def test_an_untested_version_is_refused_unless_it_was_proven(
    version: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    harness = await install.install(version)
    monkeypatch.setenv("HARNESS_DURABLE_HARNESS_DIR", str(tmp_path))

    async def broken(_: Harness) -> Proof:
        return Proof(("it does not block",))

    with pytest.raises(UnsupportedVersion, match="it does not block"):
        await Proofs("codex", lambda _: False, broken).refuse_unproven(harness)
    assert Codex().versions == VERSIONS
