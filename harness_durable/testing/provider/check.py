"""The rules by which the real API refuses a conversation, so that a test sees the 400 that users would.

A recovery that leaves a call without a result, or answers one twice, must fail here and not only in
production. Returned sentences name the place in the request.
"""

from __future__ import annotations

import json

from harness_durable.testing.provider.messages import Block, Request


def complaint(request: Request) -> str:
    """Why the API would answer 400; empty if it would not."""
    if not _is_unicode(request):
        return "the body holds half a surrogate pair, which is no valid Unicode text"
    turns = _merged(request)
    if not turns or turns[0][0] != "user":
        return "messages: the first message must be from the user"
    waiting: list[str] = []
    seen: set[str] = set()
    for place, (role, blocks) in enumerate(turns):
        if any(block.type == "text" and not block.text for block in blocks):
            return f"turn {place}: a text block is empty"
        answered = [block.tool_use_id for block in blocks if block.type == "tool_result"]
        if sorted(answered) != sorted(waiting):
            return _mismatch(place, waiting, answered)
        waiting = [block.id for block in blocks if block.type == "tool_use" and role == "assistant"]
        if len(set(waiting)) < len(waiting) or seen.intersection(waiting):
            return f"turn {place}: tool_use ids must be unique, got {waiting}"
        seen.update(waiting)
    return f"tool_use without a tool_result right after it: {waiting}" if waiting else ""


def _mismatch(place: int, waiting: list[str], answered: list[str]) -> str:
    lost = [call for call in waiting if call not in answered]
    if lost:
        return f"turn {place}: tool_use without a tool_result right after it: {lost}"
    return f"turn {place}: tool_result without exactly one tool_use right before it: {answered}"


def _merged(request: Request) -> list[tuple[str, list[Block]]]:
    turns: list[tuple[str, list[Block]]] = []
    for message in request.messages:
        if message.role == "system":
            continue
        if turns and turns[-1][0] == message.role:
            turns[-1][1].extend(message.blocks())
        else:
            turns.append((message.role, list(message.blocks())))
    return turns


def _is_unicode(request: Request) -> bool:
    try:
        json.dumps(request.body, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        return False
    return True
