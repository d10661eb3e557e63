"""A session with a real Pi, a scripted model and a World of its own."""

from __future__ import annotations

from harness_durable.testing.provider import ToolUse
from harness_durable_adapters.pi import install
from tests.harness.claude_rig import SESSION as SESSION
from tests.harness.claude_rig import Rig

VERSIONS = install.SUPPORTED


class PiRig(Rig):
    """Use ``PiRig.open`` with ``tools=None``: Pi's own."""

    adapter = "pi"
    mark = b"pi\0\0"  # it calls itself so
    install = staticmethod(install.install)


def bash(command: str, call: str = "") -> ToolUse:
    """A shell command."""
    return ToolUse("bash", {"command": command}, id=call)
