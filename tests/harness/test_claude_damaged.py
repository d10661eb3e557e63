"""Transcripts that a power cut left damaged, with both real binaries: what is lost the model is told, in a
conversation that the provider takes."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness_durable.journal import Inbox
from harness_durable.testing.provider import say
from harness_durable_adapters.common.lost import OPENING
from tests.harness.rig import SESSION, Rig
from tests.harness.rigs import ClaudeRig, versions
from tests.unit.test_claude_lost import conversation, torn
from tests.unit.test_claude_transcript import NATIVE

pytestmark = [pytest.mark.slow, versions(ClaudeRig)]


def notes(rig: Rig) -> list[str]:
    """What the model reads of us in the last request."""
    blocks = [block for message in rig.requests[-1].messages for block in message.blocks()]
    return [block.text for block in blocks if "Note by harness-durable" in block.text]


async def imported(rig: Rig, lines: list[bytes]) -> list[bytes]:
    native = (await rig.state()).native_id
    own = [line.replace(NATIVE.encode(), native.encode()) for line in lines]
    await rig.brought(own)
    return own


@pytest.mark.parametrize(
    ("place", "at", "death"),
    [
        (0, "model.requested", "harness"),
        (2, "model.completed", "harness"),
        (6, "model.completed", "machine"),
    ],
)
async def test_c001_the_model_is_told_once_what_a_damaged_transcript_lost(
    tmp_path: Path, version: str, place: int, at: str, death: str
) -> None:
    """The first message, a call, or the last word is torn. The first life dies before the model is asked, or
    before it hears the answer: that is then given to it again, and not paid twice."""
    raw, where = torn(conversation().raw, place)
    async with ClaudeRig.open(tmp_path, version, lambda _: say("read")) as rig:
        lines = await imported(rig, raw)
        await rig.go("what did we do?")
        await rig.crashed(at, death)
        state = await rig.finished()
        assert state.turns["m-1"].status == "completed", state.turns["m-1"].reason
        told = rig.notes()
        assert [text == OPENING for text in told] == ([True, False] if place == 0 else [False])
        assert "1 line of this conversation's record could not be read" in told[-1]
        assert where in told[-1]
        await (await Inbox.open(rig.world, SESSION)).accept("m-2", "and now?")
        state = await rig.work()
        assert state.turns["m-2"].status == "completed"
        assert rig.notes() == told, "not once more, and not forgotten"
        assert {"refused"}.isdisjoint(line.kind for line in rig.provider.ledger.tally().lines)
        assert rig.paid() == 2
        assert await rig.source() == b"\n".join(lines), "the damaged record itself stays"
