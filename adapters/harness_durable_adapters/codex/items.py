"""Items of the Responses API, which is what the harness's conversation consists of. Pure.

What surprises: some messages in the user's or a developer's name are the harness's own (where it is, what it
can, the project's instructions). They frame a conversation and are made anew whenever one begins, so they are
not a part of what has to be kept."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import cast

from ..common.shapes import Json, objects, word

NOTE = "[Note by harness-durable"
"""Begins what we tell the model ourselves, in a developer's name."""

_FRAMES = (
    "<environment_context>",
    "<skills_instructions>",
    "<user_instructions>",
    "<permissions instructions>",
    "<collaboration_mode>",
    "<apps_instructions>",
    "<plugins_instructions>",
    "<turn_aborted>",
    "# AGENTS.md instructions",
)
_VARIES = frozenset(
    {"id", "status", "metadata", "internal_chat_message_metadata_passthrough", "annotations", "logprobs"}
)
_ABORTED = re.compile(
    r"(Wall time: [\d.]+ seconds\n)?aborted( by user)?|dynamic tool call was cancelled before .*", re.DOTALL
)
_RUNNING = re.compile(r"Process running with session ID (\d+)")


def text_in(item: Mapping[str, object]) -> str:
    """What stands in a message, or in a result."""
    content = item.get("output") if "output" in item else item.get("content")
    if isinstance(content, str):
        return content
    return "\n".join(word(part.get("text")) for part in objects(content))


def is_user(item: Mapping[str, object]) -> bool:
    return item.get("type", "message") == "message" and item.get("role") == "user"


def is_frame(item: Mapping[str, object], said: frozenset[str] = frozenset()) -> bool:
    """Is it a message that the harness makes by itself? What people have ``said`` never is."""
    if item.get("type", "message") == "additional_tools":
        return True
    if item.get("type", "message") != "message":
        return False
    text = text_in(item)
    if item.get("role") in ("developer", "system"):
        return not text.startswith(NOTE)
    return item.get("role") == "user" and text.startswith(_FRAMES) and text not in said


def conversation(items: Iterable[Json], said: frozenset[str]) -> list[Json]:
    """The items that have to be kept."""
    return [item for item in items if not is_frame(item, said)]


def is_call(item: Mapping[str, object]) -> bool:
    return bool(item.get("call_id")) and not is_output(item)


def is_output(item: Mapping[str, object]) -> bool:
    return word(item.get("type")).endswith("_output")


def is_made_up(item: Mapping[str, object]) -> bool:
    """A result that says that its call was broken off, which says nothing of what the call has done."""
    return _ABORTED.fullmatch(text_in(item)) is not None


def output(call: Mapping[str, object], text: str) -> Json:
    """The result of a call, of the kind that belongs to it."""
    return {"type": f"{word(call.get('type'))}_output", "call_id": call.get("call_id"), "output": text}


def note(text: str) -> Json:
    """Something that we tell the model."""
    part: Json = {"type": "input_text", "text": f"{NOTE}, not by the user: {text}.]"}
    return {"type": "message", "role": "developer", "content": [part]}


def same(one: object, other: object) -> bool:
    """Do both say the same? Ids and the harness's own remarks do not count."""
    return _bare(one) == _bare(other)


def _bare(value: object) -> object:
    if isinstance(value, dict):
        members = cast(Json, value).items()
        return {name: _bare(member) for name, member in members if name not in _VARIES and member is not None}
    return [_bare(part) for part in cast(list[object], value)] if isinstance(value, list) else value


def terminals(items: Iterable[Mapping[str, object]]) -> list[str]:
    """Sessions of commands that were left running, and of whose end the model has not been told."""
    running: dict[str, None] = {}
    for item in items:
        text = text_in(item)
        if is_output(item):
            running.update(dict.fromkeys(_RUNNING.findall(text)))
        elif text.startswith(NOTE):
            running = {name: None for name in running if name not in re.findall(r"\d+", text)}
    return list(running)
