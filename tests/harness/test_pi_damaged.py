"""Session files of other versions, and damaged ones: the real harness goes on from each of them, and its
model is told what is lost."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from harness_durable.testing.provider import say
from harness_durable_adapters.common.shapes import decode, mapping, objects, word
from harness_durable_adapters.pi.entries import parse, path
from tests.harness.damage import told_once
from tests.harness.rigs import PiRig, versions
from tests.unit.pi_samples import HEADER, assistant, invented, real, result, user

pytestmark = [pytest.mark.slow, versions(PiRig)]

EVERY = [*real().items(), *invented().items()]


@pytest.mark.parametrize(("name", "lines"), EVERY, ids=[name for name, _ in EVERY])
async def test_a_conversation_that_was_brought_here_goes_on(
    tmp_path: Path, version: str, name: str, lines: list[bytes]
) -> None:
    async with PiRig.open(tmp_path, version, lambda _: say("read")) as rig:
        file = await rig.brought(lines)
        state = await rig.say("what did we do?")
        assert state.turns["m-1"].status == "completed", (name, state.turns["m-1"].reason)
        assert [line.kind for line in rig.provider.ledger.tally().lines].count("refused") == 0
        after = await rig.journal()
        mirrored = [line async for line in after.transcript_lines(file)]
        kept = parse(mirrored)
        assert kept.sound
        heard = {block.text for message in rig.requests[-1].messages for block in message.blocks()}
        assert said_since_compaction(mirrored) <= heard
        talk = [entry for entry in parse(lines).entries if entry.is_talk]
        assert len([entry for entry in kept.entries if entry.is_talk]) >= len(talk) + 2


def said_since_compaction(lines: list[bytes]) -> set[str]:
    """What was asked, and answered before the last word, in what the model sees word for word."""
    way = path(parse(lines).entries)
    since = max((place for place, entry in enumerate(way) if entry.kind == "compaction"), default=-1)
    talk = [
        entry for entry in way[since + 1 :] if entry.role in ("user", "assistant") and not entry.is_dropped
    ]
    bodies = [mapping((decode(lines[entry.line]) or {}).get("message")) for entry in talk[:-1]]
    texts = [word(block.get("text")) for body in bodies for block in objects(body.get("content"))]
    return {text for text in texts if text}


async def test_every_line_above_a_damaged_one_is_still_in_the_conversation(
    tmp_path: Path, version: str
) -> None:
    """The harness alone would lose all that is above a line whose parent it cannot find."""
    lines = invented()["torn in its middle"]
    async with PiRig.open(tmp_path, version, lambda _: say("read")) as rig:
        await rig.brought(lines)
        await rig.say("go on")
        assert '"hi"' in json.dumps(rig.requests[-1].body["messages"])


TALK = [
    HEADER,
    user("a", None, "first"),
    assistant("b", "a", "toolu_old"),
    result("c", "b", "toolu_old"),
    assistant("d", "c", text="done"),
]


@pytest.mark.parametrize(
    ("place", "at", "death"),
    [
        (1, "model.requested", "harness"),
        (2, "model.completed", "harness"),
        (4, "model.completed", "machine"),
    ],
)
async def test_c001_the_model_is_told_once_what_a_damaged_file_lost(
    tmp_path: Path, version: str, place: int, at: str, death: str
) -> None:
    """The first message, a call, or the last word is torn."""
    lines = [line[:-20] if number == place else line for number, line in enumerate(TALK)]
    where = f"{len(lines[place])} bytes at byte {sum(len(line) + 1 for line in lines[:place])}"
    async with PiRig.open(tmp_path, version, lambda _: say("read")) as rig:
        told = await told_once(rig, lines, at, death, opening=place == 1)
        assert where in told
        assert ("the result of 1 call is left out" in told) == (place == 2)
