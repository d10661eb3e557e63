"""The app-server's protocol: a JSON object a line, both ways; requests, answers and notices as in JSON-RPC.

Our requests have words for ids, so that what is on record at the keeper tells what was asked. Its requests
have numbers."""

from __future__ import annotations

import json

from ..common.frames import Said, frames_of, line_of
from ..common.shapes import Json, mapping, word

INITIALIZE, THREAD, TURN, SUM_UP = "durable-init", "durable-thread", "durable-turn", "durable-sum-up"
INJECT, NOTE, STEER, STOP = "durable-inject-", "durable-note-", "durable-steer-", "durable-stop-"
"""How the ids of our requests begin."""


def read_said(said: bytes) -> Said:
    """From everything ever written to the harness's standard input."""
    asked, answered, messages = set[str](), set[str](), set[str]()
    for frame in frames_of(said):
        if "method" in frame:
            asked.add(word(frame.get("id")))
            messages.add(word(mapping(frame.get("params")).get("clientUserMessageId")))
        elif "id" in frame:
            answered.add(number_of(frame))
    return Said(frozenset(asked - {""}), frozenset(answered), frozenset(messages - {""}))


def number_of(frame: Json) -> str:
    """A request's id, whatever it is, as something to remember it by."""
    return number_of_id(frame.get("id"))


def number_of_id(number: object) -> str:
    """The same, for an id that stands elsewhere."""
    return json.dumps(number, sort_keys=True)


def request(number: str, method: str, params: Json) -> bytes:
    """A request of ours."""
    return line_of({"id": number, "method": method, "params": params})


def notice(method: str) -> bytes:
    """What nobody answers."""
    return line_of({"method": method})


def answer(number: object, result: Json) -> bytes:
    """Our answer to a request of the harness."""
    return line_of({"id": number, "result": result})


def refusal(number: object, message: str) -> bytes:
    """Our answer to a request that we do not know."""
    return line_of({"id": number, "error": {"code": -32601, "message": message}})


def user_text(text: str) -> list[Json]:
    """A message as the harness takes it."""
    return [{"type": "text", "text": text, "text_elements": []}]
