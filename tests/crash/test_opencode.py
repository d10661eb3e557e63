"""The crash points that matter most, with OpenCode; with ``HARNESS_DURABLE_CRASH=full`` all, each death."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from harness_durable.crashpoints import DEATHS
from harness_durable.testing.provider.policies import Script
from harness_durable.testing.provider.policies.steps import Steps
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
    with Scene(tmp_path, world, adapter="opencode") as scene:
        if point in RECOVERY_POINTS:
            first = scene.worker(
                HARNESS_DURABLE_CRASH_AT="tool.released", HARNESS_DURABLE_CRASH_DEATH="harness"
            )
            assert first.wait(timeout=120) == -signal.SIGKILL, scene.tail()
        worker = scene.worker(
            HARNESS_DURABLE_CRASH_AT=point,
            HARNESS_DURABLE_CRASH_DEATH=death,
            HARNESS_DURABLE_LEASE_SECONDS="1" if point == "lease.renewing" else "3",
        )
        assert worker.wait(timeout=120) == -signal.SIGKILL, scene.tail()
        assert scene.finish() == 0, scene.tail()
        report = await examine(scene)
        assert report.violations == [], scene.tail()
        assert report.status == "completed"


@pytest.mark.parametrize("world", WORLDS)
async def test_a_command_of_ten_seconds_survives_its_worker(tmp_path: Path, world: str) -> None:
    policy = Steps(steps=1, pair_every=0, nap=10.0)
    with Scene(tmp_path, world, policy=policy, adapter="opencode") as scene:
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
        report = await examine(scene)
        assert (report.violations, report.lives, report.unknown) == ([], 1, 0), scene.tail()


@pytest.mark.parametrize("world", WORLDS)
async def test_a_batch_with_a_slow_sibling_is_told_call_by_call(tmp_path: Path, world: str) -> None:
    """What was cut off is unknown; what ended keeps its result; nothing happens twice."""
    batch = does(shell("slow", LONG), custom("own"), shell("quick"))
    policy = Script((batch, say("all three")))
    with Scene(tmp_path, world, policy=policy, adapter="opencode") as scene:
        worker = scene.worker()
        for token in ("slow", "own", "quick"):
            happened(scene, token)
        scene.die(worker, "harness")
        assert scene.finish() == 0, scene.tail()
        report = await examine(scene, Expectation(once=("slow", "own", "quick")))
        assert report.violations == [], scene.tail()
        assert report.status == "completed"
        assert report.outcomes["unknown"] >= 1


@pytest.mark.parametrize("world", WORLDS)
@pytest.mark.parametrize("heard", [True, False], ids=["worker-heard-it", "worker-was-dead"])
async def test_a_stop_is_kept_over_the_death_of_worker_and_harness(
    tmp_path: Path, world: str, *, heard: bool
) -> None:
    between = say("the turn that was stopped ends with a message of our own, so this is not asked for")
    policy = Script((does(shell("slow", LONG)), between, does(shell("next")), say("on we go")))
    with Scene(tmp_path, world, policy=policy, adapter="opencode") as scene:
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
    return ToolUse("bash", {"command": command + mark, "description": f"do {token}"})


def custom(token: str) -> ToolUse:
    return ToolUse("durable_effect", {"token": token})


def does(*blocks: ToolUse) -> Reply:
    return Reply((Text("I do it"), *blocks))


def happened(scene: Scene, token: str) -> None:
    wait_for(lambda: token in scene.effects.read_text().split(), f"the effect {token}")
