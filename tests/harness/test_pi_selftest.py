"""The self-test with both real versions, and what its proof is used for."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness_durable.errors import UnsupportedVersion
from harness_durable_adapters.common.proof import Proof, Proofs
from harness_durable_adapters.pi import Pi, install, launch, selftest
from tests.harness.pi_rig import VERSIONS

pytestmark = [pytest.mark.slow, pytest.mark.parametrize("version", VERSIONS)]


async def test_the_barrier_blocks_and_a_killed_turn_continues(version: str) -> None:
    assert await selftest.self_test(await install.install(version)) == Proof()


async def test_an_extension_that_asks_nobody_is_found_out(
    version: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    broken = launch.extension().replace(b'api.on("tool_call", beforeCall);', b"")
    monkeypatch.setattr(launch, "extension", lambda: broken)
    proof = await selftest.self_test(await install.install(version))
    assert any("was refused ran" in trouble for trouble in proof.troubles)


async def test_an_extension_that_goes_on_without_its_outcome_is_found_out(
    version: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It would run the next call although nobody knows that this one has run."""
    stop = b'    process.kill(process.pid, "SIGKILL");\n  }\n}\n\n// Before'
    assert stop in launch.extension()
    broken = launch.extension().replace(stop, b"    return undefined;\n  }\n}\n\n// Before")
    monkeypatch.setattr(launch, "extension", lambda: broken)
    proof = await selftest.self_test(await install.install(version))
    assert [trouble for trouble in proof.troubles if "does not end the harness" in trouble]


async def test_an_untested_version_is_proven_once_and_remembered(
    version: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    harness = await install.install(version)
    monkeypatch.setenv("HARNESS_DURABLE_HARNESS_DIR", str(tmp_path))
    tested: list[str] = []

    async def fails(found: object) -> Proof:
        tested.append(str(found))
        return Proof(("it does not hold",))

    proofs = Proofs("pi", lambda _: False, fails)
    for _ in range(2):
        with pytest.raises(UnsupportedVersion, match="it does not hold"):
            await proofs.refuse_unproven(harness)
    assert len(tested) == 1


async def test_doctor_hears_nothing_of_a_sound_version(
    version: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    harness = await install.install(version)
    monkeypatch.setenv(install.BINARY, harness.path)
    assert list(await Pi().check()) == []
