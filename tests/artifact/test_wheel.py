"""The artifact: the wheel, in an empty environment, away from the checkout."""

from __future__ import annotations

import json
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGES = (
    "harness_durable",
    "harness_durable_adapters",
    "harness_durable_worlds",
    "harness_durable_sandboxes",
)


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    command = [
        sys.executable,
        "-m",
        "pip",
        "wheel",
        "--quiet",
        "--no-deps",
        "--wheel-dir",
        str(folder),
        str(ROOT),
    ]
    subprocess.run(command, check=True)
    return next(folder.glob("*.whl"))


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The ``bin`` of a fresh environment with nothing but the wheel and what it asks for."""
    place = tmp_path_factory.mktemp("installed")
    subprocess.run([sys.executable, "-m", "venv", str(place)], check=True)
    subprocess.run([str(place / "bin/python"), "-m", "pip", "install", "--quiet", str(wheel)], check=True)
    yield place / "bin"


def test_the_wheel_holds_the_four_packages_and_nothing_else(wheel: Path) -> None:
    names = zipfile.ZipFile(wheel).namelist()
    tops = {name.split("/")[0] for name in names}
    assert {top for top in tops if not top.endswith(".dist-info")} == set(PACKAGES)
    assert all(f"{package}/py.typed" in names for package in PACKAGES)
    assert wheel.stat().st_size < 2 << 20
    page = {path.name for path in (ROOT / "harness_durable/view/static").iterdir()}
    assert {f"harness_durable/view/static/{name}" for name in page} <= set(names)


def test_the_demo_runs_from_the_wheel(installed: Path, tmp_path: Path) -> None:
    command = [str(installed / "harness-durable"), "demo", "--json"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=170)
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout.splitlines()[-1])
    assert (told["status"], told["effects"], told["unknown"], told["paid_twice"]) == ("completed", 1, 1, 0)


@pytest.mark.parametrize("url", ["file:store", "sqlite:store.db"])
def test_a_world_is_checked_from_the_wheel(url: str, installed: Path, tmp_path: Path) -> None:
    command = [str(installed / "harness-durable"), "worlds", "check", url, "--json", "--slack", "20"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=170)
    assert done.returncode == 0, done.stdout + done.stderr
    rows = [json.loads(line) for line in done.stdout.splitlines()]
    assert [row["id"] for row in rows] == [f"W{n}" for n in range(1, 15)]
    assert all(row["ok"] and row["tried"] for row in rows)
    assert not list(tmp_path.glob("*-check-*"))
