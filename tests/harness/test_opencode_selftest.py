"""The self-test with both real binaries."""

from __future__ import annotations

import pytest

from harness_durable_adapters.common.proof import Proof
from harness_durable_adapters.opencode import install, selftest
from tests.harness.opencode_rig import VERSIONS

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("version", VERSIONS)
async def test_the_barrier_blocks_and_a_killed_turn_continues(version: str) -> None:
    assert await selftest.self_test(await install.install(version)) == Proof()


async def test_a_harness_without_our_plugin_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("harness_durable_adapters.opencode.launch._PLUGIN", "elsewhere/harness-durable.js")
    monkeypatch.setattr("harness_durable_adapters.opencode.launch._config", _without_plugin)
    found = await selftest.self_test(await install.install(VERSIONS[0]))
    assert len(found.troubles) == 3


def _without_plugin(start: object) -> dict[str, object]:
    return {"share": "disabled", "autoupdate": False}
