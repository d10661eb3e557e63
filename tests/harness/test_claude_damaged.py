"""Transcripts that a power cut left damaged, with the real binary: what is lost the model is told, in a
conversation that the provider takes."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness_durable.testing.provider import say
from tests.harness.damage import told_once
from tests.harness.rigs import ClaudeRig, versions
from tests.unit.test_claude_lost import conversation, torn
from tests.unit.test_claude_transcript import NATIVE

pytestmark = [pytest.mark.slow, versions(ClaudeRig)]


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
    """The first message, a call, or the last word is torn."""
    raw, where = torn(conversation().raw, place)
    async with ClaudeRig.open(tmp_path, version, lambda _: say("read")) as rig:
        native = (await rig.state()).native_id.encode()
        lines = [line.replace(NATIVE.encode(), native) for line in raw]
        assert where in await told_once(rig, lines, at, death, opening=place == 0)
