"""What a binary was proven to do on this machine, remembered beside the managed binaries.

Versions that the test-suite runs against need no proof. Any other one is put through the self-test at its
first use: a barrier that does not block rules it out; where a turn does not continue in its middle, the
harness is told so in a message."""

from __future__ import annotations

from pathlib import Path

import anyio
import msgspec

from harness_durable import harnesses
from harness_durable.adapter import Harness
from harness_durable.errors import UnsupportedVersion

from . import install
from .selftest import Proof, self_test

RESUMED = "[resumed after an interruption] continue"
"""Said to a harness that cannot continue a turn in the middle."""


async def prove(harness: Harness) -> list[str]:
    """Run the self-test now and remember what it found: whole sentences, none if all holds."""
    proof = await self_test(harness)
    await anyio.to_thread.run_sync(_remember, harness, proof)
    return list(proof.troubles)


async def can_continue(harness: Harness) -> bool:
    """Does this binary continue a turn in its middle?"""
    return install.is_supported(harness.version) or (await _proof(harness)).continues


async def refuse_unproven(harness: Harness) -> None:
    """Raises ``UnsupportedVersion`` for an untested binary whose barrier was not proven to hold."""
    if install.is_supported(harness.version):
        return
    proof = await _proof(harness)
    if not proof.blocks:
        raise UnsupportedVersion(
            f"claude-code {harness.version} at {harness.path} is not usable: {'; '.join(proof.troubles)}; "
            "run `harness-durable install claude-code` and use that one"
        )


async def _proof(harness: Harness) -> Proof:
    known = await anyio.to_thread.run_sync(_recall, harness)
    if known is not None:
        return known
    proof = await self_test(harness)
    await anyio.to_thread.run_sync(_remember, harness, proof)
    return proof


def _file() -> Path:
    return harnesses.managed() / install.NAME / "self-test.json"


def _key(harness: Harness) -> str:
    status = Path(harness.path).stat()
    return f"{harness.path} {status.st_size} {status.st_mtime_ns}"


def _all() -> dict[str, Proof]:
    try:
        return msgspec.json.decode(_file().read_bytes(), type=dict[str, Proof])
    except (OSError, msgspec.MsgspecError):
        return {}


def _recall(harness: Harness) -> Proof | None:
    return _all().get(_key(harness))


def _remember(harness: Harness, proof: Proof) -> None:
    """A cache: where it cannot be written, the test is run again."""
    file = _file()
    fresh = file.with_name(f".self-test-{id(proof)}")
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        fresh.write_bytes(msgspec.json.encode({**_all(), _key(harness): proof}))
        fresh.replace(file)
    except OSError:
        return
