"""What a binary that nobody tested was proven to do on this machine: see ``common.proof``.

A barrier that does not block rules it out; where a turn does not continue in its middle, the harness is told
so in a message."""

from __future__ import annotations

from harness_durable.adapter import Harness

from ..common.proof import Proofs, self_test_of
from .install import PINNED

RESUMED = "[resumed after an interruption] continue"
"""Said to a harness that cannot continue a turn in the middle."""

PROOFS = Proofs(PINNED, self_test_of(__name__))


async def can_continue(harness: Harness) -> bool:
    """Does this binary continue a turn in its middle?"""
    return not (await PROOFS.proof(harness)).lacks
