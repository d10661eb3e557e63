"""A model for sessions with many messages: each message asks for effects of its own, told in its text.

The provider is started with ``tests.crash.chores:chores``. As every policy does, it decides from the request
alone.
"""

from __future__ import annotations

import re
from pathlib import Path

import msgspec

from harness_durable import clock
from harness_durable.errors import StorageError
from harness_durable.runtime.api import Durable
from harness_durable.testing.provider.messages import Request
from harness_durable.testing.provider.policies import Steps
from harness_durable.testing.provider.reply import Reply, say
from tests.crash.effect_tool import effect

POLICY = "tests.crash.chores:chores"
_ASKED = re.compile(r"^chore: (\{[^\n]*\})$", re.MULTILINE)


def asked(steps: Steps) -> str:
    """The message that asks for these steps. Their tag is this message's alone."""
    return f"chore: {msgspec.json.encode(steps).decode()}"


async def ask(
    durable: Durable, session: str, message: str, steps: Steps, workspace: str | Path = "."
) -> None:
    """Send it as a program does that drives nothing itself: again, until it is accepted."""
    agent = durable.agent(tools=[effect], workspace=workspace)
    while True:
        try:
            found = await agent.session(session)
            await found.send(asked(steps), message_id=message)
            return
        except StorageError:
            await clock.sleep(0.2)


def chores(request: Request) -> Reply:
    """Do what the last message asks for."""
    said = [b.text for m in request.messages if m.role == "user" for b in m.blocks() if b.type == "text"]
    found = _ASKED.findall("\n".join(said))
    return msgspec.json.decode(found[-1], type=Steps)(request) if found else say("there is nothing to do")
