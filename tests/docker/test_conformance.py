"""The promises of a sandbox, kept by the Docker one."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from harness_durable.sandbox import LifeRef, Sandbox
from harness_durable.testing.sandboxes import PROMISES, Make, Place, Promise, check_promise
from harness_durable_sandboxes.docker import DockerSandbox
from tests.docker.engine_kit import IMAGE, Engine


def docker(run_dir: Path) -> Make:
    @asynccontextmanager
    async def make() -> AsyncGenerator[Sandbox]:
        sandbox = DockerSandbox(run_dir, {"image": IMAGE})
        yield sandbox
        await sandbox.aclose()
        assert not list((run_dir / "docker").glob("[!.]*")), "something was left behind"

    return make


@pytest.mark.parametrize("promise", PROMISES, ids=lambda promise: promise.id)
async def test_the_docker_sandbox_keeps(
    promise: Promise, engine: Engine, workspace: Path, tmp_path: Path
) -> None:
    def kill_keeper(ref: LifeRef) -> None:
        with engine.api() as api:
            [one] = api.containers(filters={"label": f"harness-durable.life={ref.life}"})
            api.kill(one["Id"])

    place = Place(workspace, kill_keeper=kill_keeper)
    result = await check_promise(promise, docker(tmp_path / "run"), place)
    assert result.ok, result.detail
