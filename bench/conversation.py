"""A tool call as the log sees it, without a harness: what every adapter's turn comes down to."""

from __future__ import annotations

import json

from harness_durable.journal import Journal
from harness_durable.journal.calls import Asked, Response

EVENTS = 5
"""Of a tool call: the model is asked, it answers and asks for the tool, which is released and completes."""
APPENDS = 4
"""The answer and what it asks for are one."""


class Conversation:
    """A turn that makes one tool call after the other. Each model request holds the whole conversation, as
    real ones do; ``result`` is what a tool says. ``bytes`` counts what is new in it."""

    def __init__(self, journal: Journal, life: str, result: str) -> None:
        self._journal, self._life, self._result = journal, life, result
        self._messages = [json.dumps({"role": "user", "content": "do it"})]
        self.calls, self.bytes = 0, 0

    async def call(self) -> None:
        self.calls += 1
        name, command = f"toolu_{self._life}_{self.calls}", f'{{"command":"step {self.calls}"}}'
        model = await self._journal.model_requested(
            key=name,
            life=self._life,
            wire="anthropic",
            model="model-x",
            path="/v1/messages",
            body=b'{"model":"model-x","messages":[' + ",".join(self._messages).encode() + b"]}",
            field="messages",
            agent=None,
        )
        asked = Asked(name, "Bash", command.encode(), "never", "builtin")
        answer = json.dumps({"content": [{"type": "tool_use", "id": name, "name": "Bash", "input": command}]})
        response = Response(200, "application/json", answer.encode(), tools=(asked,))
        await self._journal.model_completed(model, response)
        await self._journal.tool_gate(name, self._life)
        said = f"{self._result} {self.calls}"
        await self._journal.tool_finished(name, ok=True, result=said.encode(), source="hook")
        result = {"role": "user", "content": [{"type": "tool_result", "tool_use_id": name, "content": said}]}
        new = [json.dumps({"role": "assistant", "content": [answer]}), json.dumps(result)]
        self._messages += new
        self.bytes += sum(map(len, new))
