"""The app-server's protocol: a JSON object a line, both ways; requests, answers and notices as in JSON-RPC.

Our requests have words for ids, so that what is on record at the keeper tells what was asked. Its requests
have numbers."""

from __future__ import annotations

import json

import msgspec

from ..common.shapes import Json, decode, encode, mapping, word

INITIALIZE, THREAD, TURN, SUM_UP = "durable-init", "durable-thread", "durable-turn", "durable-sum-up"
INJECT, NOTE, STEER, STOP = "durable-inject-", "durable-note-", "durable-steer-", "durable-stop-"
"""How the ids of our requests begin."""


class Said(msgspec.Struct, frozen=True):
    """What workers have told the harness in this life: ids of our own requests, ids of its requests that were
    answered, numbers of messages."""

    asked: frozenset[str]
    answered: frozenset[str]
    messages: frozenset[str]


def read_said(said: bytes) -> Said:
    """From everything ever written to the harness's standard input."""
    asked: set[str] = set()
    answered: set[str] = set()
    messages: set[str] = set()
    for line in said.split(b"\n"):
        frame = decode(line) or {}
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
    return _line({"id": number, "method": method, "params": params})


def notice(method: str) -> bytes:
    """What nobody answers."""
    return _line({"method": method})


def answer(number: object, result: Json) -> bytes:
    """Our answer to a request of the harness."""
    return _line({"id": number, "result": result})


def refusal(number: object, message: str) -> bytes:
    """Our answer to a request that we do not know."""
    return _line({"id": number, "error": {"code": -32601, "message": message}})


def user_text(text: str) -> list[Json]:
    """A message as the harness takes it."""
    return [{"type": "text", "text": text, "text_elements": []}]


def _line(frame: Json) -> bytes:
    return encode(frame) + b"\n"
