"""The demo's tool. Its effect is one line in a file, so that everyone can count how often it happened."""

from __future__ import annotations

import os
from pathlib import Path

from harness_durable.tools import tool

RECORD = "HARNESS_DURABLE_DEMO_RECORD"
"""Environment variable: the file to which a deployment adds its line."""


@tool(replay="never")
def deploy(version: str) -> str:
    """Put a version into production. Cannot be undone."""
    with Path(os.environ[RECORD]).open("a") as record:
        record.write(f"deployed {version}\n")
    return f"deployed {version}"
