"""A person is asked, and the worker dies while they think. And what nobody may read: the provider's key."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path
from urllib.parse import quote

import pytest

from harness_durable.testing.provider.policies.steps import Steps
from tests.crash.invariants import examine
from tests.crash.scene import FULL, KEY, SESSION, WORLDS, Scene, wait_for
from tests.worlds.postgres_support import Cluster

PEOPLE = [
    pytest.param(world, death, id=f"{world}-{death}")
    for world in WORLDS
    for death in ("worker", "harness", "machine")
    if FULL or (world, death) == ("postgres", "harness") or world != "postgres"
]


@pytest.mark.parametrize(("world", "death"), PEOPLE)
async def test_a_permission_survives_who_asked_for_it(tmp_path: Path, world: str, death: str) -> None:
    """C067: asked before a crash, answered after it; the call runs once."""
    policy = Steps(steps=1, pair_every=0)
    with Scene(tmp_path, world, policy=policy) as scene:
        crash = {"HARNESS_DURABLE_CRASH_AT": "permission.asked", "HARNESS_DURABLE_CRASH_DEATH": death}
        assert scene.worker(options=("--ask",), **crash).wait(timeout=120) == -signal.SIGKILL, scene.tail()
        request = await asked(scene)
        assert not scene.has_effects()
        worker = scene.worker(options=("--ask",))
        assert scene.client("answer", request, "--allow").wait(timeout=60) == 0, scene.tail()
        assert worker.wait(timeout=120) == 0, scene.tail()
        report = await examine(scene)
        assert report.violations == [], scene.tail()


async def asked(scene: Scene) -> str:
    """The id of the one request that waits for a person."""
    from harness_durable.journal import Reader

    world = await scene.opened()
    try:
        state = await Reader(world, SESSION).load()
    finally:
        await world.aclose()
    (request,) = state.permissions
    return request


@pytest.mark.parametrize("world", WORLDS)
def test_the_providers_key_is_nowhere_but_in_the_worker(tmp_path: Path, world: str) -> None:
    """In the environment of the keeper, the harness and a running command; in files, log and trace. Nor is
    the password of the database."""
    secrets = (KEY.encode(), Cluster.password.encode(), quote(Cluster.password, safe="").encode())
    policy = Steps(steps=1, pair_every=0, nap=3.0)
    with Scene(tmp_path, world, policy=policy) as scene:
        worker = scene.worker()
        wait_for(scene.has_effects, "a running command")
        held = [pid for pid in scene.processes() if pid != worker.pid]
        assert len(held) >= 3, "keeper, harness and command"
        for pid in held:
            for secret in secrets:
                assert secret not in Path(f"/proc/{pid}/environ").read_bytes()
                assert secret not in Path(f"/proc/{pid}/cmdline").read_bytes()
        assert [scene.files_with(secret) for secret in secrets] == [[], [], []]
        assert worker.wait(timeout=120) == 0, scene.tail()
        command = [sys.executable, "-m", "harness_durable.cli.main", "trace", SESSION]
        place = ["--world", scene.world, "--app", scene.app]
        told = subprocess.run([*command, "--json", *place], capture_output=True, check=True)
        assert told.stdout
        assert KEY.encode() not in told.stdout
        assert scene.files_with(KEY.encode()) == []
