"""The harness's own login, for people who have no key. Opt-in, because with it credentials enter the sandbox.

The token of this life then travels in the path of the base URL, since the headers carry the login.
"""

from __future__ import annotations

import os
from pathlib import Path

from harness_durable.errors import BadSetting

VARIABLES = ("CLAUDE_CODE_OAUTH_TOKEN", "ANTHROPIC_AUTH_TOKEN")
"""Environment variables of the worker that hold a login."""

_FILE = ".credentials.json"


def variables() -> dict[str, str]:
    """Logins in the worker's environment."""
    return {name: os.environ[name] for name in VARIABLES if os.environ.get(name)}


def credentials() -> bytes | None:
    """The user's stored login, if there is one."""
    config = os.environ.get("CLAUDE_CONFIG_DIR")
    folder = Path(config) if config else Path.home() / ".claude"
    try:
        return (folder / _FILE).read_bytes()
    except OSError:
        return None


def files(config: str) -> dict[str, bytes]:
    """What goes into the harness's home. Raises ``BadSetting`` if nobody is logged in."""
    stored = credentials()
    if stored is not None:
        return {f"{config}/{_FILE}": stored}
    if variables():
        return {}
    raise BadSetting(
        "HARNESS_DURABLE_UPSTREAM_AUTH=login needs a login of Claude Code on this machine: run `claude` and "
        f"log in, set {VARIABLES[0]}, or use a key instead"
    )
