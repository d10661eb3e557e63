"""Calling tools by what they do, whatever the harness calls them.

One harness offers ``Bash``, another ``bash`` or ``exec_command``; ``mcp__durable__deploy`` is
``durable_deploy`` elsewhere. A policy names the first form, and what is offered decides.
"""

from __future__ import annotations

from msgspec import Struct

from harness_durable.testing.provider.messages import OfferedTool, Request, ToolCall
from harness_durable.testing.provider.reply import ToolUse

_COMMANDS = ("command", "cmd")
"""What harnesses call the argument of their shell."""
_OTHERS = {"Bash": ("exec_command", "shell_command")}
"""Names of a tool that have nothing in common with the one that a policy uses."""


class Toolbox(Struct, frozen=True):
    """The tools that one request offers."""

    request: Request

    def use(self, wanted: str, arguments: dict[str, object]) -> ToolUse:
        """A call of ``wanted`` under the offered name; as named if nothing similar is offered."""
        offered = self._find(wanted)
        return ToolUse(wanted if offered is None else offered.name, arguments)

    def bash(self, command: str, why: str) -> ToolUse:
        """A shell command, with a description where the tool takes one."""
        described = {"description": why} if self.takes("Bash", "description") else {}
        name = next((name for name in _COMMANDS if self.takes("Bash", name)), _COMMANDS[0])
        return self.use("Bash", {name: command, **described})

    def takes(self, wanted: str, parameter: str) -> bool:
        """Whether ``wanted`` is offered and its schema names ``parameter``."""
        offered = self._find(wanted)
        return offered is not None and offered.takes(parameter)

    def _find(self, wanted: str) -> OfferedTool | None:
        tools = self.request.tools
        exact = [tool for tool in tools if tool.name == wanted]
        similar = [tool for tool in tools if same_tool(tool.name, wanted)]
        others = [tool for tool in tools if tool.name in _OTHERS.get(wanted, ())]
        return next(iter([*exact, *similar, *others]), None)


def same_tool(name: str, wanted: str) -> bool:
    """Whether a harness's ``name`` is the tool that a policy calls ``wanted``."""
    bare = wanted.rpartition("__")[2].lower()
    return name.lower() == bare or name.lower().endswith(f"_{bare}")


def command_of(call: ToolCall) -> str:
    """The shell command of a call; empty for other tools."""
    found = (call.input.get(name) for name in _COMMANDS)
    return next((command for command in found if isinstance(command, str)), "")
