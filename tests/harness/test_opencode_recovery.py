"""Kills in the middle of turns of the real OpenCode, where it differs from others."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from harness_durable.testing.provider import Reply, say
from harness_durable.testing.provider.policies.simple import Script
from tests.harness.rig import Rig
from tests.harness.rigs import OpenCodeRig, versions

pytestmark = [pytest.mark.slow, versions(OpenCodeRig)]

bash = OpenCodeRig.shell


ESTABLISHED = "01"


def asks_its_keeper(rig: Rig) -> bool:
    """Has the harness a connection to its relay? While nobody works, the keeper holds it."""
    [environ, *_] = [Path(f"/proc/{pid}/environ").read_bytes() for pid in rig.harness_pids()]
    [port] = re.findall(rb"HARNESS_DURABLE_GATE=http://127\.0\.0\.1:(\d+)/", environ)
    rows = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
    return any(row[1].endswith(f":{int(port):04X}") and row[3] == ESTABLISHED for row in rows)


async def test_a_command_that_ends_while_nobody_works_keeps_its_result(tmp_path: Path, version: str) -> None:
    script = Script((Reply((bash("touch begun; sleep 1; echo a >> a; echo slept", "call_1"),)), say("done")))
    async with OpenCodeRig.open(tmp_path, version, script) as rig:
        await rig.go()
        process = rig.worker()
        await rig.until(lambda _: (rig.workspace / "begun").exists())
        await rig.kill(process, life=False)
        await rig.until(lambda _: (rig.workspace / "a").exists())
        await rig.until(lambda _: asks_its_keeper(rig))
        state = await rig.finished()
        assert len(state.lives) == 1
        assert (state.tool_calls["call_1"].outcome, rig.seen("call_1")) == ("completed", "slept\n")


async def test_a_workspace_that_becomes_a_repository_loses_nothing(tmp_path: Path, version: str) -> None:
    """The harness files a session under its repository; the next life's is another one."""
    command = "git init -q . && git -c user.name=a -c user.email=a@b commit -q --allow-empty -m x; echo INIT"
    script = Script((Reply((bash(command, "call_1"),)), Reply((bash("echo a >> a", "call_2"),)), say("done")))
    async with OpenCodeRig.open(tmp_path, version, script) as rig:
        await rig.go()
        await rig.crashed("model.completed:2", "machine")
        state = await rig.finished()
        assert (rig.workspace / ".git").exists()
        assert state.turns["m-1"].status == "completed"
        assert (rig.seen("call_1"), rig.paid()) == ("INIT\n", 3)
