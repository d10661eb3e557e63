"""A model that does N small, countable effects: for campaigns that kill at random.

Each effect appends one token to a file, so "how often did it happen" is a grep. The model is careful,
as the product's texts ask it to be: where an outcome is not known it looks first, and repeats only
what is not there. So after any number of crashes each token must be there exactly once.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from msgspec import Struct

from harness_durable.testing.provider.messages import (
    Request,
    ToolCall,
    ToolResult,
    results,
    tool_calls,
)
from harness_durable.testing.provider.policies.toolbox import Toolbox, command_of, same_tool
from harness_durable.testing.provider.policies.verdict import verdict
from harness_durable.testing.provider.reply import Block, Reply, Text, ToolUse, say


class Steps(Struct, frozen=True):
    """``steps`` steps; every ``pair_every``-th has two parallel calls (0: none).

    ``effects``: the file, relative to the workspace. ``work``: another one, to which a command appends its
    token as well: that is no effect, and may be lost with the workspace. ``nap``: seconds that a command
    goes on after its effect. ``tag`` begins each token. Every ``custom_every``-th step calls the tool
    ``custom`` with ``{"token": ...}`` instead of the shell (0: none); that tool must append the token to
    the same file. ``patience``: calls for one token before the model gives up with ``GAVE-UP token``.
    """

    steps: int = 5
    pair_every: int = 2
    effects: str = "effects.txt"
    nap: float = 0.15
    tag: str = "s"
    custom: str = "mcp__durable__effect"
    custom_every: int = 0
    patience: int = 20
    start_delay: float = 0.0
    event_delay: float = 0.0
    work: str = ""

    def __call__(self, request: Request) -> Reply:
        if not request.tools:
            return say("no tools, no steps")  # a side request of the harness, such as for a title
        calls, known = tool_calls(request), results(request)
        for step in range(self.steps):
            todo = [use for token in self.tokens(step) for use in self._todo(token, step, request)]
            worn = [t for t in self.tokens(step) if len(self._about(t, calls)) >= self.patience]
            if todo and worn:
                return say(f"GAVE-UP {worn[0]}: {known}"[:500])
            if todo:
                blocks: list[Block] = [Text(f"step {step}"), *todo]
                return Reply(tuple(blocks), start_delay=self.start_delay, event_delay=self.event_delay)
        return Reply((Text("ALL-DONE"),), start_delay=self.start_delay)

    def tokens(self, step: int) -> list[str]:
        """The tokens of a step (counted from 0); a checker expects each exactly once in the file."""
        paired = self.pair_every and step % self.pair_every == self.pair_every - 1
        return [f"{self.tag}{step}{side}" for side in ("ab" if paired else "a")]

    def all_tokens(self) -> list[str]:
        """Every token, in order."""
        return [token for step in range(self.steps) for token in self.tokens(step)]

    def effect_command(self, token: str) -> str:
        """The shell command that does the effect."""
        work = f"echo {token} >> {self.work}; " if self.work else ""
        return f"echo {token} >> {self.effects}; {work}sleep {self.nap}; echo did {token}"

    def check_command(self, token: str) -> str:
        """The shell command that counts the effect and changes nothing."""
        return f"grep -c '^{token}$' {self.effects} || true"

    def _todo(self, token: str, step: int, request: Request) -> Iterator[ToolUse]:
        calls, known = tool_calls(request), results(request)
        effects = [call for call in calls if self._is_effect(call, token)]
        if not effects:
            yield self._effect(token, step, request)
            return
        last = effects[-1]
        outcome = verdict(known.get(last.id))
        if outcome == "done":
            return
        if outcome == "not_started":
            yield self._effect(token, step, request)
            return
        count = self._counted(token, last, calls, known)
        if count is None:
            yield Toolbox(request).bash(self.check_command(token), f"look for {token}")
        elif count == 0:
            yield self._effect(token, step, request)

    def _effect(self, token: str, step: int, request: Request) -> ToolUse:
        tools = Toolbox(request)
        if self.custom_every and step % self.custom_every == self.custom_every - 1:
            return tools.use(self.custom, {"token": token})
        return tools.bash(self.effect_command(token), f"do {token}")

    def _is_effect(self, call: ToolCall, token: str) -> bool:
        custom = same_tool(call.name, self.custom) and call.input.get("token") == token
        return custom or command_of(call) == self.effect_command(token)

    def _about(self, token: str, calls: list[ToolCall]) -> list[ToolCall]:
        check = self.check_command(token)
        return [c for c in calls if self._is_effect(c, token) or command_of(c) == check]

    def _counted(
        self, token: str, after: ToolCall, calls: list[ToolCall], known: dict[str, ToolResult]
    ) -> int | None:
        """What the last look after that call found; None if nobody has looked with success."""
        check = self.check_command(token)
        looks = [call for call in calls if call.at > after.at and command_of(call) == check]
        result = known.get(looks[-1].id) if looks else None
        if result is None or verdict(result) in ("unknown", "not_started"):
            return None
        number = re.search(r"^\s*(\d+)\s*$", result.text, re.MULTILINE)
        return int(number.group(1)) if number else None
