"""The self-test of each adapter with each real harness, and what its proof is used for."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path

import pytest

from harness_durable import registry
from harness_durable.adapter import Adapter, Harness
from harness_durable.errors import UnsupportedVersion
from harness_durable.testing.provider import say
from harness_durable.testing.provider.policies.simple import Script
from harness_durable_adapters.claude_code import proof as claude_proof
from harness_durable_adapters.common.proof import Proof, Proofs
from harness_durable_adapters.pi import Pi, launch
from tests.harness.rig import does
from tests.harness.rigs import OPENCODE, PI, RIGS, ClaudeRig, Kind, PiRig, each, versions

pytestmark = pytest.mark.slow


async def self_test(name: str, harness: Harness) -> Proof:
    package = type(loaded(name)).__module__.rpartition(".")[0]
    found: Proof = await import_module(f"{package}.selftest").self_test(harness)
    return found


def loaded(name: str) -> Adapter:
    adapter: Adapter = registry.load("adapter", name)()
    return adapter


@each(short=RIGS, older=True)
async def test_c068_the_barrier_blocks_and_a_killed_turn_continues(kind: Kind) -> None:
    harness = await kind.rig.pinned.install(kind.version)
    assert await self_test(kind.rig.pinned.name, harness) == Proof()


@each(short=RIGS)
async def test_a_binary_that_does_nothing_of_it_is_found_out(kind: Kind, tmp_path: Path) -> None:
    sham = tmp_path / "sham"
    sham.write_text("#!/bin/sh\nexit 0\n")
    sham.chmod(0o755)
    found = await self_test(kind.rig.pinned.name, Harness(str(sham), kind.version))
    assert len(found.troubles + found.lacks) >= 3


@pytest.mark.parametrize("version", OPENCODE.supported[:1])
async def test_an_opencode_without_our_plugin_is_found_out(
    version: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("harness_durable_adapters.opencode.launch._PLUGIN", "elsewhere/harness-durable.js")
    monkeypatch.setattr("harness_durable_adapters.opencode.launch._config", _without_plugin)
    assert len((await self_test("opencode", await OPENCODE.install(version))).troubles) == 3


def _without_plugin(start: object) -> dict[str, object]:
    return {"share": "disabled", "autoupdate": False}


@versions(PiRig)
async def test_an_extension_that_asks_nobody_is_found_out(
    version: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    broken = launch.extension().replace(b'api.on("tool_call", beforeCall);', b"")
    monkeypatch.setattr(launch, "extension", lambda: broken)
    proof = await self_test("pi", await PI.install(version))
    assert any("was refused ran" in trouble for trouble in proof.troubles)


@versions(PiRig)
async def test_an_extension_that_goes_on_without_its_outcome_is_found_out(
    version: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It would run the next call although nobody knows that this one has run."""
    stop = b'    process.kill(process.pid, "SIGKILL");\n  }\n}\n\n// Before'
    assert stop in launch.extension()
    broken = launch.extension().replace(stop, b"    return undefined;\n  }\n}\n\n// Before")
    monkeypatch.setattr(launch, "extension", lambda: broken)
    proof = await self_test("pi", await PI.install(version))
    assert [trouble for trouble in proof.troubles if "does not end the harness" in trouble]


@pytest.mark.parametrize("proof", [Proof(("it does not hold",)), Proof((), ("it is told so",))])
async def test_an_untested_version_is_proven_once_and_refused_if_it_does_not_hold(
    proof: Proof, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HARNESS_DURABLE_HARNESS_DIR", str(tmp_path))
    binary = tmp_path / "untested"
    binary.touch()
    harness, tested = Harness(str(binary), "0.0.0"), list[str]()

    async def tests(found: Harness) -> Proof:
        tested.append(found.path)
        return proof

    proofs = Proofs(PI, tests)
    for _ in range(2):
        if proof.troubles:
            with pytest.raises(UnsupportedVersion, match="it does not hold"):
                await proofs.refuse_unproven(harness)
        else:
            await proofs.refuse_unproven(harness)
        assert await proofs.proof(harness) == proof
    assert tested == [str(binary)]


@versions(PiRig)
async def test_doctor_hears_nothing_of_a_sound_version(version: str, monkeypatch: pytest.MonkeyPatch) -> None:
    harness = await PI.install(version)
    monkeypatch.setenv(PI.binary_variable, harness.path)
    assert list(await Pi().check()) == []


@versions(ClaudeRig)
async def test_a_harness_that_cannot_continue_is_told_so_in_a_message(
    version: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    use = ClaudeRig.shell("echo a >> a; sleep 5", "call_1")
    async with ClaudeRig.open(tmp_path, version, Script((does(use), say("done")))) as rig:
        await rig.go()
        await rig.crashed("tool.released")

        async def no(_: object) -> bool:
            return False

        monkeypatch.setattr("harness_durable_adapters.claude_code.prepare.can_continue", no)
        monkeypatch.setattr("harness_durable_adapters.claude_code.delivery.can_continue", no)
        state = await rig.work()
        assert state.turns["m-1"].status == "completed"
        assert claude_proof.RESUMED in str(rig.requests[-1].body)
        assert rig.seen("call_1").startswith("outcome_unknown")
