"""A session with a real Codex binary, a scripted model and a World of its own."""

from __future__ import annotations

from harness_durable.testing.provider import ToolUse
from harness_durable_adapters.codex import install
from tests.harness.claude_rig import SESSION as SESSION
from tests.harness.claude_rig import Rig

VERSIONS = install.SUPPORTED


class CodexRig(Rig):
    """Use ``CodexRig.open`` with ``tools=None``: Codex's own."""

    adapter, model = "codex", "gpt-5.5"
    mark = b"app-server"
    install = staticmethod(install.install)


def bash(command: str, call: str = "", **more: object) -> ToolUse:
    """A shell command."""
    return ToolUse("exec_command", {"cmd": command, **more}, id=call)


def patch(path: str, line: str, call: str = "") -> ToolUse:
    """A new file of one line."""
    text = f"*** Begin Patch\n*** Add File: {path}\n+{line}\n*** End Patch\n"
    return ToolUse("apply_patch", {"input": text}, id=call)
