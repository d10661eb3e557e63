"""The protocol on the harness's standard input and output: a JSON object a line, both ways.

Requests go both ways, too, each with an id of its sender's. What is still to be answered after a takeover is
what the harness asked, minus what any worker answered, minus what the harness took back."""

from __future__ import annotations

import msgspec

from .shapes import Json, decode, encode, mapping, word

MAX_LINE = 1 << 30
"""Bytes. Far above what a harness can hold itself; a longer line is skipped, and nothing else is."""


class Lines:
    """Cuts a stream of bytes into lines, each with the offset after it."""

    def __init__(self, offset: int = 0) -> None:
        self._parts: list[bytes] = []
        self._size = 0
        self._offset = offset
        self.too_long = 0

    def feed(self, chunk: bytes) -> list[tuple[int, bytes]]:
        """Whole lines, now that ``chunk`` has come. What follows the last one is kept."""
        found: list[tuple[int, bytes]] = []
        start = 0
        while (end := chunk.find(b"\n", start)) >= 0:
            self._hold(chunk[start:end])
            line, self._parts, size, self._size = b"".join(self._parts), [], self._size, 0
            self._offset += size + 1
            if size > MAX_LINE:
                self.too_long += 1
            else:
                found.append((self._offset, line))
            start = end + 1
        self._hold(chunk[start:])
        return found

    def _hold(self, part: bytes) -> None:
        self._size += len(part)
        if self._size > MAX_LINE:
            self._parts.clear()
        elif part:
            self._parts.append(part)


class Said(msgspec.Struct, frozen=True):
    """What workers have told the harness in this life: ids of our own requests, ids of its requests that
    were answered, uuids of user messages."""

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
        match frame.get("type"):
            case "control_request":
                asked.add(word(frame.get("request_id")))
            case "control_response":
                answered.add(word(mapping(frame.get("response")).get("request_id")))
            case "user":
                messages.add(word(frame.get("uuid")))
            case _:
                pass
    return Said(frozenset(asked), frozenset(answered), frozenset(messages))


def request(number: str, body: Json) -> bytes:
    """A request of ours."""
    return _line({"type": "control_request", "request_id": number, "request": body})


def answer(number: str, body: Json) -> bytes:
    """Our answer to a request of the harness."""
    return _line(
        {
            "type": "control_response",
            "response": {"subtype": "success", "request_id": number, "response": body},
        }
    )


def refusal(number: str, error: str) -> bytes:
    """Our answer to a request that we do not know."""
    return _line(
        {"type": "control_response", "response": {"subtype": "error", "request_id": number, "error": error}}
    )


def as_sent(text: str) -> str:
    """A leading slash would make a message a command to the harness, which the model never sees."""
    return f" {text}" if text.startswith("/") else text


def message(text: str, number: str, session: str) -> bytes:
    """A user's message. ``number`` becomes the uuid of its line in the transcript."""
    return _line(
        {
            "type": "user",
            "message": {"role": "user", "content": as_sent(text)},
            "uuid": number,
            "session_id": session,
            "parent_tool_use_id": None,
        }
    )


def _line(frame: Json) -> bytes:
    return encode(frame) + b"\n"
