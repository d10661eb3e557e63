"""Requests of the Messages API: which of them are the same, and what of them goes upstream.

A harness that was resumed does not send the same bytes again. The match key is a hash over what the model
sees, without what is known to vary: cache marks, reminders, the order of parallel results, white space at
the end of texts, and our own sentinel."""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Raw

from harness_durable.gateway import bodies, rawjson
from harness_durable.gateway.bodies import listed, mapping
from harness_durable.gateway.rawjson import Unreadable

RESUME_SENTINEL = "<durable-resume/>"
"""The text that makes a resumed harness go on. It is taken out again before the model could see it."""

_REMINDER, _REMINDER_END = "<system-reminder>", "</system-reminder>"

_Block = dict[str, object]

# ------------------------------------------------------------------------------------- match key


def match_key(body: bytes) -> str:
    """64 hex digits. A body that cannot be understood is the same only as itself."""
    return bodies.digest(body, _seen)


def _seen(request: object) -> list[object]:
    members = mapping(request)
    turns: list[tuple[object, list[_Block]]] = []
    for said in listed(members.get("messages")):
        message = mapping(said)
        role, blocks = message.get("role"), _blocks(message.get("content"))
        if role == "system" or not blocks:
            continue
        if turns and turns[-1][0] == role:
            turns[-1][1].extend(blocks)
        else:
            turns.append((role, blocks))
    ordered = [[role, _results_first(blocks)] for role, blocks in turns]
    return [members.get("model"), _purpose(members), ordered]


def _purpose(members: Mapping[str, object]) -> list[bool]:
    """A harness asks side questions (a title, for instance) about the very same messages. They differ in
    whether there are tools, and whether the answer has a prescribed form."""
    config = members.get("output_config")
    return [bool(members.get("tools")), isinstance(config, dict) and "format" in config]


def _blocks(content: object) -> list[_Block]:
    """Content without what varies. A plain string is the same as one text block."""
    if isinstance(content, str):
        content = [{"type": "text", "text": content}]
    blocks = [_block(mapping(block)) for block in listed(content)]
    return [block for block in blocks if block is not None]


def _block(block: _Block) -> _Block | None:
    kept = {name: value for name, value in block.items() if name != "cache_control"}
    if kept.get("type") == "text":
        said = _without_reminders(str(kept.get("text", "")))
        if not said or said.startswith(_REMINDER) or said.strip() == RESUME_SENTINEL:
            return None
        kept["text"] = bodies.settled(said)
    elif kept.get("type") == "tool_result":
        kept["content"] = _blocks(kept.get("content"))
    return kept


def _without_reminders(text: str) -> str:
    """A harness hangs reminders (of tokens left, for instance) on the end of whatever comes last."""
    text = text.rstrip()
    while text.endswith(_REMINDER_END) and (begin := text.rfind(_REMINDER)) >= 0:
        text = text[:begin].rstrip()
    return text


def _results_first(blocks: list[_Block]) -> list[_Block]:
    results = [block for block in blocks if block.get("type") == "tool_result"]
    others = [block for block in blocks if block.get("type") != "tool_result"]
    return [*sorted(results, key=lambda block: str(block.get("tool_use_id"))), *others]


# --------------------------------------------------------------------------------- what goes upstream


def prepare(body: bytes) -> bytes:
    """The body without our sentinel, and with U+FFFD for half a surrogate pair, which the provider would
    refuse for as long as it stands in the conversation. All else stays byte for byte."""
    body = bodies.readable(body)
    if RESUME_SENTINEL.encode() not in body:
        return body
    try:
        members = rawjson.members(body)
        messages = [_without_sentinel(message) for message in rawjson.items(members["messages"])]
    except (KeyError, Unreadable):
        return body
    kept = rawjson.encode_list([message for message in messages if message is not None])
    return rawjson.encode_object({**members, "messages": Raw(kept)})


def _without_sentinel(message: Raw) -> Raw | None:
    """The message; None if nothing of it is left. Only user messages: a model may speak of the sentinel."""
    members = rawjson.members(message)
    if rawjson.text(members.get("role")) != "user" or "content" not in members:
        return message
    if rawjson.text(members["content"]).strip() == RESUME_SENTINEL:
        return None
    if bytes(members["content"])[:1] != b"[":
        return message
    blocks = rawjson.items(members["content"])
    kept = [block for block in blocks if not _is_sentinel(block)]
    if len(kept) == len(blocks):
        return message
    if not kept:
        return None
    if _is_sentinel(blocks[-1]):
        kept[-1] = _with_cache_mark(kept[-1], rawjson.members(blocks[-1]).get("cache_control"))
    return Raw(rawjson.encode_object({**members, "content": Raw(rawjson.encode_list(kept))}))


def _is_sentinel(block: Raw) -> bool:
    members = rawjson.members(block)
    return rawjson.text(members.get("text")).strip() == RESUME_SENTINEL


def _with_cache_mark(block: Raw, mark: Raw | None) -> Raw:
    """The harness marks the last block for the provider's cache; the mark moves to the last that stays."""
    members = rawjson.members(block)
    if mark is None or "cache_control" in members:
        return block
    return Raw(rawjson.encode_object({**members, "cache_control": mark}))
