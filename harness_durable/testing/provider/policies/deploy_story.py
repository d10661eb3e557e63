"""The parts of the demo's story: its names, its tool calls, and how they are recognised afterwards.

Works with any harness that has a shell; the file tools are used where they are offered in the form
that we know.
"""

from __future__ import annotations

import re
import shlex
from typing import Literal

from msgspec import Struct

from harness_durable.testing.provider.messages import Request, ToolCall, results, tool_calls
from harness_durable.testing.provider.policies.toolbox import Toolbox, command_of, same_tool
from harness_durable.testing.provider.policies.verdict import Verdict, verdict
from harness_durable.testing.provider.reply import ToolUse

Deed = Literal["test", "read", "edit", "deploy", "look", "other"]
_REPLACE = (
    "import pathlib,sys; p=pathlib.Path(sys.argv[1]); "
    "p.write_text(p.read_text().replace(sys.argv[2],sys.argv[3],1))"
)
_FOLDER = re.compile(r"^/.*$", re.MULTILINE)


class Past(Struct, frozen=True):
    """One finished call: what it was, what is known of it, what came back."""

    deed: Deed
    verdict: Verdict
    text: str


class Story(Struct, frozen=True):
    """``path`` is relative to the workspace; ``look`` must not change anything."""

    test: str = "python3 -m unittest -q"
    path: str = "pricing.py"
    broken: str = "return price * percent"
    fixed: str = "return price * percent / 100"
    deploy: str = "mcp__durable__deploy"
    version: str = "1.4.2"
    look: str = "cat deployments.log 2>/dev/null || echo 'there is no deployments.log'"

    def past(self, request: Request) -> list[Past]:
        """Everything that was done so far, in order."""
        known = results(request)
        found: list[Past] = []
        for call in tool_calls(request):
            result = known.get(call.id)
            found.append(Past(self._deed(call), verdict(result), result.text if result else ""))
        return found

    def test_use(self, tools: Toolbox) -> ToolUse:
        """Run the tests; the folder is printed first, for tools that want whole paths."""
        return tools.bash(f"pwd; {self.test}", "run the tests")

    def read_use(self, tools: Toolbox, past: list[Past]) -> ToolUse:
        """Read the file."""
        if tools.takes("Read", "file_path"):
            return tools.use("Read", {"file_path": self._whole_path(past)})
        if tools.takes("Read", "path"):
            return tools.use("Read", {"path": self.path})
        return tools.bash(f"cat {shlex.quote(self.path)}", f"read {self.path}")

    def edit_use(self, tools: Toolbox, past: list[Past]) -> ToolUse:
        """Replace the broken line."""
        if tools.takes("Edit", "old_string"):
            change: dict[str, object] = {"old_string": self.broken, "new_string": self.fixed}
            return tools.use("Edit", {"file_path": self._whole_path(past), **change})
        if tools.takes("Edit", "edits"):
            changes = [{"oldText": self.broken, "newText": self.fixed}]
            return tools.use("Edit", {"path": self.path, "edits": changes})
        return tools.bash(self._edit_command(), f"fix {self.path}")

    def deploy_use(self, tools: Toolbox) -> ToolUse:
        """Deploy: the one thing that must not happen twice."""
        return tools.use(self.deploy, {"version": self.version})

    def look_use(self, tools: Toolbox) -> ToolUse:
        """Look whether a deployment is on record."""
        return tools.bash(self.look, "look for the deployment")

    def on_record(self, text: str) -> bool:
        """Whether the record that ``look`` printed names this version."""
        return re.search(rf"(?<![\w.]){re.escape(self.version)}(?!\w)", text) is not None

    def _deed(self, call: ToolCall) -> Deed:
        if same_tool(call.name, self.deploy):
            return "deploy"
        if same_tool(call.name, "Read"):
            return "read"
        if same_tool(call.name, "Edit"):
            return "edit"
        by_command: dict[str, Deed] = {
            f"pwd; {self.test}": "test",
            f"cat {shlex.quote(self.path)}": "read",
            self._edit_command(): "edit",
            self.look: "look",
        }
        return by_command.get(command_of(call), "other")

    def _edit_command(self) -> str:
        return shlex.join(["python3", "-c", _REPLACE, self.path, self.broken, self.fixed])

    def _whole_path(self, past: list[Past]) -> str:
        printed = (_FOLDER.search(deed.text) for deed in past if deed.deed == "test")
        folder = next((found.group() for found in printed if found), "")
        return f"{folder.rstrip('/')}/{self.path}" if folder else self.path
