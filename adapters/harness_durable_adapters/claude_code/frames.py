"""The protocol on the harness's standard input and output: a JSON object a line, both ways.

Requests go both ways, too, each with an id of its sender's. What is still to be answered after a takeover is
what the harness asked, minus what any worker answered, minus what the harness took back."""

from __future__ import annotations

from harness_durable.tools.arguments import too_deep

from ..common.frames import Said, frames_of, line_of
from ..common.shapes import Json, mapping, outline, part, word

_OPAQUE = (
    ("entries",),
    ("message",),
    ("request", "input", "tool_input"),
    ("request", "input", "tool_response"),
    ("request", "message", "params", "arguments"),
)
"""What a frame carries for others: lines, a message, and what goes into a tool or comes out of it."""


def outlined(line: bytes) -> Json | None:
    """A frame that is nested too deeply to be read whole; ``None`` for what is none. What makes it so stands
    as the bytes that it was, if it is something that a frame carries, and else as ``None``."""
    found = outline(line)
    for path in _OPAQUE if found is not None else ():
        raw = part(line, *path)
        if too_deep(raw):
            inside = mapping(found)
            for name in path[:-1]:
                inside = mapping(inside.get(name))
            inside[path[-1]] = raw
    return found


def read_said(said: bytes) -> Said:
    """From everything ever written to the harness's standard input."""
    asked, answered, messages = set[str](), set[str](), set[str]()
    for frame in frames_of(said):
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
    return line_of({"type": "control_request", "request_id": number, "request": body})


def answer(number: str, body: Json) -> bytes:
    """Our answer to a request of the harness."""
    return line_of(
        {
            "type": "control_response",
            "response": {"subtype": "success", "request_id": number, "response": body},
        }
    )


def refusal(number: str, error: str) -> bytes:
    """Our answer to a request that we do not know."""
    return line_of(
        {"type": "control_response", "response": {"subtype": "error", "request_id": number, "error": error}}
    )


def as_sent(text: str) -> str:
    """A leading slash would make a message a command to the harness, which the model never sees."""
    return f" {text}" if text.startswith("/") else text


def message(text: str, number: str, session: str) -> bytes:
    """A user's message. ``number`` becomes the uuid of its line in the transcript."""
    return line_of(
        {
            "type": "user",
            "message": {"role": "user", "content": as_sent(text)},
            "uuid": number,
            "session_id": session,
            "parent_tool_use_id": None,
        }
    )
