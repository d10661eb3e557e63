"""Calling tools by what they do, whatever the harness calls them.

One harness offers ``Bash``, another ``bash``; ``mcp__durable__deploy`` is ``durable_deploy``
elsewhere. A policy names the first form, and what is offered decides.
"""

from __future__ import annotations

from msgspec import Struct

from harness_durable.testing.provider.messages import OfferedTool, Request, ToolCall
from harness_durable.testing.provider.reply import ToolUse


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
        return self.use("Bash", {"command": command, **described})

    def takes(self, wanted: str, parameter: str) -> bool:
        """Whether ``wanted`` is offered and its schema names ``parameter``."""
        offered = self._find(wanted)
        return offered is not None and offered.takes(parameter)

    def _find(self, wanted: str) -> OfferedTool | None:
        tools = self.request.tools
        exact = [tool for tool in tools if tool.name == wanted]
        return next(iter(exact or [tool for tool in tools if same_tool(tool.name, wanted)]), None)


def same_tool(name: str, wanted: str) -> bool:
    """Whether a harness's ``name`` is the tool that a policy calls ``wanted``."""
    bare = wanted.rpartition("__")[2].lower()
    return name.lower() == bare or name.lower().endswith(f"_{bare}")


def command_of(call: ToolCall) -> str:
    """The shell command of a call; empty for other tools."""
    command = call.input.get("command")
    return command if isinstance(command, str) else ""
