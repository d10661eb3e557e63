"""The model of ``make demo``: repair a small repository, deploy it, and be honest about a lost outcome.

It looks at the last thing that was done and decides what is next; nothing is remembered, so a crash
at any point leads on from there. A deployment whose outcome is unknown is never just repeated: the
model looks at the record first, and its last words say how it knows.
"""

from __future__ import annotations

import re

from harness_durable.testing.provider.messages import Request
from harness_durable.testing.provider.policies.deploy_story import Past, Story
from harness_durable.testing.provider.policies.toolbox import Toolbox
from harness_durable.testing.provider.reply import Block, Reply, Text, say

_FAILING = re.compile(r"FAILED|\bfailed\b|Traceback|\bError\b")
_PASSING = re.compile(r"^OK\b|\b\d+ passed\b", re.MULTILINE)

Next = tuple[Block, ...]


class DeployDemo(Story, frozen=True):
    """``most_calls`` bounds the conversation; ``most_looks`` the tries to read the record."""

    most_calls: int = 40
    most_looks: int = 3
    start_delay: float = 0.0
    event_delay: float = 0.0

    def __call__(self, request: Request) -> Reply:
        if not request.tools:
            return say("Fix and deploy")  # a side request of the harness, such as for a title
        past = self.past(request)
        if len(past) >= self.most_calls:
            return say(f"I stop after {len(past)} calls without an end. {_deploys(past)}")
        blocks = self._next([deed for deed in past if deed.deed != "other"], Toolbox(request))
        return Reply(blocks, start_delay=self.start_delay, event_delay=self.event_delay)

    def _next(self, past: list[Past], tools: Toolbox) -> Next:
        match past[-1] if past else None:
            case Past("deploy", _, _) as deploy:
                return self._after_deploy(deploy, tools)
            case Past("look", _, _) as look:
                return self._after_look(look, past, tools)
            case None | Past("test", "unknown" | "not_started", _):
                return Text("I run the tests."), self.test_use(tools)
            case Past("test", _, _) as test if _passes(test):
                said = Text(f"The tests pass. I deploy {self.version}.")
                return said, self.deploy_use(tools)
            case Past("edit", "done", _):
                return Text("Fixed. I run the tests again."), self.test_use(tools)
            case Past("read", "done", text):
                return self._after_read(text, past, tools)
            case Past("read", "failed", text):
                return (Text(f"I cannot read {self.path} ({_short(text)}). Nothing was deployed."),)
            case _:
                # A failing test, or an edit that may be there or not: see what the file says now.
                return Text(f"I read {self.path}."), self.read_use(tools, past)

    def _after_read(self, text: str, past: list[Past], tools: Toolbox) -> Next:
        if self.fixed in text:
            deeds = [deed.deed for deed in past]
            tested = "edit" in deeds and deeds.index("edit") < max(
                (at for at, deed in enumerate(past) if deed.deed == "test" and _settled(deed)),
                default=-1,
            )
            if tested:
                return (Text("The fix is in place and the tests still fail. Nothing was deployed."),)
            return Text("The fix is in place. I run the tests."), self.test_use(tools)
        if self.broken in text:
            return Text("Here is the mistake."), self.edit_use(tools, past)
        return (Text(f"I do not find the mistake in {self.path}. Nothing was deployed."),)

    def _after_deploy(self, deploy: Past, tools: Toolbox) -> Next:
        match deploy.verdict:
            case "done":
                said = f"{self.version} is deployed; the tool says: {_short(deploy.text)}"
                return (Text(said),)
            case "failed":
                said = f"The deployment of {self.version} failed: {_short(deploy.text)}"
                return (Text(f"{said}. I did not try it again."),)
            case "not_started":
                said = "The deployment never started, so nothing happened. I start it now."
                return Text(said), self.deploy_use(tools)
            case "unknown":
                said = "Whether the deployment happened is not known. I look before I repeat it."
                return Text(said), self.look_use(tools)

    def _after_look(self, look: Past, past: list[Past], tools: Toolbox) -> Next:
        deploys = [at for at, deed in enumerate(past) if deed.deed == "deploy"]
        if not deploys or past[deploys[-1]].verdict != "unknown":
            return Text("I run the tests."), self.test_use(tools)  # somebody else looked
        if look.verdict != "done":
            if len(past) - 1 - deploys[-1] >= self.most_looks:
                said = f"The deployment of {self.version} may or may not have happened"
                return (Text(f"{said}, and I could not read the record. Please check it."),)
            return Text("I could not see the record. I look again."), self.look_use(tools)
        if self.on_record(look.text):
            said = f"{self.version} is deployed: the call was cut off, but it is on record"
            return (Text(f"{said} ({_short(look.text)}). I did not deploy it again."),)
        said = f"The record does not name {self.version}: it did not happen. I deploy it now."
        return Text(said), self.deploy_use(tools)


def _passes(test: Past) -> bool:
    good = test.verdict == "done" and _PASSING.search(test.text) is not None
    return good and not _FAILING.search(test.text)


def _settled(deed: Past) -> bool:
    return deed.verdict in ("done", "failed")


def _deploys(past: list[Past]) -> str:
    outcomes = [deed.verdict for deed in past if deed.deed == "deploy"]
    return f"Outcomes of the deployment: {', '.join(outcomes)}." if outcomes else "Nothing was deployed."


def _short(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= 200 else f"{line[:199]}…"
