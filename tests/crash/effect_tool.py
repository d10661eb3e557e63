"""The crash suite's custom tool: one effect, one line in the same ledger that the shell commands write."""

from __future__ import annotations

import os
import time
from pathlib import Path

from harness_durable import tool


@tool(replay="never")
def effect(token: str) -> str:
    """Do the effect of this token, once."""
    with (Path(os.environ["CRASH_EFFECTS"])).open("a") as ledger:
        ledger.write(f"{token}\n")
    time.sleep(0.1)
    return f"did {token}"
