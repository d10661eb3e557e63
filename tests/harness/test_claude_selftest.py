"""The self-test with both real binaries, and what its proof is used for."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness_durable.testing.provider import Reply, ToolUse, say
from harness_durable.testing.provider.policies.simple import Script
from harness_durable_adapters.claude_code import ClaudeCode, install, proof, selftest
from tests.harness.claude_rig import VERSIONS, Rig

pytestmark = [pytest.mark.slow, pytest.mark.parametrize("version", VERSIONS)]


async def test_c068_the_barrier_blocks_and_a_killed_turn_continues(version: str) -> None:
    found = await selftest.self_test(await install.install(version))
    assert found == selftest.Proof(blocks=True, continues=True)


async def test_an_untested_version_is_proven_once_and_remembered(
    version: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    harness = await install.install(version)
    monkeypatch.setenv("HARNESS_DURABLE_HARNESS_DIR", str(tmp_path))
    monkeypatch.setenv(install.BINARY, harness.path)
    monkeypatch.setenv(install.ANY_VERSION, "1")
    monkeypatch.setattr(install, "SUPPORTED", ("0.0.0",))
    assert (await ClaudeCode().find()).version == version

    async def never(_: object) -> selftest.Proof:
        raise AssertionError("it was proven before")

    monkeypatch.setattr(proof, "self_test", never)
    assert (await ClaudeCode().find()).version == version


async def test_a_harness_that_cannot_continue_is_told_so_in_a_message(
    version: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    use = ToolUse("Bash", {"command": "echo a >> a; sleep 5", "description": "d"}, id="toolu_1")
    async with Rig.open(tmp_path, version, Script((Reply((use,)), say("done")))) as rig:
        await rig.inbox.accept("m-1", "go")
        await rig.crashed("tool.released")

        async def no(_: object) -> bool:
            return False

        monkeypatch.setattr("harness_durable_adapters.claude_code.prepare.can_continue", no)
        monkeypatch.setattr("harness_durable_adapters.claude_code.delivery.can_continue", no)
        state = await rig.work()
        assert state.turns["m-1"].status == "completed"
        assert proof.RESUMED in str(rig.requests[-1].body)
        assert rig.seen("toolu_1").startswith("outcome_unknown")
