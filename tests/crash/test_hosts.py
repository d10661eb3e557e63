"""Another host takes over: one with a home, a run directory and workspaces of its own, on the same database.

The effects' ledger is outside of both, as what a deployment changes would be.
"""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from harness_durable.gateway import wire
from harness_durable.journal import Reader
from harness_durable.journal.requests import body_of
from harness_durable.testing.provider.policies import Steps
from tests.crash.invariants import examine
from tests.crash.scene import MESSAGE, SESSION, Host, Scene, wait_for

DEATHS = ("worker", "harness", "machine")


@pytest.mark.parametrize("death", DEATHS)
async def test_another_host_takes_over_and_the_first_one_cleans_up_when_it_is_back(
    tmp_path: Path, death: str
) -> None:
    """C026. Of a machine that is lost nothing is left; else a life is, which nobody but its host can end."""
    policy = Steps(steps=3, pair_every=2, custom_every=3, nap=0.5)
    with Scene(tmp_path, "postgres", hosts=("one", "two"), policy=policy) as scene:
        one, two = scene.hosts
        worker = scene.worker(MESSAGE, one)
        wait_for(scene.has_effects, "the first effect")
        scene.die(worker, death)
        assert scene.finish(host=two) == 0, scene.tail()
        await _moved(scene, two, before=one)

        assert bool(scene.keepers()) == (death == "worker"), "a host cannot end what runs on another one"
        assert bool(one.lives) == (death != "machine")
        service = scene.service(one)
        wait_for(lambda: scene.said("serves app"), "the first host's worker to be up again")
        wait_for(lambda: not one.lives, "what it had left behind to be ended")
        service.send_signal(signal.SIGTERM)
        assert service.wait(timeout=60) == 0, scene.tail()
        report = await examine(scene)
        assert report.violations == [], scene.tail()
        assert (report.status, report.lives) == ("completed", 2)


async def _moved(scene: Scene, to: Host, before: Host) -> None:
    """The last model call came from there: the harness tells its model that the directory is another one."""
    world = await scene.opened()
    try:
        reader = Reader(world, SESSION)
        state = await reader.load()
        call = list(state.model_calls.values())[-1]
        body = await body_of(reader, state, call.id, wire(call.wire).list_field)
    finally:
        await world.aclose()
    assert f"working directory: {to.workspace} (was {before.workspace})".encode() in body
