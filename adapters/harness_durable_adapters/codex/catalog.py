"""What the harness knows of its models, changed where it must be for calls to be told apart.

The newest models run in "code mode": one call holds a program, which calls tools that no response names. Such
calls could not be gated one by one, so these models are given the ordinary tools, as the older ones are."""

from __future__ import annotations

import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import cast

import anyio.to_thread

from harness_durable.errors import HarnessMissing

from ..common.shapes import Json, decode, encode, objects

SECONDS = 60.0
_TOOLS, _ASIDE = "experimental_supported_tools", "send_user_message_async"
_known: dict[tuple[str, int, int], list[Json]] = {}
"""Path, size and time of change of a binary -> its models."""


async def catalog(binary: str, model: str, tools: Sequence[str] | None) -> bytes | None:
    """A catalog with this one model for a life; ``None`` if the harness's own will do. Raises
    ``HarnessMissing`` if the binary does not start."""
    models = await anyio.to_thread.run_sync(_models, binary)
    known = next((entry for entry in models if entry.get("slug") == model), None)
    changed = direct(known, patch=tools is None or "apply_patch" in tools) if known is not None else None
    return encode({"models": [changed]}) if changed is not None and changed != known else None


def direct(entry: Json, *, patch: bool) -> Json:
    """A model's entry without code mode, subagents, and words to people that are answered after the turn went
    on, if at all; ``patch``: with the tool that changes files. Pure."""
    changed = {name: value for name, value in entry.items() if name != "multi_agent_version"}
    tools = entry.get(_TOOLS)
    if isinstance(tools, list):
        changed[_TOOLS] = [one for one in cast(list[object], tools) if one != _ASIDE]
    if entry.get("tool_mode"):
        changed |= {"tool_mode": "direct", "use_responses_lite": False}
    if not patch:
        changed["apply_patch_tool_type"] = None
    return changed


def _models(binary: str) -> list[Json]:
    status = Path(binary).stat()
    key = (binary, status.st_size, status.st_mtime_ns)
    if key not in _known:
        _known[key] = _asked(binary)
    return _known[key]


def _asked(binary: str) -> list[Json]:
    with tempfile.TemporaryDirectory(prefix="harness-durable-models-") as home:
        nowhere = {"CODEX_HOME": home, "HOME": home, "TMPDIR": home, "PATH": "/usr/bin:/bin"}
        try:
            told = subprocess.run(
                [binary, "debug", "models"], capture_output=True, env=nowhere, timeout=SECONDS, check=False
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            raise HarnessMissing(
                f"{binary} cannot tell its models ({error}); run `harness-durable install codex` again"
            ) from error
    return objects((decode(told.stdout) or {}).get("models"))
