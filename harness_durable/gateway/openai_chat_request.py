"""Requests of the Chat Completions API: which of them are the same.

Measured on OpenCode and Pi: both send the same bytes again, also from an empty home, except for what is left
out of the key; that is said beside each rule."""

from __future__ import annotations

from harness_durable.gateway import bodies
from harness_durable.gateway.bodies import listed, mapping
from harness_durable.gateway.openai_common import Item, in_order, purpose


def match_key(body: bytes) -> str:
    """64 hex digits. A body that cannot be understood is the same only as itself."""
    return bodies.digest(body, _seen)


def _seen(request: object) -> list[object]:
    # Of the frame only the model and what the request is for count: a tool server that is not up yet takes
    # its tools out of the list, and prompt_cache_key is the session's id.
    members = mapping(request)
    messages = [_message(mapping(said)) for said in listed(members.get("messages"))]
    about = purpose(members.get("tools"), members.get("response_format"))
    return [members.get("model"), about, in_order((one for one in messages if one is not None), _answered)]


def _message(message: Item) -> Item | None:
    """A message without what varies; None for one that only frames the conversation."""
    if message.get("role") in ("system", "developer"):
        return None  # instructions: the date, the folder, skills, rules of the repository
    # Cache marks move to the last messages. Nothing and null are the same.
    kept = {
        name: member for name, member in message.items() if name != "cache_control" and member is not None
    }
    if isinstance(kept.get("content"), str | list):
        kept["content"] = _parts(kept["content"])
    return {name: member for name, member in kept.items() if member != []}


def _parts(content: object) -> list[Item]:
    """Parts without what varies. A plain string is the same as one part."""
    if isinstance(content, str):
        content = [{"type": "text", "text": content}]
    parts = [_part(mapping(part)) for part in listed(content)]
    return [part for part in parts if part.get("text") != ""]


def _part(part: Item) -> Item:
    kept = {name: member for name, member in part.items() if name != "cache_control"}
    if isinstance(text := kept.get("text"), str):
        kept["text"] = bodies.settled(text)
    return kept


def _answered(message: Item) -> object:
    """The call that a message is the result of; None for other messages."""
    return message.get("tool_call_id", "") if message.get("role") == "tool" else None
