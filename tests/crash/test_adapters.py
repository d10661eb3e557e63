"""The crash points that matter most, with each of the other adapters. ``HARNESS_DURABLE_CRASH=full``: all,
with every death, on every World; and OpenCode, which takes seven seconds for a start, in
every story."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness_durable.crashpoints import DEATHS
from harness_durable.testing.provider.policies import Script
from harness_durable.testing.provider.reply import Reply, Text, ToolUse, say
from tests.crash import scene as scenes
from tests.crash.invariants import Expectation, examine
from tests.crash.scene import EFFECTS, FULL, MESSAGE, Scene, dies_at, goes_on_without_its_worker, wait_for
from tests.crash.test_matrix import RECOVERY_POINTS, TURN_POINTS

ADAPTERS = ("codex", "opencode", "pi")
WORLDS = scenes.WORLDS if FULL else ("sqlite",)
SHORT = ("model.completed", "tool.released", "tool.effect_done", "recovery.rebuilt")
LONG = 30.0
"""Seconds that a command would go on if nobody ended it."""

SLOW = {"opencode": ("tool.effect_done", "recovery.rebuilt")}
"""What else a short run tries with an adapter than ``SHORT``."""

pytestmark = pytest.mark.parametrize("world", WORLDS)

CASES = [
    pytest.param(adapter, point, death, id=f"{adapter}-{point}-{death}")
    for adapter in ADAPTERS
    for place, point in enumerate((*TURN_POINTS, *RECOVERY_POINTS) if FULL else SHORT)
    for death in (DEATHS if FULL else (DEATHS[place % len(DEATHS)],))
    if FULL or point in SLOW.get(adapter, SHORT)
]


def adapters(*short: str) -> pytest.MarkDecorator:
    """All of them, or those that a short run has."""
    return pytest.mark.parametrize("adapter", ADAPTERS if FULL else short)


@pytest.mark.parametrize(("adapter", "point", "death"), CASES)
async def test_a_turn_survives(tmp_path: Path, world: str, adapter: str, point: str, death: str) -> None:
    with Scene(tmp_path, world, adapter=adapter) as scene:
        dies_at(scene, point, death)
        await scene.put_back()
        assert scene.finish() == 0, scene.tail()
        report = await examine(scene)
        assert report.violations == [], scene.tail()
        assert report.status == "completed"


@adapters("codex", "pi")
async def test_a_command_of_ten_seconds_survives_its_worker(tmp_path: Path, world: str, adapter: str) -> None:
    policy = Script((does(shell(adapter, "s0a", 10.0)), say("slept")))
    with Scene(tmp_path, world, policy=policy, adapter=adapter) as scene:
        goes_on_without_its_worker(scene)
        report = await examine(scene, Expectation(once=("s0a",)))
        assert (report.violations, report.lives, report.unknown) == ([], 1, 0), scene.tail()


@adapters("codex", "pi")
async def test_a_batch_that_is_cut_off_is_told_call_by_call(tmp_path: Path, world: str, adapter: str) -> None:
    """What was cut off is unknown; what ended keeps its result; nothing happens twice. Pi runs one after the
    other: those that never ran run in the next life, in the same turn."""
    if adapter == "pi":
        calls = [shell("pi", "p1"), custom("p2"), shell("pi", "p3", LONG), custom("p4"), shell("pi", "p5")]
        begun, tokens = ("p3",), ("p1", "p2", "p3", "p4", "p5")
    else:
        calls = [shell(adapter, "slow", LONG), custom("own"), shell(adapter, "quick")]
        begun = tokens = ("slow", "own", "quick")
    with Scene(tmp_path, world, policy=Script((does(*calls), say("all of it"))), adapter=adapter) as scene:
        worker = scene.worker()
        for token in begun:
            happened(scene, token)
        scene.die(worker, "harness")
        assert scene.finish() == 0, scene.tail()
        report = await examine(scene, Expectation(once=tokens))
        assert report.violations == [], scene.tail()
        assert (report.status, report.unknown >= 1) == ("completed", True)
        assert adapter != "pi" or report.outcomes == {"completed": 4, "unknown": 1}


@adapters("codex", "pi")
@pytest.mark.parametrize("heard", [True, False], ids=["worker-heard-it", "worker-was-dead"])
async def test_a_stop_is_kept_over_the_death_of_worker_and_harness(
    tmp_path: Path, world: str, adapter: str, *, heard: bool
) -> None:
    turns = [does(shell(adapter, "slow", LONG)), does(shell(adapter, "next")), say("on we go")]
    if adapter != "codex":
        turns.insert(
            1, say("the turn that was stopped ends with a message of our own; this is not asked for")
        )
    with Scene(tmp_path, world, policy=Script(tuple(turns)), adapter=adapter) as scene:
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


def shell(adapter: str, token: str, nap: float = 0.0) -> ToolUse:
    """The effect, a nap, and the mark of a command that was not cut off."""
    mark = f"; echo {token}-woke >> {EFFECTS}" if nap >= LONG else ""
    command = f"echo {token} >> {EFFECTS}; sleep {nap}{mark}"
    match adapter:
        case "codex":
            return ToolUse("exec_command", {"cmd": command, "yield_time_ms": 60_000})
        case "opencode":
            return ToolUse("bash", {"command": command, "description": f"do {token}"})
        case _:
            return ToolUse("bash", {"command": command})


def custom(token: str) -> ToolUse:
    return ToolUse("durable_effect", {"token": token})


def does(*blocks: ToolUse) -> Reply:
    return Reply((Text("I do it"), *blocks))


def happened(scene: Scene, token: str) -> None:
    wait_for(lambda: token in scene.effects.read_text().split(), f"the effect {token}")
