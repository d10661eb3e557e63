"""Two things at once: a death together with a steer, a stop, a rival, a subagent, a batch or a slow provider.

Each story is a ``Script``: the k-th reply is for a conversation with k assistant messages, whatever died in
between. So the replies also say what the model was able to know.
"""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from harness_durable.testing.provider.ledger import Ledger
from harness_durable.testing.provider.policies import FromPrompt, Script
from harness_durable.testing.provider.reply import Hang, Reply, Text, ToolUse, say
from tests.crash.invariants import Expectation, examine
from tests.crash.scene import EFFECTS, FULL, MESSAGE, WORLDS, Scene, wait_for, written

FEWER = WORLDS if FULL else ("sqlite", "file")
"""Those whose course does not depend on who serves the log."""
LONG = 30.0
"""Seconds that a command would go on if nobody ended it."""


def shell(token: str, nap: float = 0.0) -> ToolUse:
    """The effect, a nap, and the mark of a command that was not cut off."""
    command = f"echo {token} >> {EFFECTS}; sleep {nap}"
    mark = f"; echo {token}-woke >> {EFFECTS}" if nap >= LONG else ""
    return ToolUse("Bash", {"command": command + mark, "description": f"do {token}"})


def custom(token: str, name: str = "effect") -> ToolUse:
    return ToolUse(f"mcp__durable__{name}", {"token": token})


def does(*blocks: ToolUse) -> Reply:
    return Reply((Text("I do it"), *blocks))


def happened(scene: Scene, token: str) -> None:
    wait_for(lambda: token in scene.effects.read_text().split(), f"the effect {token}")


@pytest.mark.parametrize("world", FEWER)
async def test_a_steer_at_the_last_answer_survives_the_worker_in_its_own_part_of_the_turn(
    tmp_path: Path, world: str
) -> None:
    last = Reply((Text("the task is done"),), start_delay=3.0)
    policy = Script((does(shell("task")), last, does(shell("steer", 3.0)), say("the steer is done")))
    with Scene(tmp_path, world, policy=policy) as scene:
        worker = scene.worker()
        happened(scene, "task")
        assert scene.client("steer", "one more thing").wait(timeout=60) == 0, scene.tail()
        happened(scene, "steer")
        scene.die(worker, "worker")
        heir = scene.worker()
        wait_for(lambda: scene.said("attaches"), "the next worker to attach")
        assert heir.wait(timeout=120) == 0, scene.tail()
        report = await examine(scene, Expectation(once=("task", "steer")))
        assert report.violations == [], scene.tail()
        assert (report.turns, report.steers, report.lives) == ({MESSAGE: "completed"}, 1, 1)
        assert (report.text, report.unknown) == ("the steer is done", 0)


@pytest.mark.parametrize("world", FEWER)
@pytest.mark.parametrize("heard", [True, False], ids=["worker-heard-it", "worker-was-dead"])
async def test_a_stop_is_kept_over_the_death_of_worker_and_harness(
    tmp_path: Path, world: str, heard: bool
) -> None:
    between = say("the harness ends a stopped turn with a message of its own, so this is not asked for")
    policy = Script((does(shell("slow", LONG)), between, does(shell("next")), say("on we go")))
    with Scene(tmp_path, world, policy=policy) as scene:
        worker = scene.worker()
        happened(scene, "slow")
        if not heard:
            scene.die(worker, "worker")
        assert scene.client("stop").wait(timeout=60) == 0, scene.tail()
        scene.die(worker, "harness")
        assert scene.finish(wanted=1) == 1, scene.tail()
        assert scene.finish("next") == 0, scene.tail()
        expected = Expectation(once=("slow", "next"), ends={MESSAGE: ("cancelled",)})
        report = await examine(scene, expected)
        assert report.violations == [], scene.tail()
        assert report.turns == {MESSAGE: "cancelled", "next": "completed"}
        assert (report.text, report.lives) == ("on we go", 2), "a life was begun for a stopped turn"


@pytest.mark.parametrize("world", WORLDS)
async def test_a_probe_is_not_believed_while_the_last_but_one_worker_may_still_act(
    tmp_path: Path, world: str
) -> None:
    """The first worker is asleep in the tool, the second took over from it and died, the third finishes."""
    policy = Script((does(custom("late", "late_effect")), say("somebody should look")))
    with Scene(tmp_path, world, policy=policy, outside=True) as scene:
        sleeper = scene.worker(HARNESS_DURABLE_LEASE_SECONDS="1")
        wait_for(Path(f"{scene.effects}.late.begun").exists, "the tool to begin")
        scene.pause(sleeper)
        try:
            assert not scene.has_effects()
            crash = {"HARNESS_DURABLE_CRASH_AT": "recovery.claimed"}
            wait_for(lambda: scene.worker(**crash).wait(timeout=60) == -signal.SIGKILL, "a take-over")
            assert scene.finish() == 0, scene.tail()
        finally:
            sleeper.send_signal(signal.SIGCONT)
        assert sleeper.wait(timeout=60) == 0, scene.tail()
        report = await examine(scene, Expectation(once=(), perhaps=("late",)))
        assert report.violations == [], scene.tail()
        assert report.outcomes == {"unknown": 1}


@pytest.mark.parametrize("world", FEWER)
async def test_a_subagent_that_is_killed_in_its_middle_repeats_nothing(tmp_path: Path, world: str) -> None:
    steps = Script((does(shell("one")), does(shell("two", LONG)), say("the errand is done")))
    errand: dict[str, object] = {
        "description": "an errand",
        "prompt": f"policy: script:{written(tmp_path / 'inner.json', steps)}",
        "subagent_type": "general-purpose",
    }
    main = Script((does(ToolUse("Agent", errand)), say("all is done")))
    text = f"policy: script:{written(tmp_path / 'main.json', main)}"
    with Scene(tmp_path, world, policy=FromPrompt(), text=text) as scene:
        worker = scene.worker()
        happened(scene, "two")
        scene.die(worker, "harness")
        assert scene.finish() == 0, scene.tail()
        report = await examine(scene, Expectation(once=("one", "two")))
        assert report.violations == [], scene.tail()
        assert (report.model_calls, report.lost) == (5, 0), "an answer was paid again"
        assert report.outcomes == {"completed": 2, "unknown": 1}
        assert report.text == "all is done"


@pytest.mark.parametrize("world", FEWER)
async def test_a_batch_that_is_killed_after_its_second_call_does_the_rest_once(
    tmp_path: Path, world: str
) -> None:
    """The third is unknown; of those that never ran, ours is run by us, and the model is asked for the
    harness's again."""
    batch = does(shell("p1"), custom("p2"), shell("p3", LONG), custom("p4"), shell("p5"))
    policy = Script((batch, does(shell("p5")), say("all five")))
    with Scene(tmp_path, world, policy=policy) as scene:
        worker = scene.worker()
        happened(scene, "p3")
        scene.die(worker, "harness")
        assert scene.finish() == 0, scene.tail()
        report = await examine(scene, Expectation(once=("p1", "p2", "p3", "p4", "p5")))
        assert report.violations == [], scene.tail()
        assert report.outcomes == {"completed": 4, "unknown": 1, "not_started": 1}


@pytest.mark.parametrize("world", FEWER)
async def test_an_answer_that_comes_after_the_harness_died_is_paid_once(tmp_path: Path, world: str) -> None:
    slow = Reply((Text("that took long"), shell("two")), faults=(Hang(0, 3.0),))
    policy = Script((does(shell("one")), slow, say("done")))
    with Scene(tmp_path, world, policy=policy) as scene:
        worker = scene.worker()
        wait_for(lambda: _waits_for_answer(scene, 2), "the second request")
        scene.kill_lives()
        assert worker.wait(timeout=120) == 0, scene.tail()
        report = await examine(scene, Expectation(once=("one", "two")))
        assert report.violations == [], scene.tail()
        assert (report.model_calls, report.lost, report.lives) == (3, 0, 2), "an answer was paid again"


def _waits_for_answer(scene: Scene, number: int) -> bool:
    return scene.ledger.exists() and Ledger.read(scene.ledger).open() == [number]
