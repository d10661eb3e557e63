"""The story of a damaged transcript that was brought here, the same for harnesses that go on from one."""

from __future__ import annotations

from collections.abc import Sequence

from harness_durable_adapters.common.lost import OPENING
from tests.harness.rig import Rig


async def told_once(rig: Rig, lines: Sequence[bytes], at: str, death: str, *, opening: bool) -> str:
    """What the model is told of what is lost, after the first life died before the model was asked, or before
    it heard the answer: that is then given to it again, and not paid twice. ``opening``: its first message is
    among what is lost."""
    await rig.brought(lines)
    await rig.go("what did we do?")
    await rig.crashed(at, death)
    state = await rig.finished()
    assert state.turns["m-1"].status == "completed", state.turns["m-1"].reason
    told = rig.notes()
    assert [text == OPENING for text in told] == ([True, False] if opening else [False])
    assert "1 line of this conversation's record could not be read" in told[-1]
    state = await rig.next()
    assert state.turns["m-2"].status == "completed"
    assert rig.notes() == told, "not once more, and not forgotten"
    assert {"refused"}.isdisjoint(line.kind for line in rig.provider.ledger.tally().lines)
    assert rig.paid() == 2
    assert await rig.source() == b"\n".join(lines), "the damaged record itself stays"
    return told[-1]
