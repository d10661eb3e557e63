"""The protocol on the harness's standard input and output: a JSON object a line, both ways.

We send commands, and the harness answers them by our ids. Our extension's questions come as dialogs, and are
answered by the harness's ids."""

from __future__ import annotations

import re
from typing import cast

import msgspec

from ..common.frames import Said, frames_of, line_of
from ..common.shapes import Json, decode, encode, mapping, objects, word
from .naming import COMMAND, MARK, TITLE, marked

COMMANDS = "durable-commands"
"""Our first command; its answer tells whether our extension is in place."""

_NUMBER = re.compile(re.escape(MARK) + r"([0-9a-f-]+)>\n")


class Question(msgspec.Struct, frozen=True):
    """What our extension asks. ``lines`` are new ones of the session file, which come first in any case."""

    id: str
    kind: str
    lines: tuple[bytes, ...]
    about: Json


def read_said(said: bytes) -> Said:
    """From everything ever written to the harness's standard input."""
    asked, answered, messages = set[str](), set[str](), set[str]()
    for frame in frames_of(said):
        if frame.get("type") == "extension_ui_response":
            answered.add(word(frame.get("id")))
        elif frame:
            asked.add(word(frame.get("id")))
            found = _NUMBER.match(word(frame.get("message")))
            messages |= {found[1]} if found is not None else set()
    return Said(frozenset(asked), frozenset(answered), frozenset(messages))


def question(frame: Json) -> Question | None:
    """A question of our extension; ``None`` for every other dialog."""
    if frame.get("type") != "extension_ui_request" or frame.get("title") != TITLE:
        return None
    about = decode(word(frame.get("placeholder")).encode("utf-8", "surrogatepass")) or {}
    lines = about.get("lines")
    told = cast(list[object], lines) if isinstance(lines, list) else []
    found = [word(line).encode("utf-8", "surrogatepass") for line in told]
    return Question(word(frame.get("id")), word(about.get("kind")), tuple(found), about)


def is_in_place(data: object) -> bool:
    """Is our extension's command among the harness's commands?"""
    return any(
        one.get("name") == COMMAND and one.get("source") == "extension"
        for one in objects(mapping(data).get("commands"))
    )


def command(number: str, kind: str, **members: object) -> bytes:
    """A command of ours."""
    return line_of({"id": number, "type": kind, **members})


def message(text: str, number: str) -> bytes:
    """A user's message: it goes into the running turn, or begins one."""
    return command(number, "prompt", message=marked(text, number), streamingBehavior="steer")


def go_on() -> bytes:
    """Go on with the turn in its middle."""
    return command(COMMAND, "prompt", message=f"/{COMMAND}")


def answer(number: str, body: Json) -> bytes:
    """Our answer to a question."""
    value = encode(body).decode("utf-8")
    return line_of({"type": "extension_ui_response", "id": number, "value": value})


def withdrawal(number: str) -> bytes:
    """A question stays without an answer."""
    return line_of({"type": "extension_ui_response", "id": number, "cancelled": True})
