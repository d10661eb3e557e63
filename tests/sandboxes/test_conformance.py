"""The promises of a sandbox, kept by the local one."""

from __future__ import annotations

import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from harness_durable.sandbox import LifeRef, Sandbox
from harness_durable.testing.sandboxes import PROMISES, Make, Place, Promise, check_promise
from harness_durable_sandboxes import processes
from harness_durable_sandboxes.launch import Isolation
from harness_durable_sandboxes.local import LocalSandbox


def local(tmp_path: Path, isolation: Isolation) -> Make:
    @asynccontextmanager
    async def make() -> AsyncGenerator[Sandbox]:
        sandbox = LocalSandbox(tmp_path / "lives", isolation)
        yield sandbox
        await sandbox.aclose()
        assert not list((tmp_path / "lives").glob("[!.]*")), "something was left behind"

    return make


def kill_keeper(ref: LifeRef) -> None:
    processes.kill(processes.keeper_of(Path(ref.run_dir) / "keeper"))


@pytest.mark.parametrize("isolation", ["auto", "guard"])
@pytest.mark.parametrize("promise", PROMISES, ids=lambda promise: promise.id)
async def test_the_local_sandbox_keeps(promise: Promise, isolation: Isolation, tmp_path: Path) -> None:
    place = Place(tmp_path, python=sys.executable, kill_keeper=kill_keeper)
    result = await check_promise(promise, local(tmp_path, isolation), place)
    assert result.ok, result.detail
