from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.kit import Cli


@pytest.fixture
def cli(tmp_path: Path) -> Cli:
    return Cli(tmp_path, "sqlite:world.db")


@pytest.fixture(params=["sqlite:world.db", "file:world"])
def either(tmp_path: Path, request: pytest.FixtureRequest) -> Cli:
    """On each World in turn."""
    return Cli(tmp_path, request.param)
