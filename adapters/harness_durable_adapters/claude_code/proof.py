"""What a binary that nobody tested was proven to do on this machine: see ``common.proof``.

A barrier that does not block rules it out; where a turn does not continue in its middle, the harness is told
so in a message."""

from __future__ import annotations

from harness_durable.adapter import Harness

from ..common.proof import Proven
from . import install
from .selftest import Proof, self_test

RESUMED = "[resumed after an interruption] continue"
"""Said to a harness that cannot continue a turn in the middle."""

_PROVEN = Proven(install.NAME, Proof, self_test)


async def prove(harness: Harness) -> list[str]:
    """Run the self-test now and remember what it found: whole sentences, none if all holds."""
    return list((await _PROVEN.prove(harness)).troubles)


async def can_continue(harness: Harness) -> bool:
    """Does this binary continue a turn in its middle?"""
    return install.is_supported(harness.version) or (await _PROVEN.proof(harness)).continues


async def refuse_unproven(harness: Harness) -> None:
    """Raises ``UnsupportedVersion`` for an untested binary whose barrier was not proven to hold."""
    if install.is_supported(harness.version):
        return
    proof = await _PROVEN.proof(harness)
    if not proof.blocks:
        raise _PROVEN.refusal(harness, tuple(proof.troubles))
