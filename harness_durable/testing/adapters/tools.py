"""The custom tool that workers have during the checks. Its effect is a line in a file, so that it can be
counted from outside."""

from __future__ import annotations

import os
from pathlib import Path

from harness_durable.tools import tool

EFFECTS = "HARNESS_DURABLE_CHECK_EFFECTS"
"""Environment variable: the file to which each effect adds its line."""


@tool(replay="never")
def effect(token: str) -> str:
    """Do the effect of this token, once."""
    with Path(os.environ[EFFECTS]).open("a") as effects:
        effects.write(f"{token}\n")
    return f"did {token}"
