"""The crash suite's custom tools: one effect, one line in the same ledger that the shell commands write."""

from __future__ import annotations

import os
import time
from pathlib import Path

from harness_durable import NOT_HAPPENED, tool


@tool(replay="never")
def effect(token: str) -> str:
    """Do the effect of this token, once."""
    with (Path(os.environ["CRASH_EFFECTS"])).open("a") as ledger:
        ledger.write(f"{token}\n")
    time.sleep(0.1)
    return f"did {token}"


def _is_done(token: str) -> object:
    """The truth of this moment; it knows nothing of a call that is still under way."""
    return f"did {token}" if token in Path(os.environ["CRASH_EFFECTS"]).read_text().split() else NOT_HAPPENED


@tool(replay="never", probe=_is_done)
def late_effect(token: str) -> str:
    """Say that it begins, and do the effect a second later."""
    Path(f"{os.environ['CRASH_EFFECTS']}.{token}.begun").touch()
    time.sleep(1.0)
    return effect(token)
