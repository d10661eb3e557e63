"""A fork in the middle of a turn, with each harness: the next message goes on from what was known there."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from harness_durable.journal import Inbox
from harness_durable.runtime.forking import fork
from harness_durable.testing.provider import say
from harness_durable.testing.provider.messages import last_user_text
from harness_durable.testing.provider.policies.simple import Script
from tests.harness.rig import SESSION, does
from tests.harness.rigs import CodexRig, Kind, PiRig, each

pytestmark = pytest.mark.slow


@each(short=(CodexRig, PiRig))
async def test_a_fork_goes_on_from_the_middle_of_a_turn(tmp_path: Path, kind: Kind) -> None:
    first, other = (kind.rig.shell(f"echo {word} >> done.txt; echo {word}", f"call_{word}") for word in "ab")
    async with kind.open(tmp_path, Script((does(first), does(other), say("done")))) as rig:
        state = await rig.say("go")
        assert [call.outcome for call in state.tool_calls.values()] == ["completed"] * 2
        place = state.tool_calls["call_b"].released_seq
        shutil.copytree(rig.workspace, tmp_path / "own")
        await fork(rig.world, rig.equipment(), SESSION, at=place, name="f", files=tmp_path / "own")
        await (await Inbox.open(rig.world, "f")).accept("m-2", "and now?")
        own = await rig.work("f")
        assert own.turns["m-2"].status == "completed", own.turns["m-2"].reason
        assert own.tool_calls["call_b"].outcome == "unknown"
        asked = last_user_text(rig.requests[-1])
        assert asked.startswith("and now?") and f"work in {tmp_path / 'own'}" in asked
        assert rig.printed(rig.seen("call_a"), "a")
        assert "outcome_unknown" in rig.seen("call_b")
        assert (await rig.state()).seq == state.seq
