"""The crash points that matter most, with Codex. ``HARNESS_DURABLE_CRASH=full``: all, with every death."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from harness_durable.crashpoints import DEATHS
from harness_durable.testing.provider.policies import Script
from harness_durable.testing.provider.reply import Reply, Text, ToolUse, say
from tests.crash.invariants import Expectation, examine
from tests.crash.scene import EFFECTS, FULL, MESSAGE, Scene, wait_for
from tests.crash.test_matrix import RECOVERY_POINTS, TURN_POINTS

WORLDS = ("sqlite", "file") if FULL else ("sqlite",)
SHORT = ("model.completed", "tool.released", "tool.effect_done", "recovery.rebuilt")
LONG = 30.0
"""Seconds that a command would go on if nobody ended it."""


def deaths(point: str) -> tuple[str, ...]:
    return DEATHS if FULL else (DEATHS[SHORT.index(point) % len(DEATHS)],)


CASES = [
    pytest.param(world, point, death, id=f"{world}-{point}-{death}")
    for world in WORLDS
    for point in ((*TURN_POINTS, *RECOVERY_POINTS) if FULL else SHORT)
    for death in deaths(point)
]


@pytest.mark.parametrize(("world", "point", "death"), CASES)
async def test_a_turn_survives(tmp_path: Path, world: str, point: str, death: str) -> None:
    with Scene(tmp_path, world, adapter="codex") as scene:
        crash = {"HARNESS_DURABLE_CRASH_AT": point, "HARNESS_DURABLE_CRASH_DEATH": death}
        if point in RECOVERY_POINTS:
            first = {"HARNESS_DURABLE_CRASH_AT": "tool.released", "HARNESS_DURABLE_CRASH_DEATH": "harness"}
            assert scene.worker(**first).wait(timeout=120) == -signal.SIGKILL, scene.tail()
        if point == "lease.renewing":
            crash["HARNESS_DURABLE_LEASE_SECONDS"] = "1"
        assert scene.worker(**crash).wait(timeout=120) == -signal.SIGKILL, scene.tail()
        assert scene.finish() == 0, scene.tail()
        report = await examine(scene)
        assert report.violations == [], scene.tail()
        assert report.status == "completed"


@pytest.mark.parametrize("world", WORLDS)
async def test_a_command_of_ten_seconds_survives_its_worker(tmp_path: Path, world: str) -> None:
    slow = ToolUse("exec_command", {"cmd": f"echo s0a >> {EFFECTS}; sleep 10", "yield_time_ms": 20_000})
    with Scene(tmp_path, world, policy=Script((does(slow), say("slept"))), adapter="codex") as scene:
        worker = scene.worker()
        wait_for(scene.has_effects, "the command's effect")
        worker.kill()
        worker.wait()
        harness = scene.harnesses()
        assert len(harness) == 1
        heir = scene.worker()
        wait_for(lambda: scene.said("attaches"), "the next worker to attach")
        assert scene.harnesses() == harness
        assert heir.wait(timeout=120) == 0, scene.tail()
        report = await examine(scene, Expectation(once=("s0a",)))
        assert (report.violations, report.lives, report.unknown) == ([], 1, 0), scene.tail()


@pytest.mark.parametrize("world", WORLDS)
async def test_a_batch_that_is_killed_beside_a_slow_sibling_is_told_call_by_call(
    tmp_path: Path, world: str
) -> None:
    """Codex runs a response's commands side by side: what has ended keeps its result."""
    batch = does(shell("p1", LONG), shell("p2"), custom("p3"))
    with Scene(tmp_path, world, policy=Script((batch, say("all three"))), adapter="codex") as scene:
        worker = scene.worker()
        happened(scene, "p1", "p2", "p3")
        scene.die(worker, "harness")
        assert scene.finish() == 0, scene.tail()
        report = await examine(scene, Expectation(once=("p1", "p2", "p3")))
        assert report.violations == [], scene.tail()
        assert report.unknown >= 1


@pytest.mark.parametrize("world", WORLDS)
@pytest.mark.parametrize("heard", [True, False], ids=["worker-heard-it", "worker-was-dead"])
async def test_a_stop_is_kept_over_the_death_of_worker_and_harness(
    tmp_path: Path, world: str, *, heard: bool
) -> None:
    policy = Script((does(shell("slow", LONG)), does(shell("next")), say("on we go")))
    with Scene(tmp_path, world, policy=policy, adapter="codex") as scene:
        worker = scene.worker()
        happened(scene, "slow")
        if not heard:
            scene.die(worker, "worker")
        assert scene.client("stop").wait(timeout=60) == 0, scene.tail()
        scene.die(worker, "harness")
        assert scene.finish(wanted=1) == 1, scene.tail()
        assert scene.finish("next") == 0, scene.tail()
        report = await examine(scene, Expectation(once=("slow", "next"), ends={MESSAGE: ("cancelled",)}))
        assert report.violations == [], scene.tail()
        assert report.turns == {MESSAGE: "cancelled", "next": "completed"}
        assert (report.text, report.lives) == ("on we go", 2), "a life was begun for a stopped turn"


def shell(token: str, nap: float = 0.0) -> ToolUse:
    """The effect, a nap, and the mark of a command that was not cut off."""
    command = f"echo {token} >> {EFFECTS}; sleep {nap}"
    mark = f"; echo {token}-woke >> {EFFECTS}" if nap >= LONG else ""
    return ToolUse("exec_command", {"cmd": command + mark, "yield_time_ms": 60_000})


def custom(token: str) -> ToolUse:
    return ToolUse("durable_effect", {"token": token})


def does(*blocks: ToolUse) -> Reply:
    return Reply((Text("I do it"), *blocks))


def done(scene: Scene) -> list[str]:
    return scene.effects.read_text().split()


def happened(scene: Scene, *tokens: str) -> None:
    wait_for(lambda: set(tokens) <= set(done(scene)), f"the effects {tokens}")
