"""One engine for all tests of a process, and a folder that belongs to an ordinary user."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from harness_durable_sandboxes.docker import DockerSandbox
from tests.docker.engine_kit import IMAGE, Engine, given, running


@pytest.fixture(scope="session")
def started() -> Iterator[Engine]:
    with running() as engine:
        yield engine


@pytest.fixture
def engine(started: Engine, monkeypatch: pytest.MonkeyPatch) -> Iterator[Engine]:
    """It holds nothing when a test begins, and nothing when it ends."""
    monkeypatch.setenv("DOCKER_HOST", started.url)
    assert started.names() == []
    yield started
    left = started.names()
    with started.api() as api:
        for name in left:
            api.remove_container(name, v=True, force=True)
    assert left == [], "containers were left behind"


@pytest.fixture
def sandbox(engine: Engine, tmp_path: Path) -> DockerSandbox:
    return DockerSandbox(tmp_path / "run", {"image": IMAGE})


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    folder = tmp_path / "work"
    folder.mkdir()
    return given(folder)
