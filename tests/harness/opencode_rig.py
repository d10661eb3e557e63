"""A session with a real OpenCode binary, a scripted model and a World of its own."""

from __future__ import annotations

from harness_durable.testing.provider import ToolUse
from harness_durable_adapters.opencode import install
from tests.harness.claude_rig import SESSION as SESSION
from tests.harness.claude_rig import Rig

VERSIONS = install.SUPPORTED


class OpenCodeRig(Rig):
    """Use ``OpenCodeRig.open`` with ``tools=None``: the adapter's own."""

    adapter, model = "opencode", "model-x"
    mark = b"serve"
    install = staticmethod(install.install)


def bash(command: str, call: str = "") -> ToolUse:
    """A shell command."""
    return ToolUse("bash", {"command": command, "description": "test"}, id=call)
