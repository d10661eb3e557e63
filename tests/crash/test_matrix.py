"""Every crash point on every World with a death; ``HARNESS_DURABLE_CRASH=full``: with every death.

On Postgres a short run has the points at which the World matters: where a record, a claim or a renewal is
what the death comes before or after. What lies between (the stream, the effect) meets no store.
"""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from harness_durable.crashpoints import DEATHS, POINTS
from harness_durable.testing.provider.policies.steps import Steps
from tests.crash.invariants import examine
from tests.crash.scene import FULL, KILLED, MESSAGE, WORLDS, Scene, goes_on_without_its_worker, wait_for

STORED = (
    "message.accepted",
    "turn.started",
    "model.completed",
    "tool.released",
    "tool.completed",
    "workspace.committed",
    "turn.completing",
    "recovery.claimed",
    "recovery.rebuilt",
    "lease.renewing",
)
CLIENT_POINTS = ("steer.accepted",)
RECOVERY_POINTS = tuple(point for point in POINTS if point.startswith("recovery."))
WITHOUT_A_CALL = ("permission.asked",)
TURN_POINTS = tuple(
    point for point in POINTS if point not in (*CLIENT_POINTS, *RECOVERY_POINTS, *WITHOUT_A_CALL)
)


def deaths(point: str, world: str) -> tuple[str, ...]:
    """All of them, or in a short run one, so that the points of a World take turns."""
    if FULL:
        return DEATHS
    if world == "postgres" and point not in STORED:
        return ()
    return (DEATHS[(POINTS.index(point) + WORLDS.index(world)) % len(DEATHS)],)


CASES = [
    pytest.param(world, point, death, id=f"{world}-{point}-{death}")
    for world in WORLDS
    for point in (*TURN_POINTS, *RECOVERY_POINTS)
    for death in deaths(point, world)
]


@pytest.mark.parametrize(("world", "point", "death"), CASES)
async def test_a_turn_survives(tmp_path: Path, world: str, point: str, death: str) -> None:
    """C011 (``message.accepted``: the message is in the log), C026 (``machine``: the harness's own files are
    gone), C070 (each effect happens once, wherever the process dies that asked for it). On Postgres, whatever
    kills more than the worker is survived by a worker on another host."""
    elsewhere = world == "postgres" and death != "worker"
    with Scene(tmp_path, world, hosts=("one", "two") if elsewhere else ()) as scene:
        here, there = scene.hosts[0], scene.hosts[-1]
        crash = {"HARNESS_DURABLE_CRASH_AT": point, "HARNESS_DURABLE_CRASH_DEATH": death}
        if point in RECOVERY_POINTS:
            first = {"HARNESS_DURABLE_CRASH_AT": "tool.released", "HARNESS_DURABLE_CRASH_DEATH": "harness"}
            assert scene.ended(MESSAGE, here, **first) in KILLED, scene.tail()
            here, there = there, here
        if point == "lease.renewing":
            crash["HARNESS_DURABLE_LEASE_SECONDS"] = "1"
        assert scene.ended(MESSAGE, here, **crash) in KILLED, scene.tail()
        await scene.put_back()
        assert scene.finish(host=there) == 0, scene.tail()
        scene.clean_up()
        report = await examine(scene)
        assert report.violations == [], scene.tail()
        assert report.status == "completed"


@pytest.mark.parametrize("world", WORLDS)
async def test_a_worker_that_was_stopped_past_its_lease_is_fenced(tmp_path: Path, world: str) -> None:
    with Scene(tmp_path, world) as scene:
        sleeper = scene.worker(HARNESS_DURABLE_LEASE_SECONDS="1")
        wait_for(scene.has_effects, "the first effect")
        scene.pause(sleeper)
        try:
            assert scene.finish() == 0, scene.tail()
        finally:
            sleeper.send_signal(signal.SIGCONT)
        # The sleeper finds that the turn was settled without it, says the same answer, and leaves in peace.
        assert sleeper.wait(timeout=60) == 0, scene.tail()
        report = await examine(scene)
        assert report.violations == [], scene.tail()


@pytest.mark.parametrize("world", WORLDS if FULL else ("sqlite", "file"))
async def test_a_command_of_ten_seconds_survives_its_worker(tmp_path: Path, world: str) -> None:
    """Neither killed nor repeated, and the harness is the same process afterwards."""
    policy = Steps(steps=1, pair_every=0, nap=10.0)
    with Scene(tmp_path, world, policy=policy) as scene:
        goes_on_without_its_worker(scene)
        report = await examine(scene)
        assert (report.violations, report.lives, report.unknown) == ([], 1, 0), scene.tail()


@pytest.mark.parametrize("world", WORLDS)
async def test_a_steer_is_durable_before_it_is_answered(tmp_path: Path, world: str) -> None:
    with Scene(tmp_path, world, policy=Steps(steps=1, pair_every=0, nap=5.0)) as scene:
        worker = scene.worker()
        wait_for(scene.has_effects, "the first effect")
        client = scene.client("steer", "one more thing", HARNESS_DURABLE_CRASH_AT="steer.accepted")
        assert client.wait(timeout=60) == -signal.SIGKILL
        assert worker.wait(timeout=120) == 0, scene.tail()
        report = await examine(scene)
        assert report.violations == [], scene.tail()
