"""Every example runs as it is, without a key, and says what its page promises."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[2] / "examples"
SAID = {
    "survive_kill.py": ["1 call(s) unknown", "deployments.log: ['deployed 1.4.2']", "completed"],
    "tool_with_probe.py": ["0 call(s) unknown", "Orders: ['1 kettle']", "completed"],
    "recorded_crash.py": ["Life 1 died", "It names the folder 0 times."],
    "pick_a_world.py": ["TurnCompleted", "hello, said the shell"],
}


def run(name: str, folder: Path, **env: str) -> str:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("ANTHROPIC_")}
    done = subprocess.run(
        [sys.executable, "-W", "error", EXAMPLES / name],
        cwd=folder,
        env=kept | env,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    return done.stdout


def test_every_example_is_on_the_page_and_tested() -> None:
    found = {path.name for path in EXAMPLES.glob("[!_]*.py")}
    page = (EXAMPLES / "README.md").read_text()
    assert found == set(SAID)
    assert all(f"`{name}`" in page for name in found)


@pytest.mark.parametrize("name", SAID)
def test_an_example_tells_its_story(name: str, tmp_path: Path) -> None:
    said = run(name, tmp_path)
    assert all(words in said for words in SAID[name]), said
    assert list(tmp_path.iterdir()) == []


def test_the_world_is_picked_by_a_variable(tmp_path: Path) -> None:
    assert "The log is in file:" in run("pick_a_world.py", tmp_path, HARNESS_DURABLE_WORLD="file:log")
    assert "The log is in sqlite:" in run("pick_a_world.py", tmp_path)
