"""Session files of other versions, and damaged ones: the real harness goes on from each of them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from harness_durable.testing.provider import say
from harness_durable_adapters.pi.entries import parse
from tests.harness.pi_rig import SESSION, VERSIONS, PiRig
from tests.unit.pi_samples import invented, real

pytestmark = [pytest.mark.slow, pytest.mark.parametrize("version", VERSIONS[:1])]

EVERY = [*real().items(), *invented().items()]


@pytest.mark.parametrize(("name", "lines"), EVERY, ids=[name for name, _ in EVERY])
async def test_a_conversation_that_was_brought_here_goes_on(
    tmp_path: Path, version: str, name: str, lines: list[bytes]
) -> None:
    async with PiRig.open(tmp_path, version, lambda _: say("read"), tools=None) as rig:
        journal = await rig.journal()
        file = f"{journal.state.native_id}.jsonl"
        await journal.transcript_appended("imported", {file: lines}, offset=0)
        await rig.world.release(SESSION, journal.state.epoch)
        state = await rig.say("what did we do?")
        assert state.turns["m-1"].status == "completed", (name, state.turns["m-1"].reason)
        assert [line.kind for line in rig.provider.ledger.tally().lines].count("refused") == 0
        after = await rig.journal()
        kept = parse([line async for line in after.transcript_lines(file)])
        assert kept.sound
        talk = [entry for entry in parse(lines).entries if entry.is_talk]
        assert len([entry for entry in kept.entries if entry.is_talk]) >= len(talk) + 2


async def test_every_line_above_a_damaged_one_is_still_in_the_conversation(
    tmp_path: Path, version: str
) -> None:
    """The harness alone would lose all that is above a line whose parent it cannot find."""
    lines = invented()["torn in its middle"]
    async with PiRig.open(tmp_path, version, lambda _: say("read"), tools=None) as rig:
        journal = await rig.journal()
        file = f"{journal.state.native_id}.jsonl"
        await journal.transcript_appended("imported", {file: lines}, offset=0)
        await rig.world.release(SESSION, journal.state.epoch)
        await rig.say("go on")
        assert '"hi"' in json.dumps(rig.requests[-1].body["messages"])
