"""A scripted model behind the model APIs of Anthropic and OpenAI: no key, no network, no surprise by chance.

A policy decides from the conversation alone what the model says; the provider delivers it, as tidily
or as rudely as asked, and writes a ledger of what was asked for and what was paid.
"""

from __future__ import annotations

from harness_durable.testing.provider.ledger import Ledger, Tally, fingerprint
from harness_durable.testing.provider.messages import Request
from harness_durable.testing.provider.mood import Mood
from harness_durable.testing.provider.plan import Policy
from harness_durable.testing.provider.reply import (
    Cut,
    Hang,
    HttpError,
    Reply,
    StreamError,
    Style,
    Text,
    Thinking,
    ToolUse,
    Usage,
    say,
)
from harness_durable.testing.provider.server import ScriptedProvider

__all__ = [
    "Cut",
    "Hang",
    "HttpError",
    "Ledger",
    "Mood",
    "Policy",
    "Reply",
    "Request",
    "ScriptedProvider",
    "StreamError",
    "Style",
    "Tally",
    "Text",
    "Thinking",
    "ToolUse",
    "Usage",
    "fingerprint",
    "say",
]
