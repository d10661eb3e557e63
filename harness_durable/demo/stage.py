"""What the demo needs around it: a repository with a failing test, and a scripted provider."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, cast

from harness_durable.errors import ProviderError

PRICING = '''"""Prices."""


def discount(price: float, percent: float) -> float:
    """What is taken off the price."""
    return price * percent
'''

TEST_PRICING = """import unittest

from pricing import discount


class Discount(unittest.TestCase):
    def test_ten_percent(self) -> None:
        self.assertEqual(discount(200, 10), 20)
"""


_SOMEBODY = 1000


class Stage:
    """Folders and files of one demo, all below ``root``."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.workspace = root / "shop"
        self.record = self.workspace / "deployments.log"
        self.ledger = root / "provider.jsonl"
        self.run_dir = root / "run"

    def set_up(self) -> None:
        """A small repository whose one test fails."""
        self.workspace.mkdir(parents=True)
        (self.workspace / "pricing.py").write_text(PRICING)
        (self.workspace / "test_pricing.py").write_text(TEST_PRICING)

    def give_away(self) -> None:
        """To an ordinary user, if we are root: behind a wall no agent works on root's files."""
        if os.getuid() == 0:
            for path in (self.workspace, *self.workspace.iterdir()):
                os.chown(path, _SOMEBODY, _SOMEBODY)

    @property
    def effects(self) -> int:
        """How often the deployment really happened."""
        return len(self.record.read_text().splitlines()) if self.record.exists() else 0

    @contextmanager
    def provider(self, policy: str = "deploy_demo", *more: str) -> Generator[str]:
        """A scripted provider in its own process, which outlives the workers; its URL."""
        command = [sys.executable, "-m", "harness_durable.testing.provider", "--policy", policy]
        process = subprocess.Popen(
            [*command, "--ledger", str(self.ledger), *more], stdout=subprocess.PIPE, text=True
        )
        out = cast(IO[str], process.stdout)
        try:
            url = out.readline().strip()
            if not url:
                raise ProviderError("the scripted provider did not start; run its module by hand to see why")
            yield url
        finally:
            process.terminate()
            process.wait()
            out.close()

    def environment(self, url: str, world: str) -> dict[str, str]:
        """The environment of a worker: as if a person had set the variables."""
        return {
            **os.environ,
            "HARNESS_DURABLE_WORLD": world,
            "HARNESS_DURABLE_RUN_DIR": str(self.run_dir),
            "HARNESS_DURABLE_UPSTREAM_URL": url,
            "HARNESS_DURABLE_UPSTREAM_KEY": "sk-demo-not-a-real-key",
            "HARNESS_DURABLE_DEMO_RECORD": str(self.record),
        }
