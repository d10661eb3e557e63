from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.kit import Cli
from tests.worlds.postgres_support import cluster


@pytest.fixture
def cli(tmp_path: Path) -> Cli:
    return Cli(tmp_path, "sqlite:world.db")


@pytest.fixture(params=["sqlite:world.db", "file:world"])
def either(tmp_path: Path, request: pytest.FixtureRequest) -> Cli:
    """On each World in turn."""
    return Cli(tmp_path, request.param)


@pytest.fixture
def postgres(tmp_path: Path) -> Cli:
    return Cli(tmp_path, cluster().url())


@pytest.fixture(params=["sqlite:world.db", "file:world", "postgresql:"])
def shared(tmp_path: Path, request: pytest.FixtureRequest) -> Cli:
    """On each World in turn, also on one that is no place on this host."""
    return Cli(tmp_path, cluster().url() if request.param == "postgresql:" else request.param)
