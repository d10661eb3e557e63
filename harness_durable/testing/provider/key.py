"""The match key: one hash for "the same model call", whatever the harness varies between lives.

Written independently of the gateway's own key on purpose: the ledger judges the gateway, so the two
must not share a mistake.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping

from msgspec import convert

from harness_durable.testing.provider.messages import Request, without_reminders

_Block = dict[str, object]


def match_key(request: Request) -> str:
    """32 hex digits over the model's name and the normalised messages.

    Left out: everything but model and messages, messages of role ``system``, reminders (also those at
    the end of results), cache marks, white space at the end of texts. Tool results come first in
    their message, ordered by call id, because parallel calls finish in any order.
    """
    turns = [
        (message.get("role"), blocks)
        for message in request.said
        if message.get("role") != "system" and (blocks := _normal(message.get("content")))
    ]
    text = json.dumps([request.model, turns], sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:32]


def _normal(content: object) -> list[_Block]:
    blocks: list[_Block] = (
        [{"type": "text", "text": content}] if isinstance(content, str) else convert(content, list[_Block])
    )
    kept = [_without_marks(block) for block in blocks if not _is_reminder(block)]
    answers = [block for block in kept if block.get("type") == "tool_result"]
    others = [block for block in kept if block.get("type") != "tool_result"]
    return [*sorted(answers, key=lambda block: str(block.get("tool_use_id"))), *others]


def _is_reminder(block: Mapping[str, object]) -> bool:
    return block.get("type") == "text" and str(block.get("text")).startswith("<system-reminder>")


def _without_marks(block: _Block) -> _Block:
    kept = {name: value for name, value in block.items() if name != "cache_control"}
    if isinstance(text := kept.get("text"), str):
        kept["text"] = without_reminders(text).rstrip()
    if isinstance(content := kept.get("content"), str):
        # The harness hangs a reminder on the last result, which need not be the same one twice.
        kept["content"] = without_reminders(content).rstrip()
    elif isinstance(content, list):
        parts = [part for part in convert(content, list[_Block]) if not _is_reminder(part)]
        kept["content"] = [_without_marks(part) for part in parts]
    return kept
