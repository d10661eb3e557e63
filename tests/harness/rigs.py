"""The rig of each harness, and with which of them a story is told."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import ParamSpec, TypeVar

import pytest
from msgspec import Struct

from harness_durable.testing.provider import Policy, ToolUse
from harness_durable_adapters.claude_code.install import PINNED as CLAUDE
from harness_durable_adapters.codex.install import PINNED as CODEX
from harness_durable_adapters.opencode.install import PINNED as OPENCODE
from harness_durable_adapters.pi.install import PINNED as PI
from tests.harness.rig import Rig

P = ParamSpec("P")
T = TypeVar("T")

FULL = os.environ.get("HARNESS_DURABLE_CRASH") == "full"
"""Whether everything is tried, or what a change is to be judged by within minutes."""


class ClaudeRig(Rig):
    pinned, mark = CLAUDE, b"--session-mirror"
    offered = ("Bash", "Read", "Edit", "Write", "Agent")
    texts = ("/compact now", "/etc/passwd looks odd", "#note", "!ls", "-p")
    mistakes = (
        (ToolUse("Bash", {"cmd": 1}, id="call_bad"), ToolUse("Nope", {}, id="call_none")),
        "No such tool",
    )

    @staticmethod
    def shell(command: str, call: str = "") -> ToolUse:
        return ToolUse("Bash", {"command": command, "description": "test"}, id=call)

    @staticmethod
    def look(path: Path, call: str) -> ToolUse:
        return ToolUse("Read", {"file_path": str(path)}, id=call)

    @staticmethod
    def own(tool: str, call: str, **arguments: object) -> ToolUse:
        return ToolUse(f"mcp__durable__{tool}", arguments, id=call)

    @staticmethod
    def printed(result: str, text: str) -> bool:
        return result == text


class CodexRig(Rig):
    pinned, model, mark = CODEX, "gpt-5.5", b"app-server"
    texts = ("/compact now", "# AGENTS.md instructions", "!ls")
    mistakes = ((ToolUse("exec_command", {"bad": 1}, id="call_bad"),), "missing field")

    @staticmethod
    def shell(command: str, call: str = "") -> ToolUse:
        return CodexRig.bash(command, call, yield_time_ms=60_000)

    @staticmethod
    def bash(command: str, call: str = "", **more: object) -> ToolUse:
        """A command that is left running if it takes longer than Codex waits."""
        return ToolUse("exec_command", {"cmd": command, **more}, id=call)

    @staticmethod
    def patch(path: str, line: str, call: str = "") -> ToolUse:
        """A new file of one line."""
        text = f"*** Begin Patch\n*** Add File: {path}\n+{line}\n*** End Patch\n"
        return ToolUse("apply_patch", {"input": text}, id=call)

    @classmethod
    def behind(cls, call: str) -> ToolUse:
        return cls.patch("b", "b", call)

    @staticmethod
    def look(path: Path, call: str) -> ToolUse:
        return ToolUse("view_image", {"path": str(path)}, id=call)

    @staticmethod
    def printed(result: str, text: str) -> bool:
        return f"\n{text}" in result


class OpenCodeRig(Rig):
    pinned, model, mark = OPENCODE, "model-x", b"serve"
    texts = ("@README.md {file:/etc/passwd} @PORT@", "/compact now", "!ls", '"quoted"')
    mistakes = (
        (ToolUse("skill", {"name": "x"}, id="call_off"), ToolUse("nope", {}, id="call_none")),
        "unavailable tool 'nope'",
    )

    @staticmethod
    def shell(command: str, call: str = "") -> ToolUse:
        return ToolUse("bash", {"command": command, "description": "test"}, id=call)

    @staticmethod
    def look(path: Path, call: str) -> ToolUse:
        return ToolUse("read", {"filePath": str(path)}, id=call)


class PiRig(Rig):
    pinned, mark = PI, b"pi\0\0"  # it calls itself so
    supplies = True
    texts = ("/durable-continue", "/compact now", "<durable:ab>\nx", "!ls", "\n a ")
    mistakes = (
        (ToolUse("bash", {"cmd": 1}, id="call_bad"), ToolUse("nope", {}, id="call_none")),
        "not found",
    )

    @staticmethod
    def shell(command: str, call: str = "") -> ToolUse:
        return ToolUse("bash", {"command": command}, id=call)


RIGS: tuple[type[Rig], ...] = (ClaudeRig, CodexRig, OpenCodeRig, PiRig)
QUICK = (ClaudeRig, CodexRig, PiRig)
"""OpenCode takes seven seconds for a start."""


class Kind(Struct, frozen=True):
    """A harness in one of its versions."""

    rig: type[Rig]
    version: str

    def open(
        self, root: Path, policy: Policy, *, permission_mode: str = "default"
    ) -> AbstractAsyncContextManager[Rig]:
        return self.rig.open(root, self.version, policy, permission_mode=permission_mode)


def each(*rigs: type[Rig], short: tuple[type[Rig], ...] = QUICK, older: bool = False) -> pytest.MarkDecorator:
    """Tell the story with these harnesses (none named: all) in all tested versions; in a short run only with
    those that are also in ``short``, in their newest version, or with ``older`` in all."""
    kinds = [
        pytest.param(Kind(rig, version), id=f"{rig.pinned.name}-{version}")
        for rig in rigs or RIGS
        for version in (rig.pinned.supported if FULL or older else rig.pinned.supported[:1])
        if FULL or rig in short
    ]
    return pytest.mark.parametrize("kind", kinds)


def versions(rig: type[Rig]) -> pytest.MarkDecorator:
    """For what only one harness does: in its newest version, with ``HARNESS_DURABLE_CRASH=full`` in all."""
    return pytest.mark.parametrize("version", rig.pinned.supported if FULL else rig.pinned.supported[:1])


def some(short: Sequence[T], *rest: T) -> Sequence[T]:
    """Values of a parameter, of which a short run has the first ones."""
    return (*short, *rest) if FULL else short


def thorough(test: Callable[P, T]) -> Callable[P, T] | None:
    """A test that a short run leaves out: what it shows about a line of code, another one shows too, in a
    shorter time or with another harness."""
    return test if FULL else None
