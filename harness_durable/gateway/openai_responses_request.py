"""Requests of the Responses API: which of them are the same.

Measured on Codex, Pi and OpenCode. A resumed harness sends the same items again. What differs, and is left
out of the key, is said beside each rule."""

from __future__ import annotations

from collections.abc import Mapping

from harness_durable.gateway import bodies
from harness_durable.gateway.bodies import listed, mapping
from harness_durable.gateway.openai_common import Item, in_order, purpose

_FRAMES = ("<environment_context>", "<skills_instructions>")
"""Codex tells the date, the folders and the skills in user messages, anew after each start."""

_SERVER_SIDE = ("previous_response_id", "conversation", "prompt")
"""What the model sees beside ``input``, kept by the provider."""


def match_key(body: bytes) -> str:
    """64 hex digits. A body that cannot be understood is the same only as itself."""
    return bodies.digest(body, _seen)


def _seen(request: object) -> list[object]:
    # Of the frame only the model and what the request is for count. Another in each life are client_metadata
    # (Codex), prompt_cache_key (the session's id), the paths within instructions and tools, and a tool server
    # that is not up yet. store, include and stream do not change what the model sees.
    members = mapping(request)
    given = members.get("input")
    items = [_item(one) for one in ([_said(given)] if isinstance(given, str) else listed(given))]
    tools = members.get("tools") or any(map(_holds_tools, listed(given)))
    about = purpose(tools, bodies.inner(members.get("text"), "format"))
    kept = {name: members[name] for name in _SERVER_SIDE if members.get(name) is not None}
    return [
        members.get("model"),
        about,
        kept,
        in_order((item for item in items if item is not None), _answered),
    ]


def _said(text: object) -> Item:
    return {"role": "user", "content": text}


def _holds_tools(item: object) -> bool:
    return bodies.inner(item, "type") == "additional_tools"


def _item(value: object) -> Item | None:
    """An item without what varies; None for one that only frames the conversation."""
    item = mapping(value)
    kind = item.setdefault("type", "message")
    if kind == "additional_tools" or item.get("role") in ("system", "developer"):
        return None  # instructions: paths, the date, the tools that are up
    kept = {name: member for name, member in item.items() if name not in _left_out(item)}
    for name in ("content", "output"):
        if isinstance(kept.get(name), str | list):
            kept[name] = _parts(kept[name])
    return None if kind == "message" and not kept.get("content") else kept


def _left_out(item: Mapping[str, object]) -> tuple[str, ...]:
    """The ids of items that Codex makes are another in each thread, and those that it injects new in each
    life; the model does not see them. Where an id stands for what the provider keeps, it counts."""
    stands_for_content = item["type"] == "item_reference" or (
        item["type"] == "reasoning" and not item.get("encrypted_content")
    )
    return (
        ("status",) if stands_for_content else ("id", "status", "internal_chat_message_metadata_passthrough")
    )


def _parts(content: object) -> list[Item]:
    """Parts without what varies. A plain string is the same as one part."""
    if isinstance(content, str):
        content = [{"type": "input_text", "text": content}]
    parts = [_part(mapping(part)) for part in listed(content)]
    return [part for part in parts if part is not None]


def _part(part: Item) -> Item | None:
    kept = {name: member for name, member in part.items() if name not in ("annotations", "logprobs")}
    if isinstance(text := kept.get("text"), str):
        if not text or text.startswith(_FRAMES):
            return None
        kept["text"] = bodies.settled(text)
    return kept


def _answered(item: Item) -> object:
    """The call that an item is the result of; None for other items."""
    return item.get("call_id", "") if str(item["type"]).endswith("_output") else None
